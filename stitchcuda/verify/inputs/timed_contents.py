"""Changes a secret input set for each timed call by a secret number, the turn, so that no content comes twice.

A turn rolls a tensor along two axes and scales floats by a number in (0.5, 1]: every element changes, while the layout and,
for ordinary data, the domain stay. Integers, each of which may be an index, are only reordered, along an axis on which all seem
to have one range. Where zeros have their places, as in a triangular matrix, only the other elements are rolled. Sorted values,
masks, labels and tensors that share memory are not changed. Workers and the reference apply the same operators on the same
device. Where to look next: `verify/inputs/value_order.py` (what is sorted),
`verify/timing/timed_calls.py` (the calls), `verify/inputs/timed_inputs.py` (the judge's side).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stitchcuda.verify.inputs.value_order import find_interchangeable_axis, is_ordered

Moving = Sequence[Sequence[int]]
"""For each tensor that is rolled, its position and the axes; none if its zeros stay and all else is rolled as one line."""

_SAMPLE = 65_536                           # elements of a tensor that are looked at for distinct values
_FEW = 8                                   # with at most so many distinct values a tensor is a mask, labels or constant
_WHOLE, _PLACES = 2**18, 2**16             # up to so many elements a tensor is compared whole, else so many elements of it
_SHORT = 2**14                             # a shorter axis of integers is permuted: rolling would soon repeat a content
_STEPS = 4096                              # number of distinct scales
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
_MOVED = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# A turn is multiplied by one of these, chosen by position: inputs rolled alike would keep their pairs of elements.
_MULTIPLIERS = (1, 40503, 62617, 24593, 51437, 15485863)


def find_movable(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Finds the tensors that may be rolled and scaled without losing their meaning; gives [position, axis, ...] of each."""
    owners: dict[int, int] = {}
    for tensor in tensors:
        owners[_storage(tensor)] = owners.get(_storage(tensor), 0) + 1
    return [
        [position, *axes]
        for position, tensor in enumerate(tensors)
        if tensor.dtype in _MOVED and owners[_storage(tensor)] == 1 and not _overlaps(tensor) and _is_plain_data(tensor)
        and (axes := _axes(tensor))
    ]  # fmt: skip


def order_matters(tensor: torch.Tensor) -> bool:
    """Whether its values are sorted, or integers: a note says that such a tensor was not changed."""
    return tensor.numel() > 1 and tensor.dtype in _MOVED and (tensor.dtype not in FLOATS or is_ordered(tensor))


