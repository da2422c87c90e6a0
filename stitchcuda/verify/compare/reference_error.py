"""Measures the error of an output against float64: as a whole, by magnitude of its elements, and by slice.

Next to a mask of -1e9 or one outlier every error is small against the output's scale, and the loss of a row a thousand times
smaller than the others is small against their errors. So errors are also measured per magnitude class (an octave of |exact|,
counted down from the largest) and per slice (one index of an axis, a row, a plane). An output is read a part at a time, so that
float64 copies of a gigabyte of numbers never exist at once; the outputs may lie on the host while a GPU computes. It decides
nothing. Where to look next: `verify/compare/bound.py` (who decides).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

CLASSES = 48                               # octaves below the largest element; the last holds smaller ones and zeros too
SMALLEST_SLICE = 16                        # elements: the error of a smaller slice is too often small by luck
_NEIGHBOURS = 8                            # slices of the next larger and smaller norms that count as similar
_ROWS = 4096
_SPREAD = 8.0                              # a slice is judged only if at least so many elements carry its norm
_PART = 2**25                              # elements that are read at a time: some 1.5 GiB with all that is computed of them

Axes = tuple[int, ...]


class OutputPart(NamedTuple):
    """A part of an output: where its elements begin in row-major order, its place, absolute errors and magnitudes (float64).
    Both are zero where either output is not finite."""

    start: int
    place: tuple[slice, ...]
    error: torch.Tensor
    size: torch.Tensor


class Sums:
    """Of absolute values, read a part at a time: the largest, the sum of squares, and that of each slice."""

    def __init__(self, shape: torch.Size, device: torch.device) -> None:
        self._largest = torch.zeros((), dtype=torch.float64, device=device)
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._by_slice = {kept: _zeros(shape, kept, device) for _, kept in partitions(shape)}

    def add(self, values: torch.Tensor, place: tuple[slice, ...]) -> None:
        self._largest = torch.maximum(self._largest, values.max())
        squares = values.square()
        self._squares += squares.sum()
        for kept, sums in self._by_slice.items():
            sums[tuple(place[axis] for axis in kept)] += _sum_slices(squares, kept)

    @property
    def largest(self) -> float:
        return float(self._largest)

    @property
    def norm(self) -> float:
        return math.sqrt(float(self._squares))

    def slices(self, kept: Axes) -> torch.Tensor:
        """Euclidean norms of the slices indexed by the axes `kept`, in row-major order."""
        return self._by_slice[kept].sqrt().flatten()


class Differences:
    """One output compared with float64: absolute errors and magnitudes of the float64 output, as sums and part by part.

    `device`: where it computes; by default where `exact` is. `forgiven`: the relative error of each element that is no error.
    """

    def __init__(
        self, given: torch.Tensor, exact: torch.Tensor, *, device: torch.device | str | None = None, forgiven: float = 0.0
    ) -> None:
        self._given, self._exact, self._forgiven = given, exact, forgiven
        self.device = torch.device(device) if device is not None else exact.device
        self.shape = exact.shape
        self._only: OutputPart | None = None     # where the output is small enough to be one
        self.error, self.size = Sums(self.shape, self.device), Sums(self.shape, self.device)
        for part in self.parts():
            self.error.add(part.error, part.place)
            self.size.add(part.size, part.place)

    def parts(self) -> Iterator[OutputPart]:
        """Yields all elements, part by part in row-major order."""
        if self._only is not None:
            yield self._only
            return
        for start, place in _places(self.shape):
            part = self._read(start, place)
            if part.size.numel() == self.shape.numel():
                self._only = part
            yield part

    def _read(self, start: int, place: tuple[slice, ...]) -> OutputPart:
        wide = torch.complex128 if self._exact.dtype.is_complex else torch.float64
        given, true = (tensor[place].to(self.device, wide) for tensor in (self._given, self._exact))
        error, size = (given - true).abs(), true.abs()
        if not bool(torch.isfinite(error.sum())):          # one pass instead of two masks for the usual output
            lost = ~(torch.isfinite(given) & torch.isfinite(true))
            error, size = error.masked_fill_(lost, 0.0), size.masked_fill_(lost, 0.0)
        if self._forgiven:
            error = error.sub_(size, alpha=self._forgiven).clamp_(min=0.0)
        return OutputPart(start, place, error, size)

    def spread(self, kept: Axes) -> torch.Tensor:
        """For each slice, whether at least `_SPREAD` elements carry its norm, so that its error is not a matter of luck."""
        peaked = _zeros(self.shape, kept, self.device)
        for part in self.parts():
            peaked[tuple(part.place[axis] for axis in kept)] += _sum_slices(part.size.square().square_(), kept)
        peaked = peaked.sqrt_().flatten()
        return (peaked > 0) & (self.size.slices(kept) ** 2 >= math.sqrt(_SPREAD) * peaked)

    def carried(self) -> float:
        """How many elements carry the float64 output's norm: n if all are equal, 1 if one dominates (the participation
        ratio)."""
        fourth = sum(float(part.size.square().square_().sum()) for part in self.parts())
        return self.size.norm**4 / max(1e-300, fourth)

    def worst(self, weigh: Callable[[OutputPart], torch.Tensor], above: float) -> tuple[int, float, int]:
        """Returns (position in row-major order, value) of the largest of the values that `weigh` makes of each part, and how
        many are larger than `above`."""
        place, worst, count = 0, -math.inf, 0
        for part in self.parts():
            values = weigh(part)
            count += int((values > above).sum())
            if (largest := float(values.max())) > worst:
                place, worst = part.start + int(values.argmax()), largest
        return place, worst, count

    def by_class(self, rounding: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (elements per class without zeros, largest error per class relative to the scale).

        `rounding`: the relative error that each element may have from its final rounding. Only what exceeds it counts as error;
        else the rounding of a 16-bit value would excuse the loss of a value a thousand times smaller.
        """
        counts = torch.zeros(CLASSES, dtype=torch.int64, device=self.device)
        errors = torch.zeros(CLASSES, dtype=torch.float64, device=self.device)
        if (scale := self.size.largest) == 0.0:
            return counts, errors
        for part in self.parts():
            which = classes(part.size, scale).flatten()
            counts += torch.bincount(which, minlength=CLASSES)
            counts[-1] -= (part.size == 0).sum()
            excess = torch.sub(part.error, part.size, alpha=rounding).clamp_(min=0.0).flatten()
            rows = max(1, min(_ROWS, which.numel() // _ROWS))  # each with classes of its own: else threads of a GPU wait
            whole = which.numel() - which.numel() % rows
            by_row = errors.new_zeros(rows, CLASSES)
            by_row.scatter_reduce_(1, which[:whole].view(rows, -1), excess[:whole].view(rows, -1), "amax")
            errors = torch.maximum(errors, by_row.amax(0)).scatter_reduce_(0, which[whole:], excess[whole:], "amax")
        return counts, errors / scale


def classes(size: torch.Tensor, scale: float) -> torch.Tensor:
    """The class of each element: 0 for the octave of `scale`, 1 for the one below, up to `CLASSES` - 1 (and zeros)."""
    top = int(torch.tensor(scale, dtype=torch.float64).view(torch.int64)) >> 52
    exponents = size.contiguous().view(torch.int64) >> 52
    return exponents.neg_().add_(top).clamp_(0, CLASSES - 1)


def partitions(shape: torch.Size) -> Iterator[tuple[str, Axes]]:
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


def _places(shape: torch.Size) -> Iterator[tuple[int, tuple[slice, ...]]]:
    """Yields (the position of its first element in row-major order, its place) of parts of at most `_PART` elements each, whose
    elements follow each other in that order."""
    if shape.numel() <= _PART:
        if shape.numel():
            yield 0, tuple(slice(0, length) for length in shape)
        return
    axis, inner = 0, shape.numel() // shape[0]
    while inner > _PART:                   # until one index of the axis is small enough
        axis += 1
        inner //= shape[axis]
    rest, step = tuple(slice(0, length) for length in shape[axis + 1 :]), _PART // inner
    for number, index in enumerate(itertools.product(*map(range, shape[:axis]))):
        for start in range(0, shape[axis], step):
            before = (number * shape[axis] + start) * inner
            yield before, (*(slice(i, i + 1) for i in index), slice(start, min(start + step, shape[axis])), *rest)


def _zeros(shape: torch.Size, kept: Axes, device: torch.device) -> torch.Tensor:
    """A number for each slice."""
    return torch.zeros([shape[axis] for axis in kept], dtype=torch.float64, device=device)


def _sum_slices(values: torch.Tensor, kept: Axes) -> torch.Tensor:
    rest = [axis for axis in range(values.dim()) if axis not in kept]
    return values.sum(dim=rest) if rest else values


def typical_slice(found: Differences) -> float:
    """The relative error in norm of the median slice, for the way to slice in which it is largest."""
    typical = 0.0
    for _, kept in partitions(found.shape):
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
