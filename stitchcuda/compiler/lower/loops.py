"""Splits and matches loops symbolically, so that differently shaped tensors can share one loop nest.

A tensor's dimension is a list of loops, outermost first; their sizes multiply to the dimension's, and a dimension of size one
has none. Views regroup the lists. Matching two dimensions splits loops at common factors and then makes both run over the
same loops, so `(tokens, heads * width)` and `(tokens, heads, width)` meet in three loops. Sizes that do not divide each other
raise `CannotLower`. No strides and no arithmetic here.

Where to look next: `compiler/lower/nest.py` (uses it for each step), `compiler/lower/finish.py` (makes the loops final).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


class CannotLower(Exception):
    """The region cannot be expressed as one kernel. `reason` is one clause for people, such as "no rule for aten.sort"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Loop:
    """One loop of constant size. Once split or tied, `parts` are the loops that replace it (outermost first)."""

    __slots__ = ("parts", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: tuple[Loop, ...] = ()

    def leaves(self) -> list[Loop]:
        if not self.parts:
            return [self]
        return [leaf for part in self.parts for leaf in part.leaves()]


Dim = tuple[Loop, ...]


def extent(dim: Dim) -> int:
    return math.prod(loop.size for loop in dim)


def leaves(dims: Iterable[Dim]) -> list[Loop]:
    """Returns the loops that these dimensions consist of now, after all splits, in order."""
    return [leaf for dim in dims for loop in dim for leaf in loop.leaves()]


def tie(left: Dim, right: Dim) -> None:
    """Makes two dimensions of equal extent run over the same loops, splitting where their factors differ.

    Raises `CannotLower` if their sizes have no common split, such as 6 = 2 * 3 against 6 = 3 * 2.
    """
    if left == right:
        return
    a, b = leaves([left]), leaves([right])
    while a and b:
        x, y = a.pop(), b.pop()
        if x.parts or y.parts:  # split or tied since the lists were made
            a.extend(x.leaves())
            b.extend(y.leaves())
            continue
        if x is y:
            continue
        if x.size == y.size:
            y.parts = (x,)
        elif x.size % y.size == 0:
            a.append(_split(x, y))
        elif y.size % x.size == 0:
            b.append(_split(y, x))
        else:
            raise CannotLower(f"dimensions factor differently ({x.size} and {y.size})")
    if a or b:
        raise CannotLower("dimensions of different size meet")


def _split(loop: Loop, inner: Loop) -> Loop:
    """Splits `loop` so that its inner part is `inner`; returns the outer part."""
    outer = Loop(loop.size // inner.size)
    loop.parts = (outer, inner)
    return outer


def regroup(dims: Sequence[Dim], shape: Sequence[int]) -> tuple[Dim, ...]:
    """Returns the loops of `dims`, in order, as dimensions of the sizes in `shape` (a reshape). Raises `CannotLower`."""
    rest = leaves(dims)
    grouped: list[Dim] = []
    for size in reversed(shape):
        group: list[Loop] = []
        while size > 1:
            if not rest:
                raise CannotLower("reshape to another number of elements")
            loop = rest.pop()
            if size % loop.size == 0:
                size //= loop.size
            elif loop.size % size == 0:
                outer, inner = Loop(loop.size // size), Loop(size)
                loop.parts = (outer, inner)
                rest.append(outer)
                loop, size = inner, 1
            else:
                raise CannotLower(f"reshape cuts a dimension of {loop.size} at {size}")
            group.append(loop)
        grouped.append(tuple(reversed(group)))
    if rest:
        raise CannotLower("reshape to another number of elements")
    return tuple(reversed(grouped))
