"""Draws other integers and booleans for an input: values that get_inputs() never shows, but that an index may have too.

An index out of range ends the CUDA context of its process. So integers stay between 0 and the largest that is there, or the
last row of the tables that they are an index of, unless the reference only computes with them; sorted ones stay sorted, with
their ends; what names places to write to stays distinct. What is read by the host, such as a length, is left alone. Pure
functions on tensors, which call nothing.
Where to look next: `verify/reference/operator_uses.py` (how a reference uses its inputs), `verify/inputs/input_ranges.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stitchcuda.verify.inputs.reseeding import is_constant
from stitchcuda.verify.inputs.value_order import find_interchangeable_axis, is_ordered
from stitchcuda.verify.messages.shared_tensors import is_float8

SMALLEST = 8                               # elements: a smaller tensor is a setting of the call rather than data
_ENDS = 16                                 # one of so many elements gets the least value, one the largest, one 0
_ALIKE = 1 / 8                             # of the lines hold one value only
_IGNORED = 1 / 8                           # of the labels become the one that a loss leaves out
_MOST_KEYS = 2**24                         # random numbers for drawing distinct integers


@dataclass(frozen=True)
class IntegerUses:
    """How a reference uses its inputs, by their number (see `replace_numbered`), and its buffers of integers, by their name.

    `indices`: those that some operator other than arithmetic takes. `bounded`: of these, those that only come there through an
    operator that limits them, such as a remainder. `read`: those whose values the host reads. `places`: those that name places
    to write to. `ignored`: the label that a loss leaves out. `sizes`: the rows of the smallest table that an index is of, if
    all are known.
    """

    indices: frozenset[int | str] = frozenset()
    read: frozenset[int | str] = frozenset()
    places: frozenset[int | str] = frozenset()
    bounded: frozenset[int | str] = frozenset()
    ignored: Mapping[int | str, int] = field(default_factory=dict)
    sizes: Mapping[int | str, int] = field(default_factory=dict)


UNUSED = IntegerUses()


def holds_whole_numbers(tensor: Tensor) -> bool:
    """Whether it has elements, which are integers, booleans, or floats without a fraction."""
    if tensor.numel() == 0 or tensor.is_complex() or is_float8(tensor):
        return False
    return not tensor.is_floating_point() or bool((tensor == tensor.round()).all())


def is_mask(tensor: Tensor) -> bool:
    """Whether it holds booleans, or zeros and ones and nothing else."""
    return tensor.dtype is torch.bool or (not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1)).all()))


def can_redraw(tensor: Tensor, number: int, uses: IntegerUses) -> bool:
    """Whether `redraw` gives other values to a tensor of integers or booleans."""
    if tensor.numel() == 0 or number in uses.read:
        return False
    if tensor.dtype is torch.bool:
        return tensor.numel() > 1
    low, high = map(int, torch.aminmax(tensor))
    return number not in uses.indices or min(low, 0) < high or number in uses.ignored or uses.sizes.get(number, 0) > 1


def redraw(tensor: Tensor, number: int, uses: IntegerUses, generator: torch.Generator) -> Tensor:
    """Returns other integers or booleans. Of a mask, the first in each line stays."""
    def uniform(shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=generator, device=generator.device).to(tensor.device)

    given = tensor.detach()
    data = given.dtype is torch.bool or given.is_floating_point() or number not in uses.indices
    if given.dim() and data and is_mask(given):
        density = uniform(torch.Size((*given.shape[:-1], 1)))
        bits = (uniform(given.shape) < density).to(given.dtype)
        bits.narrow(-1, 0, 1).copy_(given.narrow(-1, 0, 1))
        return bits
    steps = given.long().diff(dim=-1) if given.dim() else given
    rising = given.dim() > 0 and bool((steps >= 0).all()) and bool((steps > 0).any())
    if not rising and given.numel() >= SMALLEST and not is_constant(given) and is_ordered(given):
        return tensor
    low, high = _bounds(given, arithmetic=number not in uses.indices)
    if (size := uses.sizes.get(number)) and bool((given.long() < size).all()):
        low, high = low.clamp(min=0), torch.full_like(high, size - 1)
    if given.dim() and number in uses.places and _are_distinct(given):
        distinct = _draw_distinct(given, int(low.max()), int(high.min()), uniform)
        return distinct.sort(-1).values if rising else distinct
    made = low + (uniform(given.shape).double() * (high - low + 1)).long().minimum(high - low)
    chosen = uniform(given.shape)
    for place, value in enumerate((low, high, torch.zeros_like(low))):
        made = torch.where((chosen * _ENDS).long() == place, value, made)
    if rising:
        first, last = given[..., :1], given[..., -1:]
        inner = made[..., 1:-1].maximum(first).minimum(last).sort(-1).values
        made = torch.cat((first, inner, last), -1)
    if made.dim() > 1 and not rising and number not in uses.places:
        alike = uniform(torch.Size((*given.shape[:-1], 1))) < _ALIKE
        made = torch.where(alike, made[..., :1].maximum(low).minimum(high), made)
    if number in uses.ignored:
        made[uniform(given.shape) < _IGNORED] = uses.ignored[number]
    return made.to(given.dtype)


def crowd(tensor: Tensor, number: int, uses: IntegerUses, generator: torch.Generator, *, rising: bool) -> Tensor:
    """Returns integers of which all but one of sixteen along a line have one value, and another value is missing. `rising`:
    changes sorted ones only, which have that value everywhere between their ends; else others only. Those whose range is not
    one, and places to write to, are returned as they are."""
    given = tensor.detach()
    kept = given.is_floating_point() or given.is_complex() or given.dtype is torch.bool or given.numel() < SMALLEST
    if kept or number in {*uses.read, *uses.places} or is_constant(given) or not given.dim():
        return tensor
    axis = given.dim() - 1 if rising or given.dim() == 1 else find_interchangeable_axis(given)
    if axis is None or rising is not bool((given.long().diff(dim=-1) >= 0).all()) or (not rising and is_ordered(given)):
        return tensor
    lines = given.movedim(axis, -1)
    drawn = torch.rand((3, *lines.shape), generator=generator, device=generator.device).to(given.device)
    common = lines.gather(-1, drawn[0].argmax(-1, keepdim=True))
    if rising:
        made = torch.cat((lines[..., :1], common.expand_as(lines)[..., 1:-1], lines[..., -1:]), -1)
    else:
        missing = lines.gather(-1, (drawn[1] * (lines != common)).argmax(-1, keepdim=True))
        made = torch.where((drawn[2] < 1 / _ENDS) & (lines != missing), lines, common)
    return made.movedim(-1, axis).contiguous()


def _bounds(given: Tensor, *, arithmetic: bool) -> tuple[Tensor, Tensor]:
    """The least and the largest value that each element may get, as tensors that can be broadcast."""
    low, high = torch.aminmax(given.long()) if arithmetic and _axis(given) is None else low_and_high(given)
    low = low.clamp(max=0)
    if arithmetic:
        most = torch.iinfo(torch.int64 if given.is_floating_point() else given.dtype)
        reach = low.abs().maximum(high.abs()).clamp(min=1)
        low, high = (-reach).clamp(min=most.min), reach
    return low, high


def low_and_high(given: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest of the integers given at each element's position, as tensors that can be broadcast."""
    values, axis = given.long(), _axis(given)
    if axis is not None:
        return values.amin(axis, keepdim=True), values.amax(axis, keepdim=True)
    low, high = torch.aminmax(values)
    return (values, values) if given.dim() > 1 else (low, high)  # each position seems to have a range of its own


def _axis(given: Tensor) -> int | None:
    return find_interchangeable_axis(given) if given.numel() >= SMALLEST else None


def _are_distinct(given: Tensor) -> bool:
    """Whether no line along the last axis holds a value twice."""
    return bool((given.sort(-1).values.diff(dim=-1) != 0).all())


def _draw_distinct(given: Tensor, low: int, high: int, uniform: Callable[[torch.Size], Tensor]) -> Tensor:
    """Distinct integers for each line along the last axis: those in it in another order where there is no room for others."""
    lines, length = given.shape[:-1], given.shape[-1]
    if high - low + 1 < length or lines.numel() * (high - low + 1) > _MOST_KEYS:
        return given.gather(-1, uniform(given.shape).argsort(-1))
    return (low + uniform(torch.Size((*lines, high - low + 1))).argsort(-1)[..., :length]).to(given.dtype)
