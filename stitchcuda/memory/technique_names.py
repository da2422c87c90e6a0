"""Finds the optimisation techniques that a strategy's text names, so that the same idea in other words has the same key.

TECHNIQUES is a table of regular expressions. A text that matches none is identified by its words in any order. Numbers are
ignored, since block sizes and vector widths depend on the shape.

Where to look next: `memory/lesson.py` (builds a lesson's key from this).
"""

from __future__ import annotations

import hashlib
import re

TECHNIQUES: dict[str, str] = {
    "async copy": r"async\w* cop|cp\.async|\btma\b|double.?buffer|multi.?stage|pipelin",
    "atomics": r"\batomic",
    "bf16 parts": r"split(?:ting)? into bf16|bf16 parts",
    "block per column": r"threads? per column|block (?:per|for each) column",
    "block per row": r"block (?:per|for each|a) (?:row|reduction)|row per (?:thread )?block|threads? per row",
    "channels last": r"channels?.last|\bnhwc\b",
    "cublas": r"cublas",
    "cuda graph": r"cuda.?graphs?|graph replay|replay",
    "cudnn": r"cudnn",
    "epilogue": r"epilogue",
    "grid stride": r"grid.?strid",
    "in place": r"in.?place",
    "in registers": r"\bin registers\b|register.?(?:resident|tile|block|cach)|kept in registers",
    "looped": r"\blooped\b",
    "one pass": r"(?:one|single).?pass|welford|online softmax|online normali[sz]",
    "persistent kernel": r"persistent kernel|persistent block|persistent thread",
    "precomputed": r"pre.?comput|constant.?fold|hoist",
    "shared memory": r"shared.?memory|\bsmem\b|__shared__",
    "split reduction": r"split.?k\b|\bsplits? (?:the )?(?:row|column|reduction)|blocks? per (?:row|column)",
    "streams": r"\bstreams\b|concurrent kernels",
    "tensor cores": r"tensor.?core|\bw?g?mma\b",
    "tiles": r"\btil(?:e|es|ed|ing)\b",
    "transpose": r"transpos",
    "two passes": r"two.?pass",
    "unrolled": r"unroll",
    "vectorised": r"vectori[sz]|\bfloat[24]\b|\bint[24]\b|\bhalf[28]\b|\buint4\b|128.?bit|wide loads|elements? per access",
    "warp per row": r"warp (?:per|for each) row|row per warp",
    "warp shuffles": r"shuffle|shfl|warp.?(?:level )?reduc",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in TECHNIQUES.items()}
_WORD = re.compile(r"[^\W\d_]+")


def techniques(text: str) -> tuple[str, ...]:
    """Returns the techniques that `text` names, in alphabetical order."""
    lowered = text.lower().replace("-", " ")
    return tuple(sorted(name for name, pattern in _PATTERNS.items() if pattern.search(lowered)))


def strategy_key(text: str) -> str:
    """Returns a key of the strategy: its techniques, or a digest of its set of words where it names none."""
    found = techniques(text)
    if found:
        return " + ".join(found)
    words = sorted(set(_WORD.findall(text.lower())))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]
