"""Which API symbols a heading or a declaration in a document introduces. Guesses by the look of words; reads no header.

`cublasLtMatmulDescSetAttribute()`, `cudaMemcpyKind`, `CUBLASLT_EPILOGUE_GELU`, `cute::copy` and `wgmma.mma_async` are symbols,
`cuBLAS`, `NVLink` and `GitHub` are not. Where to look next: `rag/documents/outline.py` (where names go), `rag/headers/` (what
is certain).
"""

from __future__ import annotations

import re

MOST = 8                                   # names of a heading; a longer list is prose
_WORD = re.compile(r"~?[A-Za-z_]\w*(?:<t>\w*)?(?:(?:::|\.)~?[A-Za-z_]\w*)*")
_HUMPS = re.compile(r"[a-z][a-z0-9]*(?:[A-Z][a-z0-9]+)+[A-Z0-9]*")
_PRODUCTS = {"cuRand", "cuSolver", "cuSparse", "cuTensor", "nvShmem", "nvFuser"}
_LONGEST = 200                             # characters of a symbol


def in_heading(heading: str, marked: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Symbols that `heading` introduces; `marked` are those of its words that are set as code."""
    found: list[str] = []
    code = {word for part in marked for word in _WORD.findall(part)}
    for match in _WORD.finditer(heading[:1_000]):
        word = match[0]
        called = heading[match.end() : match.end() + 1] == "("
        if len(word) <= _LONGEST and (called or _looks_like_one(word) or (word in code and len(word) > 2)):
            found += _by_type(word)
    found = list(dict.fromkeys(found))
    return tuple(found) if len(found) <= MOST else ()


def of_declaration(text: str, *, certain: bool = False) -> str:
    """The name that a declaration declares: `cudaFree` of `__host__ cudaError_t cudaFree ( void* devPtr )`; "" for prose.

    `certain`: the page says that it is a declaration, so that `int major` declares `major`.
    """
    head, end = re.match(r"([^(\[={;]*)([(\[={;]?)", " ".join(text[:4_000].split())).groups()  # type: ignore[union-attr]
    words = _WORD.findall(re.sub(r"<(?!t>)[^<>]*>\s*$", "", head))
    if not words or len(words[-1]) > _LONGEST:
        return ""
    called = end == "(" and not head.endswith(" ") and len(words) < 8
    return words[-1] if certain or called or _looks_like_one(words[-1]) else ""


def _looks_like_one(word: str) -> bool:
    if word in _PRODUCTS:
        return False
    return "_" in word.strip("_") or word.startswith("__") or "::" in word or "<t>" in word or bool(_HUMPS.fullmatch(word))


def _by_type(word: str) -> list[str]:
    """cuBLAS's manual writes `cublas<t>gemm` for the functions of four types."""
    return [word, *(word.replace("<t>", letter) for letter in "SDCZ")] if "<t>" in word else [word]
