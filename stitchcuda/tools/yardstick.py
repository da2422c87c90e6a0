"""The reference's own error, looked at where an output's scale would hide it: by magnitude and by slice.

A mask of -1e9 or one outlier makes every error in the values beside it small against the output's scale, and a row that is a
thousandth of the others makes its own loss small against their errors. So errors are also measured per magnitude class (an
octave of |exact|, counted down from the largest) and per slice (one index of one axis, a row, a plane). Pure functions on CPU
tensors that make no verdict. Where to look next: `bound.py`.
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


@dataclass
class Differences:
    """One output against float64: absolute errors and magnitudes, zero where either is not finite."""

    off: torch.Tensor
    size: torch.Tensor
    scale: float                           # largest magnitude

    @cached_property
    def squares(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(off, size) squared: what norms of slices are sums of."""
        return self.off.square(), self.size.square()

    def worst(self) -> float:
        return float(self.off.max()) if self.off.numel() else 0.0

    def norm(self) -> float:
        return float(self.off.norm()) if self.off.numel() else 0.0

    def size_norm(self) -> float:
        return float(self.size.norm()) if self.size.numel() else 0.0


def differences(given: torch.Tensor, exact: torch.Tensor) -> Differences:
    """|given - exact| and |exact| in float64, elementwise."""
    wide = torch.complex128 if exact.dtype.is_complex else torch.float64
    true, seen = exact.to(wide), given.to(wide)
    off, size = (seen - true).abs(), true.abs()
    if not bool(torch.isfinite(off.sum())):  # one pass instead of two masks for the usual output
        lost = ~(torch.isfinite(true) & torch.isfinite(seen))
        off, size = off.masked_fill(lost, 0.0), size.masked_fill(lost, 0.0)
    return Differences(off, size, float(size.max()) if size.numel() else 0.0)


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
    if found.scale == 0.0:
        return counts, errors
    which = classes(found.size, found.scale).flatten()
    counts += torch.bincount(which, minlength=CLASSES)
    counts[-1] -= int((found.size == 0).sum())
    excess = (found.off - rounding * found.size).clamp_(min=0.0).flatten()
    return counts, errors.scatter_reduce_(0, which, excess, "amax") / found.scale


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


def slice_norms(squares: torch.Tensor, kept: tuple[int, ...]) -> torch.Tensor:
    """Euclidean norms of the slices indexed by the axes `kept`, in row-major order, from the squares of all elements."""
    rest = [axis for axis in range(squares.dim()) if axis not in kept]
    return squares.sum(dim=rest).sqrt_().flatten()


def typical_slice(found: Differences) -> float:
    """The relative error in norm of the median slice, for the worst way to cut: what a slice may have by nature."""
    typical = 0.0
    for _, kept in partitions(found.off.shape):
        errors, sizes = (slice_norms(squares, kept) for squares in found.squares)
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


def spread(squares: torch.Tensor, kept: tuple[int, ...]) -> torch.Tensor:
    """For every slice, whether enough elements carry its norm for its error to be more than luck."""
    total, peaked = slice_norms(squares, kept) ** 2, slice_norms(squares.square(), kept)
    return (peaked > 0) & (total >= math.sqrt(_SPREAD) * peaked)
