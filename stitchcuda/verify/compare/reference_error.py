"""Measures the error of an output against float64: as a whole, by magnitude of its elements, and by slice.

Next to a mask of -1e9 or one outlier every error is small against the output's scale, and the loss of a row a thousand times
smaller than the others is small against their errors. So errors are also measured per magnitude class (an octave of |exact|,
counted down from the largest) and per slice (one index of an axis, a row, a plane). Pure functions on
tensors of one device; they decide nothing.
Where to look next: `verify/compare/bound.py` (who decides).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

CLASSES = 48                               # octaves below the largest element; the last holds smaller ones and zeros too
SMALLEST_SLICE = 16                        # elements: the error of a smaller slice is too often small by luck
_NEIGHBOURS = 8                            # slices of the next larger and smaller norms that count as similar
_ROWS = 4096
_SPREAD = 8.0                              # a slice is judged only if at least so many elements carry its norm


class Magnitudes:
    """Absolute values (float64), with their maximum and norms, each computed when first asked for."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
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
        if not self._norms:
            squares = self.values.square()
            self._norms = {partition: _slice_norms(squares, partition) for _, partition in partitions(self.values.shape)}
        return self._norms[kept]

    def spread(self, kept: tuple[int, ...]) -> torch.Tensor:
        """For each slice, whether at least `_SPREAD` elements carry its norm, so that its error is not a matter of luck."""
        if kept not in self._fourth:
            fourth = self.values.square().square_()
            self._fourth = {partition: _slice_norms(fourth, partition) for _, partition in partitions(self.values.shape)}
        total, peaked = self.slices(kept) ** 2, self._fourth[kept]
        return (peaked > 0) & (total >= math.sqrt(_SPREAD) * peaked)

    def carried(self) -> float:
        """How many elements carry the norm: n if all are equal, 1 if one dominates (the participation ratio)."""
        return self.norm**4 / max(1e-300, float(self.values.square().square_().sum()))


class Float64Output:
    """A float64 output with its magnitudes, each computed when first asked for."""

    def __init__(self, exact: torch.Tensor) -> None:
        self.exact = exact

    @cached_property
    def size(self) -> Magnitudes:
        """Its magnitudes, if it is finite everywhere."""
        return Magnitudes(self._wide.abs())

    @cached_property
    def _wide(self) -> torch.Tensor:
        return self.exact.to(torch.complex128 if self.exact.dtype.is_complex else torch.float64)

    def against(self, given: torch.Tensor) -> Differences:
        """|given - exact| and |exact| in float64, elementwise."""
        true = self._wide
        seen = given.to(true.dtype, copy=True)
        off = seen.sub_(true).abs_() if not true.dtype.is_complex else seen.sub_(true).abs()
        if bool(torch.isfinite(off.sum())):  # one pass instead of two masks for the usual output
            return Differences(Magnitudes(off), self.size)
        lost = ~(torch.isfinite(true) & torch.isfinite(given.to(true.dtype)))
        return Differences(Magnitudes(off.masked_fill_(lost, 0.0)), Magnitudes(true.abs().masked_fill_(lost, 0.0)))


@dataclass
class Differences:
    """One output compared with float64. Errors and magnitudes are zero where either output is not finite."""

    error: Magnitudes                      # absolute errors
    size: Magnitudes                       # magnitudes of the float64 output


def classes(size: torch.Tensor, scale: float) -> torch.Tensor:
    """The class of each element: 0 for the octave of `scale`, 1 for the one below, up to `CLASSES` - 1 (and zeros)."""
    top = int(torch.tensor(scale, dtype=torch.float64).view(torch.int64)) >> 52
    exponents = size.contiguous().view(torch.int64) >> 52
    return exponents.neg_().add_(top).clamp_(0, CLASSES - 1)


def by_class(found: Differences, rounding: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (elements per class without zeros, largest error per class relative to the scale).

    `rounding`: the relative error that each element may have from its final rounding. Only what exceeds it counts as error;
    else the rounding of a 16-bit value would excuse the loss of a value a thousand times smaller.
    """
    device = found.size.values.device
    counts = torch.zeros(CLASSES, dtype=torch.int64, device=device)
    errors = torch.zeros(CLASSES, dtype=torch.float64, device=device)
    scale, size = found.size.largest, found.size.values
    if scale == 0.0:
        return counts, errors
    which = classes(size, scale).flatten()
    counts += torch.bincount(which, minlength=CLASSES)
    counts[-1] -= int((size == 0).sum())
    excess = torch.sub(found.error.values, size, alpha=rounding).clamp_(min=0.0).flatten()
    rows = max(1, min(_ROWS, which.numel() // _ROWS))  # each with classes of its own: else threads of a GPU wait
    whole = which.numel() - which.numel() % rows
    by_row = errors.new_zeros(rows, CLASSES)
    by_row.scatter_reduce_(1, which[:whole].view(rows, -1), excess[:whole].view(rows, -1), "amax")
    errors = by_row.amax(0)
    return counts, errors.scatter_reduce_(0, which[whole:], excess[whole:], "amax") / scale


def partitions(shape: torch.Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields (how a slice is named in a message, the axes that index it) for each way to cut an output into slices."""
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
    """The square roots of the sums over each slice, in row-major order."""
    rest = [axis for axis in range(squares.dim()) if axis not in kept]
    return squares.sum(dim=rest).sqrt_().flatten()


def typical_slice(found: Differences) -> float:
    """The relative error in norm of the median slice, for the way to slice in which it is largest."""
    typical = 0.0
    for _, kept in partitions(found.error.values.shape):
        errors, sizes = found.error.slices(kept), found.size.slices(kept)
        there = sizes > 0
        if bool(there.any()):
            typical = max(typical, float((errors[there] / sizes[there]).median()))
    return typical


def around(errors: torch.Tensor, sizes: torch.Tensor, neighbours: int = _NEIGHBOURS) -> torch.Tensor:
    """For each slice, the largest relative error among it and `neighbours` slices each of the next larger and smaller norms."""
    relative = torch.where(sizes > 0, errors / sizes.clamp(min=1e-300), torch.zeros_like(errors))
    order = sizes.argsort()
    window = 2 * neighbours + 1
    padded = torch.nn.functional.pad(relative[order][None, None], (neighbours, neighbours))
    smooth = torch.nn.functional.max_pool1d(padded, window, stride=1).flatten()
    return torch.empty_like(relative).scatter_(0, order, smooth)
