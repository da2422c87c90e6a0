"""Decides whether an entry that was found has to do with the question, and which names in a draft do.

A search always has a best entry, also where none fits: for the word "scale" the scale pointers of 8-bit products. So an entry
that is not named in the question is shown only if the question has enough words of the entry's title. It ranks nothing.

Where to look next: `rag/lookup.py` (leaves out what has nothing to do with a question), `rag/words.py` (words of a text).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stitchcuda.rag.chunk import DECLARED, Chunk
from stitchcuda.rag.words import tokens

LEAST_WORDS = 2                            # words of an entry's title that the question has to have
LEAST_SHARE = 0.6                          # of the words of a declaration's name
SHORT = 6                                  # characters; shorter names may be ordinary words in other capitals
NEAR = 2                                   # lines around an error in which a draft's names count
MOST_NAMES = 4
BY_NAME = frozenset({"names", "statuses", "near"})
_COMMON = frozenset({
    "cuda", "cublas", "cublaslt", "cudnn", "cu", "lt", "cub", "nv", "t", "f", "st", "device", "function", "error", "status",
    "type", "kernel", "descriptor", "attribute", "v", "1", "2", "3", "4", "success",
})  # fmt: skip
"""Words of so many names that they tell none from another."""
_NAME = re.compile(r"\b(?:cuda[A-Z]\w+|cublas\w+|CUBLAS\w+|cudnn[A-Z]\w+|CUDNN_\w+|cuTensorMap\w+|__[a-z]\w+[a-z\d])\b")
_EVERYDAY = re.compile(
    r"cuda(?:Stream_t|Error_t|Success|GetLastError|GetErrorString|PeekAtLastError)|__(?:global|device|host|shared|restrict|constant"
    r"|forceinline|launch_bounds|align|syncthreads|ldg|shfl_\w+|expf|fdividef|float2half\w*|half2float|name|file|line|init)_*"
)
_STATUS = re.compile(r"cudaError|CUDA_ERROR|_STATUS_|NVRTC_ERROR")
_PLACE = re.compile(r"([\w./-]+\.(?:cuh?|cc|cpp|h))(?:\(|:)(\d+)")


def is_relevant(query: str, chunk: Chunk, by: Iterable[str], *, pages_only: bool = False) -> bool:
    """Whether an entry may be shown for a question. `by`: the rankings that found it, as in `rag.index.WEIGHTS`. One that the
    question names is, and of statuses no other; a declaration needs LEAST_WORDS and LEAST_SHARE of the words of its name in the
    question, a page of techniques LEAST_WORDS of its title's; a single one with `pages_only`, where only pages are searched."""
    if is_named(query, chunk, by):
        return True
    if _STATUS.search(chunk.title):
        return False
    name = chunk.title.partition(" (")[0].rpartition("::")[2] if chunk.kind in DECLARED else chunk.title
    own = {word for word in tokens(name) if word not in _COMMON and word != name.lower()}
    shared = own & set(tokens(query))
    enough = LEAST_SHARE * len(own) if chunk.kind in DECLARED else 0
    return len(shared) >= max(1 if pages_only else LEAST_WORDS, enough)


def is_named(query: str, chunk: Chunk, by: Iterable[str]) -> bool:
    """Whether a question names an entry: by its name, one spelled like it, or the number of a status. A short name without a
    digit may be an ordinary word, and counts only where it is called or quoted: "worst nan" does not name `nan`."""
    found = BY_NAME.intersection(by)
    names = {name.rpartition("::")[2] for name in chunk.names}
    if found != {"names"} or any(len(name) >= SHORT or re.search(r"\d", name) for name in names):
        return bool(found)
    return query.strip() in names or any(re.search(rf"\b{re.escape(name)}[(`'\"]", query) for name in names)


def names_in_draft(files: Mapping[str, str], error: str, about: str) -> list[str]:
    """Returns NVIDIA's names in a draft's files that have to do with the error: those on the lines that it names and NEAR
    them, else those that have two words of `error` and `about` in them; at most MOST_NAMES, those in every program left out."""
    near: dict[str, None] = {}
    for path, line in _PLACE.findall(error):
        lines = next((text.splitlines() for known, text in files.items() if path.endswith(known)), [])
        at = int(line) - 1
        near |= dict.fromkeys(_names("\n".join(lines[max(0, at - NEAR) : at + NEAR + 1])))
    if near:
        return list(near)[:MOST_NAMES]
    words = set(tokens(f"{error} {about}")) - _COMMON
    named = dict.fromkeys(name for text in files.values() for name in _names(text))
    return [name for name in named if len(words & set(tokens(name))) >= LEAST_WORDS][:MOST_NAMES]


def _names(text: str) -> list[str]:
    return [name for name in _NAME.findall(text) if not _EVERYDAY.fullmatch(name)]
