"""Adds the nearest existing names to a compiler's errors about names that do not exist.

Language models invent names with the words of real ones in another order, one too many, in an old form, or with another API's
prefix. Names are compared by the pieces of three characters that they share, which finds these where edit distances do not, in
some milliseconds for thousands of names.
Where to look next: `tools/build/nvcc.py` (whose errors these are), `rag/index.py` (which compares names of the documentation).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

MOST = 3

_ENOUGH = 0.45                             # share of common pieces below which a name is not offered
_PREFIX = re.compile(r"cu(?:blasLt|blasXt|da|dnn|sparse|blas|fft|solver|rand)?(?=[A-Z_]|\Z)")
# cublasSgemm and cublasCgemm differ in a type alone: one of them is offered, if equally near the one for float.
_TYPED = re.compile(r"(?P<api>cu(?:blas(?:Xt)?|sparse|solver(?:Dn|Sp)))(?P<type>[SDCZ])(?=[a-z])")
# What nvcc and g++ print about an unknown name, or about a name that is no member of its owner.
_UNKNOWN = re.compile(
    r"""error: (?:identifier "(?P<nvcc>\w+)" is undefined|['‘](?:\w+::)*(?P<gcc>\w+)['’] (?:was not|has not been) declared"""
    r"""|['‘](?P<type>\w+)['’] does not name a type"""
    r"""|\w* ?["'‘](?:\w+ )?(?:\w+::)*(?P<owner>\w+)["'’] has no member (?:named )?["'‘](?P<member>\w+)["'’])[^\n]*"""
)
_API = re.compile(r"cu(?:[A-Z]|da|dnn|blas|fft|rand|solver|sparse)\w*|CU[A-Z]*_\w+|__\w+|nv\w+")
_WORD = re.compile(r"\b[A-Za-z_]\w{3,}")
_SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_VARIANT = re.compile(r"(?:_v\d+)?(?:_64)?(?:_ptds|_ptsz)?(?:_st|_enum|_params)?$")
_SUBFOLDERS = ("", "crt", "cooperative_groups")        # of the toolkit's headers


def with_nearest(log: str, folders: Iterable[Path]) -> str:
    """Returns the log with the nearest names added to each error about a name of CUDA or its libraries that does not exist.

    `folders`: of the libraries' headers, which are read only if there is such an error. Members are looked up if their class
    or namespace occurs in these headers.
    """
    places = list(dict.fromkeys(folder.resolve() for folder in folders))

    def extended(error: re.Match[str]) -> str:
        name = error["nvcc"] or error["gcc"] or error["type"] or error["member"]
        if not error["member"] and not _API.fullmatch(name):
            return error.group()
        words = frozenset[str]().union(*map(_words, places))
        if name in words or (error["member"] and error["owner"] not in words):
            return error.group()
        near = nearest(name, words if error["member"] else filter(_API.fullmatch, words))
        return f"{error.group()}; nearest: {', '.join(near)}" if near else error.group()

    return _UNKNOWN.sub(extended, log)


@functools.lru_cache(maxsize=16)
def _words(folder: Path) -> frozenset[str]:
    """Returns the words of a folder's headers outside of comments and strings, without variants of a name (cuMemAlloc_v2)."""
    found: set[str] = set()
    for place in (folder / name for name in _SUBFOLDERS):
        for file in place.iterdir() if place.is_dir() else ():
            if file.is_file():
                found.update(_WORD.findall(_SILENT.sub(" ", file.read_text("utf-8", "replace"))))
    return frozenset(word for word in found if (plain := _VARIANT.sub("", word)) == word or plain not in found)


def nearest(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns at most three of `names`, the nearest first; at most one belongs to another API, as cuMemFree for cudaMemFree."""
    pieces, api = _pieces(wanted), _api(wanted)
    near: list[tuple[float, bool, str]] = []
    for name in names:
        others = _pieces(name)
        alike = 2 * len(pieces & others) / (len(pieces) + len(others))
        if alike >= _ENOUGH:
            typed = _TYPED.match(name)
            near.append((-alike, typed is None or typed["type"] != "S", name))
    taken: dict[str, str] = {}
    foreign = 0
    for _, _, name in sorted(near):
        group = _TYPED.sub(r"\g<api>", name)
        if group in taken or (foreign and _api(name) != api):
            continue
        taken[group] = name
        foreign += _api(name) != api
        if len(taken) == MOST:
            break
    return tuple(taken.values())


@functools.lru_cache(maxsize=1 << 15)
def _pieces(name: str) -> frozenset[str]:
    padded = f" {name} "
    return frozenset(padded[at:at + 3] for at in range(len(padded) - 2))


def _api(name: str) -> str:
    found = _PREFIX.match(name)
    return found.group() if found else ""
