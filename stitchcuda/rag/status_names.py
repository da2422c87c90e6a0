"""Translates status numbers in a message to names: "cublasLtMatmul returned 7" is CUBLAS_STATUS_INVALID_VALUE.

The names come from the index' own enums. It reads messages and decides nothing. Where to look next: `rag/lookup.py`.
"""

from __future__ import annotations

import re

from stitchcuda.rag.symbol_table import SymbolTable

_ENUMS = {
    "cublaslt": "cublasStatus_t", "cublas": "cublasStatus_t", "cudnn": "cudnnStatus_t", "cuda": "cudaError",
    "cu": "cudaError_enum",
}  # fmt: skip
_NUMBER = re.compile(
    r"(?:status|error|code|failed|returned|returns|rc)\b[^\w\n-]{0,12}(?:code|status|with|error|is)?[^\w\n-]{0,6}"
    r"(?P<number>\d{1,4})\b",
    re.IGNORECASE,
)
_LIBRARY = re.compile(r"\b(?P<library>cublas(?:lt)?|cudnn|cuda|cu)(?=[A-Z_\s:.,]|$)", re.IGNORECASE)
_READ, _MOST = 20_000, 8                   # characters of a text, numbers in it
_AROUND = 160                              # characters before a number in which its library is named


def find_statuses(text: str, names: SymbolTable) -> list[int]:
    """Returns the chunks of the statuses that a text gives as numbers, in their order; at most `_MOST` are looked up."""
    found: dict[int, None] = {}
    for number in list(_NUMBER.finditer(text[:_READ]))[:_MOST]:
        libraries = _LIBRARY.findall(text[max(0, number.start() - _AROUND) : number.end()])
        name = _name(libraries[-1].lower(), int(number["number"]), names) if libraries else ""
        found |= dict.fromkeys(names.whole(name) if name else ())
    return list(found)


def _name(library: str, number: int, names: SymbolTable) -> str:
    for at in names.whole(_ENUMS[library]):
        for line in names.chunk(at).text.splitlines():
            value = re.match(r"\s*(?P<name>\w+)\s*=\s*(?P<value>\d+)\b", line)
            if value and int(value["value"]) == number:
                return value["name"]
    return ""
