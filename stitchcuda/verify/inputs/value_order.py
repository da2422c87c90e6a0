"""Tells from a tensor's values whether they are sorted, and along which axis they may be reordered.

Sorted values (bin edges, offsets, ids, falling lengths) must stay sorted, because programs search in them. An integer may
be an index, and an index out of range ends the CUDA context of its process: integers may be reordered only along an axis on
which all values seem to have one range. Of large tensors a sample decides. Pure functions that change nothing.
Where to look next: `verify/inputs/variants.py` and `verify/inputs/timed_contents.py` (who reorders).
"""

from __future__ import annotations

import torch
from torch import Tensor

_LINES, _PLACES = 64, 4096                 # how many lines along an axis are sampled, and how many values of each
_LONG, _MANY = 8, 20                       # a line of 8 values, or 20 lines, are not sorted by chance
_PART = 0.25                               # this share of long lines must be sorted: of a graph's edge list only one row is
_OUTER = 0.25                              # every position needs values in the lower and in the upper quarter of the range
_VALUES = (16, 8)                          # values per position (or group of neighbours) to decide by: 16 if there are, else 8


def is_ordered(tensor: Tensor) -> bool:
    """Whether values rise or fall along an axis. False for booleans and complex numbers."""
    if tensor.dtype is torch.bool or tensor.dtype.is_complex or tensor.numel() < 2:
        return False
    for axis, length in enumerate(tensor.shape):
        if length < 2:
            continue
        steps = _lines(tensor, axis).diff(dim=1)
        rising, falling, level = ((steps >= 0).all(1), (steps <= 0).all(1), (steps == 0).all(1))
        if axis == tensor.dim() - 1 and bool(rising.all()):
            return True
        for along in (rising & ~level, falling & ~level):
            count, total = int(along.sum()), len(along)
            if count == total >= _MANY or (length >= _LONG and count >= max(1, _PART * total)):
                return True
    return False


def find_interchangeable_axis(tensor: Tensor) -> int | None:
    """The longest axis along which values may be reordered; None if each position seems to have its own range of values."""
    for axis in sorted(range(tensor.dim()), key=lambda dimension: -tensor.shape[dimension]):
        lines = _lines(tensor, axis)
        low, high = lines.aminmax(dim=1, keepdim=True)
        varied = (high > low).flatten()
        if bool(varied.any()) and _one_range(((lines - low) / (high - low))[varied]):
            return axis
    return None


def _one_range(lines: Tensor) -> bool:
    """Whether the values at every position reach into the lower and the upper `_OUTER` of the range. `lines` are scaled to
    [0, 1]."""
    count, length = lines.shape
    beside = next((-(-values // count) for values in _VALUES if length // -(-values // count) >= 2), 0)
    if not beside:
        return False
    places = lines[:, : length - length % beside].reshape(count, -1, beside)
    low, high = places.amin((0, 2)), places.amax((0, 2))
    return bool((low <= 1 - _OUTER).all() and (high >= _OUTER).all())


def _lines(tensor: Tensor, axis: int) -> Tensor:
    """The lines along an axis as rows of a CPU tensor in float64: at most `_LINES` rows, the same ones every time."""
    rows = tensor.detach().movedim(axis, -1)
    rows = rows[..., :: max(1, rows.shape[-1] // _PLACES)]
    others = rows.shape[:-1]
    count = others.numel()
    if count > _LINES:
        chosen = torch.randint(count, (_LINES,), generator=torch.Generator().manual_seed(0))
        return rows[torch.unravel_index(chosen.to(rows.device), others)].double().cpu()
    return rows.reshape(count, -1).double().cpu()
