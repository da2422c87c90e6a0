"""Changes the values of one input tensor: out of the range that get_inputs() shows, or to rare ones in some rows or elements.

Each function returns a new tensor of the same shape, dtype and layout, or the given one where it has nothing to change. None
asks whether the reference stands it.
Where to look next: `verify/inputs/value_domain.py` (what values may mean), `verify/inputs/input_ranges.py` (who tries them),
`verify/inputs/variants.py`, `verify/inputs/rare_values.py` (who uses them).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stitchcuda.verify.inputs.integer_values import SMALLEST, UNUSED, IntegerUses, holds_whole_numbers, is_mask, redraw
from stitchcuda.verify.inputs.reseeding import is_constant, random_places, random_signs, root_mean_square
from stitchcuda.verify.inputs.value_domain import can_grow, find_domain, is_setting, rows_sum_to_one
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.messages.shared_tensors import is_float8

_SMALL, _SMALL_HALF, _LARGE = 2.0**-30, 2.0**-20, 8.0  # size of small rows, of those in float16, and of large values
_NOT_ZERO = 0.75                           # of the probabilities
_SMALL_ROWS, _ZERO_ROWS, _TIED_ROWS, _COMPARED_ROWS = 1 / 8, 1 / 16, 1 / 8, 1 / 4  # of the rows
_SLOTS = 2**22                             # the most elements that may take a value to compare with
_CONSTANT = 10                             # so many octaves below the root mean square lies the value of constant rows


def leave_range(tensor: Tensor, generator: torch.Generator, number: int = 0, uses: IntegerUses = UNUSED) -> Tensor:
    """Returns generic values in place of a tensor that `is_narrow`: of both signs, sorted values in order, constants as normal
    numbers of the same size, other probabilities, of which some are zero and which sum to 0.5 to 1.5, and other integers
    (`redraw`), with a fraction at times if they are floats. Of 8-bit floats only signs change."""
    drawn = functools.partial(_draw, generator, tensor.device)
    if is_float8(tensor):
        return (tensor.float() * random_signs(tensor.shape, generator).to(tensor.device)).to(tensor.dtype)
    if tensor.is_complex():
        angle = drawn(torch.rand, tensor.shape).to(tensor.real.dtype) * math.tau
        return tensor * torch.polar(torch.ones_like(angle), angle)
    if not tensor.is_floating_point() or (is_mask(tensor) and not is_constant(tensor)):
        return redraw(tensor, number, uses, generator)
    if rows_sum_to_one(tensor) and not is_constant(tensor):
        logits = drawn(torch.randn, tensor.shape).double() * 2
        some = (drawn(torch.rand, tensor.shape) < _NOT_ZERO) | (logits == logits.amax(-1, keepdim=True))
        sums = 0.5 + drawn(torch.rand, (*tensor.shape[:-1], 1)).double()
        return like(tensor, logits.masked_fill(~some, -math.inf).softmax(-1) * sums)
    if not is_constant(tensor) and holds_whole_numbers(tensor) and find_domain(tensor) == "permuted":
        fractions = drawn(torch.rand, tensor.shape) * (drawn(torch.rand, tensor.shape) < 1 / 4)
        return like(tensor, redraw(tensor, number, uses, generator) + fractions)
    values = torch.nan_to_num(tensor.detach().double(), 0.0, 0.0, 0.0)
    low, high = map(float, torch.aminmax(values))
    if low == high and (values.numel() > 1 or low == 0):
        made = drawn(torch.randn, values.shape) * (abs(low) or 1.0)
    elif is_ordered(values):
        made = values * (0.5 + float(drawn(torch.rand, (1,)))) + values.std() * float(drawn(torch.randn, (1,)))
    else:
        made = values * random_signs(values.shape, generator).to(tensor.device)
        made *= 1.0 if values.numel() >= SMALLEST else 2.0 ** (3.5 * drawn(torch.rand, values.shape) - 3)
    return like(tensor, made)


def with_rows_of_zeros(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with zeros in rows (`_choose_many`), and in one of four and more indices of its last axis. One of
    fewer than two axes is returned as it is."""
    if tensor.dim() < 2:
        return tensor
    made = tensor.detach().clone()
    made[_choose_many(tensor, generator)] = 0
    if tensor.shape[-1] >= 4:
        made[..., int(torch.randint(tensor.shape[-1], (), generator=generator, device=generator.device))] = 0
    return made


