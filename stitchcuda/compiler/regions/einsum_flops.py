"""Counts the fewest flops of an einsum: those of the cheapest order of contraction, whatever order torch takes.

Two per multiply-add of each contraction that sums over an index. Products without a sum count as nothing: they may be part of
the next contraction's loads. So no order of pairwise contractions has fewer, nor has one loop nest over all operands.
Symmetries and zeros of the operands are not known here.

Where to look next: `compiler/regions/operator_work.py` (other operators), `compiler/regions/floor.py` (makes times from it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_OPERANDS = 8
"""Operands up to which all orders are tried."""


def least_einsum_flops(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """Returns the flops of the cheapest order; 0, the only bound that is known, for more than MOST_OPERANDS operands."""
    if len(shapes) > MOST_OPERANDS:
        return 0
    operands, result, sizes = _indices(equation.replace(" ", ""), shapes)
    every = (1 << len(operands)) - 1
    inside: list[frozenset[str]] = [frozenset()] * (every + 1)  # by set of operands: indices of any of them
    for group in range(1, every + 1):
        lowest = group & -group
        inside[group] = inside[group ^ lowest] | operands[lowest.bit_length() - 1]
    left = [inside[group] & (inside[every ^ group] | result) for group in range(every + 1)]  # what its product still has
    least = [0] * (every + 1)
    for group in range(1, every + 1):
        if group & (group - 1):            # two operands or more
            least[group] = min(
                least[part] + least[group ^ part] + _contraction(left[part] | left[group ^ part], left[group], sizes)
                for part in _halves(group)
            )
    return least[every]


def _contraction(over: frozenset[str], kept: frozenset[str], sizes: dict[str, int]) -> int:
    return 2 * math.prod(sizes[index] for index in over) if over - kept else 0


def _halves(group: int) -> list[int]:
    """Returns one part of each way to divide a set in two."""
    lowest, parts, part = group & -group, [], (group - 1) & group
    while part:
        if part & lowest:
            parts.append(part)
        part = (part - 1) & group
    return parts


def _indices(
    equation: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[frozenset[str]], frozenset[str], dict[str, int]]:
    """Returns the indices of each operand and of the result, and all sizes. Dimensions of `...` are numbered from the last. An
    index of size 1 that others broadcast is none of its operand's."""
    given, arrow, wanted = equation.partition("->")
    named = [_names(letters, len(shape)) for letters, shape in zip(given.split(","), shapes, strict=True)]
    sizes: dict[str, int] = {}
    for names, shape in zip(named, shapes, strict=True):
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1)) if size else 0
    operands = [
        frozenset(name for name, size in zip(names, shape, strict=True) if size == sizes[name])
        for names, shape in zip(named, shapes, strict=True)
    ]
    if arrow:
        result = {name for name in sizes if name in wanted or (len(name) > 1 and "..." in wanted)}
    else:
        flat = given.replace("...", "")
        result = {name for name in sizes if len(name) > 1 or flat.count(name) == 1}
    return operands, frozenset(result), sizes


def _names(letters: str, dimensions: int) -> list[str]:
    before, dots, after = letters.partition("...")
    hidden = dimensions - len(before) - len(after) if dots else 0
    return [*before, *(f"...{place}" for place in range(hidden, 0, -1)), *after]
