"""Which names of functions are nearest to one that does not exist, for whoever made it up.

What language models make up has the words of real names in another order, one too many, in an old form, or with another API's
prefix. Pieces of three characters find these where edit distances do not, in some milliseconds for thousands of names. It knows
nothing of programs or headers. Where to look next: `tools/build/api_names.py`, which asks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

MOST = 3

_ENOUGH = 0.45                             # of the pieces in common; below that a name is no help
_PREFIX = re.compile(r"cu(?:blasLt|blasXt|da|dnn|sparse|blas|fft|solver|rand)?(?=[A-Z_]|\Z)")
# cublasSgemm and cublasCgemm differ in a type: one of them is enough, of equals that for float.
_TYPED = re.compile(r"(?P<api>cu(?:blas(?:Xt)?|sparse|solver(?:Dn|Sp)))(?P<type>[SDCZ])(?=[a-z])")


def nearest(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """At most three, the nearest first; one of them may belong to another API, such as cuMemFree for cudaMemFree."""
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
