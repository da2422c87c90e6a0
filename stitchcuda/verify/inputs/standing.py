"""Finds the members of a group that can be changed together, by trying: all of them, and where that fails, each half.

Used for parameters and for inputs, whose values a reference may not stand. Where to look next:
`verify/reference/reference_state.py` and `verify/inputs/input_ranges.py` (who use it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_MOST_TRIES = 24
_Member = TypeVar("_Member")


def find_standing(
    members: Sequence[_Member], stands: Callable[[Sequence[_Member]], bool], tries: int = _MOST_TRIES
) -> list[_Member]:
    """Returns members that `stands` is true for, all together. It is called at most `tries` times: members that were not tried
    until then are left out. With k members that must be left out of n, k · 2 · log2(n) calls find the most."""
    found: list[_Member] = []
    groups = [list(members)] if members else []
    while groups and tries:
        group = groups.pop()
        tries -= 1
        if stands([*found, *group]):
            found += group
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[half:], group[:half]]
    return found
