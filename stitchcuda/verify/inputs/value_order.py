"""What the places of a tensor's values mean, told from the values: are they in order, and which may change places?

What is in order (bin edges, offsets, sorted ids, lengths that fall) must stay so: programs search in it. An integer may be an
index, and one out of range ends a CUDA context with all that its process holds: integers change places only along an axis on
which all values look as if they had one range. Large tensors are told by a sample. Pure functions; they change nothing.
Where to look next: `verify/inputs/variants.py` and `verify/inputs/timed_contents.py`, which rearrange.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LINES, _PLACES = 64, 4096                 # how many lines along an axis are looked at, and how many values of each
_LONG, _MANY = 8, 20                       # a line so long, or so many lines, are not in order by chance
_PART = 0.25                               # of long lines in order: of a list of edges one row is
_OUTER = 0.25                              # of a line's range at each end: places that keep to it have a range of their own
_VALUES = (16, 8)                          # of each place, or of neighbours together, to tell; better so many


def is_ordered(tensor: Tensor) -> bool:
    """Whether values rise or fall along an axis."""
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
    """The longest axis along which values may change places; None where each place seems to have a range of its own."""
    for axis in sorted(range(tensor.dim()), key=lambda dimension: -tensor.shape[dimension]):
        lines = _lines(tensor, axis)
        low, high = lines.aminmax(dim=1, keepdim=True)
        varied = (high > low).flatten()
        if bool(varied.any()) and _one_range(((lines - low) / (high - low))[varied]):
            return axis
    return None


def _one_range(lines: Tensor) -> bool:
    """Whether the values at every place, relative to their line's range, reach into its lower and its upper part."""
    count, length = lines.shape
    beside = next((-(-values // count) for values in _VALUES if length // -(-values // count) >= 2), 0)
    if not beside:
        return False
    places = lines[:, : length - length % beside].reshape(count, -1, beside)
    low, high = places.amin((0, 2)), places.amax((0, 2))
    return bool((low <= 1 - _OUTER).all() and (high >= _OUTER).all())


def _lines(tensor: Tensor, axis: int) -> Tensor:
    """Lines along an axis as rows, on the CPU; of many, or of long ones, a sample that is the same every time."""
    rows = tensor.detach().movedim(axis, -1)
    rows = rows[..., :: max(1, rows.shape[-1] // _PLACES)]
    others = rows.shape[:-1]
    count = others.numel()
    if count > _LINES:
        chosen = torch.randint(count, (_LINES,), generator=torch.Generator().manual_seed(0))
        return rows[torch.unravel_index(chosen.to(rows.device), others)].double().cpu()
    return rows.reshape(count, -1).double().cpu()