def allocate_like(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Allocates tensors of the same layouts with undefined values; those that share memory do so again."""
    stores: dict[int, torch.UntypedStorage] = {}
    made = []
    for tensor in tensors:
        key = _storage(tensor)
        if key not in stores:
            size = tensor.untyped_storage().nbytes()
            stores[key] = torch.empty(size, dtype=torch.uint8, device=tensor.device).untyped_storage()
        blank = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.append(blank.set_(stores[key], tensor.storage_offset(), tensor.shape, tensor.stride()))
    return made


def refresh(
    targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], turn: int, moving: Moving, *, scaled: bool
) -> None:
    """Writes the sources' values, changed by `turn`, into `targets` (of `allocate_like`), in the way that `moving` says.

    Autograd's version counters of the targets do not change: a program cannot tell from them that the contents are new.
    """
    done: set[int] = set()
    rolled = {position: axes for position, *axes in moving}
    for position, (target, source) in enumerate(zip(targets, sources, strict=True)):
        if position in rolled:
            own = turn * _MULTIPLIERS[position % len(_MULTIPLIERS)] + position
            _move(target.data, source, own, rolled[position], scaled=scaled)
        elif _storage(source) not in done:
            done.add(_storage(source))
            _bytes(target).copy_(_bytes(source))


def sample(tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Returns the tensors; of one with over `_WHOLE` elements only `_PLACES` elements, at positions that follow from `seed`."""
    return [_sampled(tensor, seed + position) for position, tensor in enumerate(tensors)]


def is_rollable(tensor: torch.Tensor) -> bool:
    """Whether its values mean the same at other positions: a floating-point tensor that is not sorted and not expanded."""
    plain = tensor.is_floating_point() and tensor.dim() > 0 and tensor.numel() > 0 and not tensor.stride().count(0)
    return plain and not is_ordered(tensor)


def roll(tensors: list[torch.Tensor], may: list[bool], by: int) -> list[torch.Tensor]:
    """Returns copies in the same layout, rolled along their first axis where `may` is true, for calls that are not timed. What
    a call writes into them does not reach the next one."""
    made = allocate_like(tensors)
    refresh(made, tensors, 0, [], scaled=False)
    for new, tensor, rolls in zip(made, tensors, may, strict=True):
        if rolls and by:
            new.data.copy_(tensor.roll(by, 0))
    return made


def _sampled(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    if tensor.numel() <= _WHOLE:
        return tensor
    places = torch.randint(tensor.numel(), (_PLACES,), generator=torch.Generator().manual_seed(seed))
    return tensor.detach()[torch.unravel_index(places.to(tensor.device), tensor.shape)]


def _move(target: torch.Tensor, source: torch.Tensor, turn: int, axes: Sequence[int], *, scaled: bool) -> None:
    if source.dtype not in FLOATS and source.shape[axes[0]] <= _SHORT:
        order = torch.randperm(source.shape[axes[0]], generator=torch.Generator().manual_seed(turn))
        target.copy_(source.index_select(axes[0], order.to(source.device)))
        return
    scale = 1.0 - 0.5 * ((turn * 2654435761 >> 7) % _STEPS) / _STEPS
    shifts, rest = [], turn
    for axis in axes:
        rest, shift = divmod(rest, source.shape[axis])
        shifts.append((axis, shift))
    _roll(target, source, shifts)
    if not axes:
        places = source != 0
        values = source[places]
        target.masked_scatter_(places, values.roll(turn % max(1, len(values))))
    if scaled and source.dtype in FLOATS:
        target.mul_(scale)


def _roll(target: torch.Tensor, source: torch.Tensor, shifts: list[tuple[int, int]]) -> None:
    """Writes `torch.roll(source, …)` into `target`. `shifts`: (axis, number of places)."""
    if not shifts:
        target.copy_(source)
        return
    (dimension, shift), *rest = shifts
    stay = source.shape[dimension] - shift
    _roll(target.narrow(dimension, shift, stay), source.narrow(dimension, 0, stay), rest)
    if shift:
        _roll(target.narrow(dimension, 0, shift), source.narrow(dimension, stay, shift), rest)


def _axes(tensor: torch.Tensor) -> list[int]:
    """The axes to roll: the first (or the longest, if its length is 1) and the longest other one; for integers at most one."""
    if tensor.dtype not in FLOATS:
        axis = find_interchangeable_axis(tensor)
        return [] if axis is None else [axis]
    sizes = list(tensor.shape)
    first = 0 if sizes[0] > 1 else sizes.index(max(sizes))
    others = [axis for axis in range(len(sizes)) if axis != first and sizes[axis] > 1]
    return [first, max(others, key=lambda axis: sizes[axis])] if others else [first]


def _is_plain_data(tensor: torch.Tensor) -> bool:
    """Whether its values are finite, of more than `_FEW` kinds and not sorted, as far as a sample shows."""
    if tensor.numel() < 2:
        return False
    sample = tensor.detach()[tuple(slice(None, None, max(1, size // 64)) for size in tensor.shape)].reshape(-1)[:_SAMPLE]
    sample = sample.abs().cpu() if tensor.is_complex() else sample.cpu()
    if not bool(torch.isfinite(sample).all()) or len(torch.unique(sample)) <= min(_FEW, sample.numel() - 1):
        return False
    return not is_ordered(tensor)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr()) or id(tensor)
