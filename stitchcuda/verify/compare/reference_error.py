"""The reference's own error, looked at where an output's scale would hide it: by magnitude and by slice.

A mask of -1e9 or one outlier makes every error in the values beside it small against the output's scale, and a row that is a
thousandth of the others makes its own loss small against their errors. So errors are also measured per magnitude class (an
octave of |exact|, counted down from the largest) and per slice (one index of one axis, a row, a plane). Pure functions on CPU
tensors that make no verdict. Where to look next: `verify/compare/bound.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

CLASSES = 48                               # octaves below the largest element; what is smaller, and zero, is in the last
SMALLEST_SLICE = 16                        # elements: the error of fewer is small by luck too often
_NEIGHBOURS = 8                            # slices of the next larger and smaller norms, whose errors count as a slice's own
_SPREAD = 8.0                              # elements that must carry a slice's norm for it to be looked at


class Magnitudes:
    """Absolute values, and what is summed over them: looked at by one pass each, once."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values               # float64, none below zero
        self._norms: dict[tuple[int, ...], torch.Tensor] = {}
        self._fourth: dict[tuple[int, ...], torch.Tensor] = {}

    @cached_property
    def largest(self) -> float:
        return float(self.values.max()) if self.values.numel() else 0.0

    @cached_property
    def norm(self) -> float:
        return float(self.values.norm()) if self.values.numel() else 0.0

    def slices(self, kept: tuple[int, ...]) -> torch.Tensor:
        """Euclidean norms of the slices indexed by the axes `kept`, in row-major order."""
        self._look()
        return self._norms[kept]

    def spread(self, kept: tuple[int, ...]) -> torch.Tensor:
        """For every slice, whether enough elements carry its norm for its error to be more than luck."""
        if kept not in self._fourth:
            fourth = self.values.square().square_()
            self._fourth = {partition: _slice_norms(fourth, partition) for _, partition in partitions(self.values.shape)}
        total, peaked = self.slices(kept) ** 2, self._fourth[kept]
        return (peaked > 0) & (total >= math.sqrt(_SPREAD) * peaked)

    def carried(self) -> float:
        """How many elements carry the norm."""
        return self.norm**4 / max(1e-300, float(self.values.square().square_().sum()))

    def _look(self) -> None:
        if not self._norms:
            squares = self.values.square()
            self._norms = {kept: _slice_norms(squares, kept) for _, kept in partitions(self.values.shape)}


class Float64Output:
    """A float64 result, with what follows from it alone: many answers are compared with one."""

    def __init__(self, exact: torch.Tensor) -> None:
        self.exact = exact

    @cached_property
    def size(self) -> Magnitudes:
        """Magnitudes, of an output that is finite everywhere."""
        return Magnitudes(self._wide.abs())

    @cached_property
    def _wide(self) -> torch.Tensor:
        return self.exact.to(torch.complex128 if self.exact.dtype.is_complex else torch.float64)

    def against(self, given: torch.Tensor) -> Differences:
        """How far `given` is from it."""
        true = self._wide
        seen = given.to(true.dtype, copy=True)
        off = seen.sub_(true).abs_() if not true.dtype.is_complex else seen.sub_(true).abs()
        if bool(torch.isfinite(off.sum())):  # one pass instead of two masks for the usual output
            return Differences(Magnitudes(off), self.size)
        lost = ~(torch.isfinite(true) & torch.isfinite(given.to(true.dtype)))
        return Differences(Magnitudes(off.masked_fill_(lost, 0.0)), Magnitudes(true.abs().masked_fill_(lost, 0.0)))


@dataclass
class Differences:
    """One output against float64: absolute errors and magnitudes, zero where either is not finite."""

    off: Magnitudes
    size: Magnitudes


def as_float64_output(exact: torch.Tensor | Float64Output) -> Float64Output:
    return exact if isinstance(exact, Float64Output) else Float64Output(exact)


def differences(given: torch.Tensor, exact: torch.Tensor | Float64Output) -> Differences:
    """|given - exact| and |exact| in float64, elementwise."""
    return as_float64_output(exact).against(given)


def classes(size: torch.Tensor, scale: float) -> torch.Tensor:
    """The class of each element: 0 for the octave of `scale`, 1 for the one below, up to `CLASSES` - 1 (and zeros)."""
    top = int(torch.tensor(scale, dtype=torch.float64).view(torch.int64)) >> 52
    exponents = size.contiguous().view(torch.int64) >> 52
    return exponents.neg_().add_(top).clamp_(0, CLASSES - 1)


def by_class(found: Differences, rounding: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(elements per class, zeros left out; largest error per class relative to the scale).

    `rounding`: relative error that every element may have from being written down; only what exceeds it counts as error, or
    the rounding of a 16-bit value would excuse the loss of a value a thousand times smaller.
    """
    counts = torch.zeros(CLASSES, dtype=torch.int64)
    errors = torch.zeros(CLASSES, dtype=torch.float64)
    scale, size = found.size.largest, found.size.values
    if scale == 0.0:
        return counts, errors
    which = classes(size, scale).flatten()
    counts += torch.bincount(which, minlength=CLASSES)
    counts[-1] -= int((size == 0).sum())
    excess = torch.sub(found.off.values, size, alpha=rounding).clamp_(min=0.0).flatten()
    return counts, errors.scatter_reduce_(0, which, excess, "amax") / scale


def partitions(shape: torch.Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(what a slice is called, the axes that index it) for every way to cut an output of `shape` into slices."""
    total = shape.numel()
    axes = [axis for axis, length in enumerate(shape) if length > 1]
    for axis in axes:
        if len(axes) > 1 and total // shape[axis] >= SMALLEST_SLICE:
            yield f"index {{}} of axis {axis}", (axis,)
    if len(axes) > 2 and shape[axes[-1]] >= SMALLEST_SLICE:
        yield "row {}", tuple(axes[:-1])
    if len(axes) > 3:
        yield "plane {}", tuple(axes[:2])


def _slice_norms(squares: torch.Tensor, kept: tuple[int, ...]) -> torch.Tensor:
    """From the squares of all elements."""
    rest = [axis for axis in range(squares.dim()) if axis not in kept]
    return squares.sum(dim=rest).sqrt_().flatten()


def typical_slice(found: Differences) -> float:
    """The relative error in norm of the median slice, for the worst way to cut: what a slice may have by nature."""
    typical = 0.0
    for _, kept in partitions(found.off.values.shape):
        errors, sizes = found.off.slices(kept), found.size.slices(kept)
        there = sizes > 0
        if bool(there.any()):
            typical = max(typical, float((errors[there] / sizes[there]).median()))
    return typical


def around(errors: torch.Tensor, sizes: torch.Tensor, neighbours: int = _NEIGHBOURS) -> torch.Tensor:
    """The largest relative error among a slice and those of the next larger and smaller norms, for every slice."""
    relative = torch.where(sizes > 0, errors / sizes.clamp(min=1e-300), torch.zeros_like(errors))
    order = sizes.argsort()
    window = 2 * neighbours + 1
    padded = torch.nn.functional.pad(relative[order][None, None], (neighbours, neighbours))
    smooth = torch.nn.functional.max_pool1d(padded, window, stride=1).flatten()
    return torch.empty_like(relative).scatter_(0, order, smooth)