def with_constant_rows(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with one value in rows (`_choose_many`): a power of two, so that sums are exact, and small, so that an
    error of their mean stays below what norms add to the variance. No index of the last axis gets it: it would be the largest
    value of each row, where all others are negative."""
    size = root_mean_square(tensor)
    if tensor.dim() < 2 or not size:
        return tensor
    made = tensor.detach().clone()
    value = 2.0 ** (math.floor(math.log2(size)) - _CONSTANT)
    made[_choose_many(tensor, generator)] = math.copysign(value, float(made.double().mean()))
    return made


def with_ties(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with the largest and the smallest value of about one of eight lines along each axis in up to three
    more places of the line."""
    made = tensor.detach().clone()
    for axis, length in enumerate(tensor.shape):
        if length < 2:
            continue
        lines = made.movedim(axis, -1)
        chosen = _choose_rows(lines, _TIED_ROWS, generator) if lines.dim() > 1 else ...
        some = lines[chosen].reshape(-1, length)
        for value in (some.amax(-1, keepdim=True), some.amin(-1, keepdim=True)):
            places = torch.randint(length, (len(some), 3), generator=generator, device=generator.device).to(some.device)
            some = some.scatter(-1, places, value.expand(-1, 3))
        lines[chosen] = some if lines.dim() > 1 else some[0]
    return like(tensor, made)


def with_nonfinite(values: Sequence[float], generator: torch.Generator, tensor: Tensor, number: int = 0) -> Tensor:
    """Returns the tensor with each of these values in about one of 64 elements, and in one at least. Zeros stay."""
    made = tensor.detach().clone().contiguous()
    count = max(1, tensor.numel() // 64)
    places = random_places(tensor.numel(), count * len(values), generator).to(tensor.device)
    for position, value in enumerate(values):
        made.view(-1)[places[position * count : (position + 1) * count]] = value
    return like(tensor, torch.where(tensor == 0, tensor, made))


def with_compared(values: Sequence[float], generator: torch.Generator, tensor: Tensor) -> Tensor:
    """Returns the tensor with each of these values in about one of 256 elements, fewer where there are many, and in one at
    least: all in one of four rows of its last axis, since they may be large beside what the other rows hold."""
    drawn = functools.partial(_draw, generator, tensor.device)
    made, width = tensor.detach().clone().contiguous(), tensor.shape[-1]
    rows = _choose_rows(tensor, _COMPARED_ROWS, generator).flatten().nonzero()[:, 0]
    slots = min(len(rows) * width, _SLOTS)
    count = max(1, min(tensor.numel() // max(256, 16 * len(values)), slots // len(values)))
    places = random_places(len(rows) * width, len(values) * count, generator).to(tensor.device)
    places = rows[places // width] * width + places % width
    order = drawn(torch.randperm, len(values)).tolist()  # in a small tensor only the first ones have room
    for position, value in enumerate(values[place] for place in order):
        made.view(-1)[places[position * count : (position + 1) * count]] = value
    return like(tensor, made)


def values_around(values: Sequence[float], tensor: Tensor, number: int, uses: IntegerUses, *, free: bool) -> tuple[float, ...]:
    """Those of the values that an input may hold. Of floats also the next ones on both sides, and half as much again, all in
    the input's domain unless it is `free` of that; a value that the dtype rounds, such as 0.1, is left out itself, since how a
    program compares it is open. Whole numbers stay in the range of an index."""
    domain = find_domain(tensor) if values and tensor.dim() else "fixed"
    domain = "free" if is_setting(tensor) and tensor.dim() else domain
    if domain in ("fixed", "permuted"):
        few = 0 < tensor.numel() < SMALLEST and tensor.dim() > 0
        whole = (few or domain == "permuted") and not (tensor.is_floating_point() or tensor.is_complex())
        whole = whole and tensor.dtype is not torch.bool and (few or not is_mask(tensor))
        if not whole or number in {*uses.read, *uses.places}:
            return ()
        size = uses.sizes.get(number, 0)
        shown = (0, size - 1) if size else (int(tensor.min()), int(tensor.max()))
        least, most = shown if number in uses.indices else (torch.iinfo(tensor.dtype).min, torch.iinfo(tensor.dtype).max)
        return tuple(value for value in values if least <= value <= most and value == int(value))
    given = torch.tensor(values, dtype=torch.float64)
    rounded = given.to(tensor.dtype)
    other = rounded[rounded != 0]
    found = [rounded[rounded.double() == given], other * 1.5]
    if tensor.dtype in (torch.float32, torch.float64):
        found += [other.nextafter(torch.tensor(end, dtype=tensor.dtype)) for end in (math.inf, -math.inf)]
    low, high = -math.inf if free or domain == "free" else 0.0, math.inf if free or domain != "unit" else 1.0
    return tuple(value for value in torch.cat(found).tolist() if low <= value <= high)


def with_small_rows(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with about one of eight rows of its last axis so small that squares are below what norms add to them,
    and far below what other rows hold near a zero crossing. Where there is one row, one of eight elements: a gain that is tiny
    everywhere would hide what it is multiplied with."""
    if not (size := root_mean_square(tensor)):
        return tensor
    least = _SMALL_HALF if tensor.dtype is torch.float16 else _SMALL
    alone = tensor.shape[:-1].numel() == 1
    chosen = _choose_rows(tensor[..., None] if alone else tensor, _SMALL_ROWS, generator)[..., None].view(
        tensor.shape if alone else (*tensor.shape[:-1], 1)
    )
    return like(tensor, torch.where(chosen, tensor.detach() * min(least, least / size), tensor))


def with_large_values(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor scaled to a root mean square of 8, if it is below 1. All rows, since near a zero crossing a large row
    holds values as small as those of another, with larger errors. A setting grows 2.5 to 8 times. One of four integers becomes
    any that fits into 8 or 16 bits; one of four whole floats grows 64 times."""
    if is_setting(tensor):
        return tensor * (2.5 + 5.5 * float(torch.rand((), generator=generator, device=generator.device)))
    if can_grow(tensor):
        some = torch.rand(tensor.shape, generator=generator, device=generator.device).to(tensor.device) < 1 / 4
        if tensor.is_floating_point():
            return torch.where(some, tensor * 64, tensor)
        most = torch.iinfo(tensor.dtype)
        drawn = torch.randint(most.min, most.max + 1, tensor.shape, generator=generator, device=generator.device)
        return torch.where(some, drawn.to(tensor.device, tensor.dtype), tensor)
    size = root_mean_square(tensor)
    return like(tensor, tensor.detach() * (_LARGE / size)) if 0 < size < 1 else tensor


def with_grown_integers(tensor: Tensor, generator: torch.Generator, most: int) -> Tensor:
    """Returns the tensor with one of four integers grown so far that the largest reaches `most`, half of these to twice and
    half to eight times their size only where that is less."""
    drawn = torch.rand(tensor.shape, generator=generator, device=generator.device).to(tensor.device)
    times = most // int(tensor.abs().max())
    made = torch.where(drawn < 1 / 8, tensor * times, tensor)
    for turn, less in enumerate((2, 8)):
        here = (drawn >= (2 + turn) / 16) & (drawn < (3 + turn) / 16)
        made = torch.where(here, tensor * min(less, times), made)
    return made


def with_huge_values(tensor: Tensor, generator: torch.Generator, most: float) -> Tensor:
    """Returns the tensor with values up to `most`, half and an eighth of it, of both signs where the tensor has both, in up to
    four elements each. Zeros stay."""
    made = tensor.detach().clone().contiguous()
    parts = (1, -63 / 64, 62 / 64, -61 / 64) if find_domain(tensor) == "free" else (1, 63 / 64, 62 / 64, 61 / 64)
    for value in (most, most / 2, most / 8):
        places = torch.randint(made.numel(), (4,), generator=generator, device=generator.device).to(made.device)
        made.view(-1)[places] = torch.tensor(parts, dtype=made.dtype, device=made.device) * value
    return like(tensor, torch.where(tensor == 0, tensor, made))


def _draw(generator: torch.Generator, device: torch.device, random: Callable[..., Tensor], *sizes: Any) -> Tensor:
    """What torch's function `random` draws of these sizes, on `device`: the generator may be of another one."""
    return random(*sizes, generator=generator, device=generator.device).to(device)


def _choose_many(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A mask of rows of the tensor's last axis, where there are several: true for about one of sixteen, at least one, and for
    all of one of four and more indices of its first axis, and of its first two if it has three."""
    rows = tensor.shape[:-1]
    chosen = _choose_rows(tensor, _ZERO_ROWS, generator) & (rows.numel() > 1)
    for axes in (1, 2) if tensor.dim() > 2 else (1,):
        if (count := rows[:axes].numel()) >= 4:
            chosen.view(count, -1)[int(torch.randint(count, (), generator=generator, device=generator.device))] = True
    return chosen


def _choose_rows(tensor: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A mask of rows of the tensor's last axis, true for about this share of them, and for one at least."""
    rows = tensor.shape[:-1]
    chosen = torch.rand(rows, generator=generator, device=generator.device).to(tensor.device) < share
    chosen.view(-1)[int(torch.randint(rows.numel(), (), generator=generator, device=generator.device))] = True
    return chosen


def like(tensor: Tensor, values: Tensor) -> Tensor:
    """`values` in the dtype and layout of `tensor`."""
    if tensor.is_contiguous() or 0 in [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]:
        return values.to(tensor.dtype).contiguous()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(values)
