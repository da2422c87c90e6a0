"""Fuses rankings by reciprocal rank, weighs entries by kind (deprecated ones less), drops those that say the same.

Pure functions. Source of the formula: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual rank learning methods" (SIGIR 2009). Where to look next: `rag/index.py`, which ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.headers.chunks import NARROW, family

DAMPING = 6.0
"""The paper takes 60, for rankings that are equally good; here the first places of each ranking count more."""
FALLING = 0.7                              # factor on the weight of each further text of one owner
_GRAPHICS = re.compile(r"egl|gl_|vdpau|GL\.h")


def fuse(
    rankings: Mapping[str, Sequence[int]], weights: Mapping[str, float], prior: Callable[[int], float]
) -> list[tuple[int, float]]:
    """Returns (id, score), the highest first; a score is prior × the sum of weight / (DAMPING + rank), ranks count from 1."""
    scores: dict[int, float] = defaultdict(float)
    for name, ranking in rankings.items():
        for rank, at in enumerate(ranking, 1):
            scores[at] += weights[name] / (DAMPING + rank)
    return sorted(((at, score * prior(at)) for at, score in scores.items()), key=lambda pair: (-pair[1], pair[0]))


def best_owners(texts: Iterable[tuple[int, float]], most: int) -> list[int]:
    """Returns the first `most` owners of (owner, score), which come best first, ordered by the sum of their best three scores
    with falling weights: an owner with several fitting phrases is better than one with a single one."""
    scores: dict[int, list[float]] = {}
    for owner, score in texts:
        if owner in scores or len(scores) < most:
            scores.setdefault(owner, []).append(score)
    sums = {owner: sum(score * FALLING**place for place, score in enumerate(those[:3])) for owner, those in scores.items()}
    return sorted(sums, key=lambda owner: -sums[owner])


def prior(chunk: Chunk, asked: bool) -> float:
    """Returns the factor on an entry's score by how likely it is meant when it is not named. Higher: entries with phrases
    (`asked`). Lower: old interfaces, pointer types, graphics, prose, and overloads of another entry."""
    return (1.8 if asked else 1.0) * (0.8 if chunk.kind in ("type", "enum") else 1.0) * _prior(chunk)


def _prior(chunk: Chunk) -> float:
    if chunk.kind == "technique":
        return 0.7                         # a page has many sections, and phrases for all of it
    if chunk.library == "cuBLAS, old interface":
        return 0.4
    if chunk.library == "CUTLASS":
        return 0.65
    if chunk.title.startswith("PFN_") or _GRAPHICS.search(chunk.source) or chunk.library in ("libcu++", "Thrust"):
        return 0.45
    if chunk.comment.startswith("Deprecated.") or "DEPRECATED" in chunk.text[:40]:
        return 0.55
    if NARROW.match(chunk.source) or chunk.source == "cuda_runtime.h":
        return 0.95                        # overloads of what stands elsewhere for all types, and for C
    return {"CUDA driver": 0.85, "cuDNN frontend": 0.9}.get(chunk.library, 1.0)


def duplicate_key(chunk: Chunk) -> tuple[str, str]:
    """Returns a key that is equal for chunks that say the same: variants of one function, and its twin in the driver's API."""
    if chunk.kind in ("section", "technique"):
        return chunk.source, chunk.title
    name = chunk.title.partition(" (")[0]
    if chunk.kind == "function":
        name = family(name)
    if chunk.library in ("CUDA runtime", "CUDA driver"):
        return "CUDA", _twin(name)
    return chunk.library.partition(",")[0], name


def _twin(name: str) -> str:
    """Returns one text for cudaStreamWaitEvent and cuStreamWaitEvent, cudaErrorInvalidValue and CUDA_ERROR_INVALID_VALUE."""
    plain = re.sub(r"^(?:cuda|CUDA_|CU_|CU|cu)", "", name).replace("_", "").lower()
    for long, short in (("attribute", "attr"), ("device", "dev"), ("asynchronous", "async")):
        plain = plain.replace(long, short)
    return plain
