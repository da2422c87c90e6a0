"""Which values an input may take: as its own show, and outside of the range that get_inputs() happens to show.

A program that is right only in that range (a copy in place of ReLU, where all inputs are in [0, 1]) is wrong. So constants
become generic, values get the other sign, and rows become zero, constant or tied, wherever the reference stands it, which is
found out by trying, once. Infinities, NaN, and zeros that every draw has in the same places are structure and stay. Pure
functions on tensors; whoever calls them runs the reference. Where to look next: `verify/inputs/variants.py` (which uses the
ranges), `verify/reference/range_search.py` (who tries).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.verify.inputs.integer_values import (
    SMALLEST,
    UNUSED,
    IntegerUses,
    can_redraw,
    holds_whole_numbers,
    is_mask,
    redraw,
)
from stitchcuda.verify.inputs.reseeding import is_constant, random_places, random_signs, root_mean_square
from stitchcuda.verify.inputs.standing import find_standing
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.shared_tensors import group_by_memory, is_float8, replace_tensors, without_float8

_ROW_SUM = 1e-3                            # how far from 1 the sum of a row of probabilities may be
_SAME = 0.9                                # zeros are structure if this share of them, and of the others, stay in the next draw
_SMALL, _SMALL_HALF, _LARGE = 2.0**-30, 2.0**-20, 8.0  # size of small rows, of those in float16, and of large values
_NOT_ZERO = 0.75                           # of the probabilities
_SMALL_ROWS, _ZERO_ROWS, _TIED_ROWS, _COMPARED_ROWS = 1 / 8, 1 / 16, 1 / 8, 1 / 4  # of the rows
_SLOTS = 2**22                             # the most elements that may take a value to compare with
_CONSTANT = 10                             # so many octaves below the root mean square lies the value of constant rows
_HUGE = 8192.0, 1024.0, 128.0, 85.0, 48.0, 24.0  # the first that the reference stands; of float32, e^89 overflows
_WIDE = 2**30                              # of integers that grow
_REACHES: tuple[Callable[[Tensor], int], ...] = (  # the largest that an integer grows to: the first that the reference stands
    lambda tensor: 2**36 if tensor.dtype is torch.int64 else _WIDE, lambda _: _WIDE,
    lambda tensor: 8 * int(tensor.abs().max()), lambda tensor: 2 * int(tensor.abs().max()),
)

Domain = Literal["free", "positive", "unit", "fixed", "permuted"]


@dataclass(frozen=True)
class InputRanges:
    """What may be done to input tensors, by their number (see `replace_numbered`).

    `free`: the values may leave the range that get_inputs() shows. `zeros`, `small`, `constant`: rows may be zero, many times
    smaller, or of one small value. `tied`: the largest and smallest values may be there several times. `blank`: all values may
    be zero. `nonfinite`: values may be these; `compared`: likewise, as it compares with them. `large`: all values may be
    larger, or some whole numbers; `huge`: by number, a value as large as a few of its floats become; `grown`: a value up to
    which some of its integers grow. `full`: masks may leave nothing
    out. `compared_state`: by name, values with which it compares a parameter's or buffer's own. `uses`: of integers. `ties`: an
    operator tells equal values apart, or integers are among the outputs; `open_ties`: it matters which of equal values an
    operator names, and torch does not document that. `fine_noise`: rounding noise must be fine (`RoundingNoise`), as on inputs
    as given the usual one makes errors that programs may hardly have. `still`: true where an element keeps its value.
    `notes`: on what stays as it is.
    """

    free: frozenset[int] = frozenset()
    zeros: frozenset[int] = frozenset()
    small: frozenset[int] = frozenset()
    constant: frozenset[int] = frozenset()
    tied: frozenset[int] = frozenset()
    blank: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    nonfinite: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    compared: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    large: frozenset[int] = frozenset()
    huge: Mapping[int, float] = field(default_factory=dict)
    grown: Mapping[int, int] = field(default_factory=dict)
    compared_state: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    uses: IntegerUses = UNUSED
    ties: bool = False
    open_ties: bool = False
    fine_noise: bool = False
    still: Mapping[int, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def hold(self, number: int, tensor: Tensor, changed: Tensor) -> Tensor:
        """Returns `changed` with the elements of `tensor` that keep their values."""
        still = self.still.get(number)
        return changed if still is None or still.shape != tensor.shape else torch.where(still, tensor, changed)


def replace_numbered(arguments: Any, change: Callable[[int, Tensor], Tensor]) -> Any:
    """As `replace_tensors`, with `change(number, tensor)`. Tensors are numbered in their order; those that share memory are
    given as one."""
    numbers = itertools.count()
    return replace_tensors(arguments, lambda tensor: change(next(numbers), tensor))


def find_domain(tensor: Tensor) -> Domain:
    """Which changes keep the meaning of a tensor's values, as far as they show: any ("free"), those that keep them non-negative
    ("positive") or in [0, 1] ("unit"), another order ("permuted"), none ("fixed")."""
    if tensor.numel() < SMALLEST or tensor.dtype.is_complex or is_float8(tensor):
        return "fixed"
    values = tensor.detach()
    if not values.dtype.is_floating_point:
        return "fixed" if is_ordered(values) else "permuted"
    values = values.double()
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)) or low == high or is_ordered(values):
        return "fixed"
    if bool((values == values.round()).all()):
        return "permuted"                  # whole numbers: labels, counts or a mask
    if low >= 0 and high <= 1:
        return "permuted" if rows_sum_to_one(tensor) else "unit"
    return "positive" if low >= 0 else "free"


def find_value_range(tensor: Tensor) -> tuple[float, float, bool] | None:
    """The least and the largest finite value, and whether another is NaN or infinite; None for booleans and complex numbers,
    and where there is no finite value."""
    if tensor.dtype is torch.bool or tensor.is_complex() or not tensor.numel():
        return None
    values = without_float8(tensor.detach())
    low, high = torch.aminmax(values)
    if not values.is_floating_point() or bool(torch.isfinite(low) & torch.isfinite(high)):
        return float(low), float(high), False
    finite = values[torch.isfinite(values)]
    return (float(finite.min()), float(finite.max()), True) if finite.numel() else None


def rows_sum_to_one(tensor: Tensor) -> bool:
    """Whether it holds rows of probabilities."""
    if not tensor.dtype.is_floating_point or tensor.dim() < 2:
        return False
    return bool(((tensor.detach().double().sum(-1) - 1).abs() < _ROW_SUM).all())


Stands = Callable[[Any], bool]


@dataclass(frozen=True)
class RangeTests:
    """Whether the reference can be judged on arguments. `stands`: on values of any kind. `is_sturdy`: on rare values, where
    rounding must not decide. `is_sturdy_blank`: the same, and its outputs may be constant. `stands_zeros`: one of these, or
    None where values may not be equal. `picks`: whether ties can matter. `looked_at`: inputs in which the reference looks for
    infinities or NaN. `compared`: by number, the values with which it compares an input's own."""

    stands: Stands
    is_sturdy: Stands = lambda _: False
    is_sturdy_blank: Stands = lambda _: False
    stands_zeros: Stands | None = None
    picks: bool = False
    looked_at: frozenset[int] = frozenset()
    compared: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


def find_ranges(
    draw: Callable[[], Any], tests: RangeTests, generator: torch.Generator, uses: IntegerUses = UNUSED
) -> InputRanges:
    """Finds the ranges by trying. `draw`: returns new arguments. `uses`: of integers."""
    given = draw()
    tensors = list_tensors(given)
    still = {number: ~torch.isfinite(tensor) for number, tensor in enumerate(tensors) if _has_infinities(tensor)}
    if any(map(_has_zeros, tensors)):
        for number, (first, second) in enumerate(zip(tensors, list_tensors(draw()), strict=False)):
            if _has_zeros(first) and first.shape == second.shape and _has_same_zeros(first, second):
                still[number] = (first == 0) | still.get(number, first == 0)
    structure = InputRanges(still=still)

    def find(members: Sequence[int], change: Callable[[Tensor, int], Tensor], stands: Stands) -> frozenset[int]:
        def stands_changed(numbers: Sequence[int]) -> bool:
            try:
                return stands(replace_numbered(given, lambda number, tensor: (
                    structure.hold(number, tensor, change(tensor, number)) if number in numbers else tensor
                )))  # fmt: skip
            except RuntimeError as error:
                if is_out_of_memory(error):
                    return False
                raise

        return frozenset(find_standing(members, stands_changed))

    narrow = [number for number, tensor in enumerate(tensors) if is_narrow(tensor, number, uses)]
    data = [number for number, tensor in enumerate(tensors) if find_domain(tensor) in ("free", "positive", "unit")]
    masks = [number for number, tensor in enumerate(tensors) if tensor.numel() >= SMALLEST and is_mask(tensor)]
    free = find(narrow, lambda tensor, number: leave_range(tensor, generator, number, uses), tests.stands)
    small = find(data, lambda tensor, _: with_small_rows(tensor, generator), tests.stands)
    settings = [number for number in narrow if is_setting(tensors[number])]
    low = [number for number in data if root_mean_square(tensors[number]) < 1]
    fixed = {*uses.indices - uses.bounded, *uses.read}
    wide = [number for number, tensor in enumerate(tensors) if can_grow(tensor) and number not in fixed]
    long = [number for number in wide if _is_long(tensors[number])]
    few = [number for number in wide if number not in long]
    large = find([*settings, *low, *few], lambda tensor, _: with_large_values(tensor, generator), tests.stands)
    grown: dict[int, int] = {}
    for reach in _REACHES:
        def grow(tensor: Tensor, _: int, reach: Callable[[Tensor], int] = reach) -> Tensor:
            return with_grown_integers(tensor, generator, reach(tensor))

        left = [number for number in long if number not in grown]
        grown.update({number: reach(tensors[number]) for number in find(left, grow, tests.stands)})
    huge: dict[int, float] = {}
    for most in _HUGE:
        def make_huge(tensor: Tensor, _: int, most: float = most) -> Tensor:
            return with_huge_values(tensor, generator, most)

        left = [number for number in data if number not in huge]
        huge.update(dict.fromkeys(find(left, make_huge, tests.is_sturdy), most))
    zeros = constant = tied = frozenset[int]()
    if tests.stands_zeros:
        zeros = find([*data, *masks], lambda tensor, _: with_rows_of_zeros(tensor, generator), tests.stands_zeros)
        constant = find(data, lambda tensor, _: with_constant_rows(tensor, generator), tests.is_sturdy)
        tied = find(data if tests.picks else [], lambda tensor, _: with_ties(tensor, generator), tests.is_sturdy)
    blank = find(data if tests.stands_zeros else [], lambda tensor, _: torch.zeros_like(tensor), tests.is_sturdy_blank)
    full = find(masks, lambda tensor, _: torch.ones_like(tensor), tests.stands)
    nonfinite: dict[int, tuple[float, ...]] = {}
    for values in ((math.nan, math.inf, -math.inf), (math.nan,), (math.inf, -math.inf)):
        left = [number for number in data if number in tests.looked_at and number not in nonfinite]
        found = find(left, functools.partial(with_nonfinite, values, generator), tests.is_sturdy)
        nonfinite.update(dict.fromkeys(found, values))
    possible = {
        number: values_around(compared_with, tensors[number], number, uses, free=number in free)
        for number, compared_with in tests.compared.items()
    }
    met = find(
        [number for number in possible if possible[number]],
        lambda tensor, number: with_compared(possible[number], generator, tensor), tests.is_sturdy,
    )  # fmt: skip
    compared = {number: possible[number] for number in met}
    held = [number for number in sorted(still) if bool((tensors[number] == 0).any())]
    notes = tuple(_describe_limits(given, held, sorted({*narrow} - free)))
    rows = zeros, small, constant, tied, blank, full
    return InputRanges(free, *rows, nonfinite, compared, large, huge, grown, uses=uses, still=still, notes=notes)


def _describe_limits(given: Any, held: Sequence[int], bound: Sequence[int]) -> Iterator[str]:
    """Notes on inputs with zeros that stay (`held`), and with values as given only (`bound`)."""
    leaves = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)]
    positions = [", ".join(map(str, places)) for places in group_by_memory(leaves)]
    if held:
        inputs = ", ".join(positions[number] for number in held)
        yield f"limited: zeros that every draw of get_inputs() has in the same places stay: in input {inputs}"
    tensors = list_tensors(given)
    for kept, what in ((_is_sorted, "stays sorted"), (_is_mask_of_numbers, "holds zeros and ones only")):
        if which := [positions[number] for number, tensor in enumerate(tensors) if kept(tensor)]:
            yield f"limited: input {', '.join(which)} {what}, as get_inputs() gives it: a program may rely on that"
    if bound:
        inputs = ", ".join(positions[number] for number in bound)
        some = f"inputs {inputs} have" if "," in inputs else f"input {inputs} has"
        yield f"limited: {some} only values like those of get_inputs(): the reference fails on others"


def is_narrow(tensor: Tensor, number: int = 0, uses: IntegerUses = UNUSED) -> bool:
    """Whether `leave_range` changes it: floats of one sign, constant, sorted or few, unless they may be labels, counts or
    positions; rows of probabilities; complex numbers that are all real; integers and masks that `can_redraw`."""
    if tensor.numel() == 0:
        return False
    if tensor.is_complex():
        return bool((tensor.imag == 0).all())
    if is_float8(tensor):
        return True
    if not tensor.is_floating_point():
        return can_redraw(tensor, number, uses)
    domain = find_domain(tensor)
    if domain == "permuted" and rows_sum_to_one(tensor):
        return True
    if not is_constant(tensor) and holds_whole_numbers(tensor):
        return number not in uses.indices and number not in uses.read and domain == "permuted"
    return domain not in ("free", "permuted") or (domain == "free" and float(tensor.max()) <= 0)


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


def _draw(generator: torch.Generator, device: torch.device, random: Callable[..., Tensor], *sizes: Any) -> Tensor:
    """What torch's function `random` draws of these sizes, on `device`: the generator may be of another one."""
    return random(*sizes, generator=generator, device=generator.device).to(device)


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


def is_setting(tensor: Tensor) -> bool:
    """Whether it holds so few floats that they are a setting of the call, such as a temperature."""
    return tensor.is_floating_point() and 0 < tensor.numel() < SMALLEST


def can_grow(tensor: Tensor) -> bool:
    """Whether it holds whole numbers that may be numbers to compute with, and larger ones fit into its dtype."""
    if find_domain(tensor) != "permuted" or is_mask(tensor) or not holds_whole_numbers(tensor) or rows_sum_to_one(tensor):
        return False
    narrow = tensor.is_floating_point() or tensor.itemsize < 4
    return narrow or (tensor.dtype in (torch.int32, torch.int64) and int(tensor.abs().max()) < _WIDE)


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


def _is_long(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.itemsize >= 4


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


def list_tensors(arguments: Any) -> list[Tensor]:
    """The tensors by their number (see `replace_numbered`)."""
    found: dict[int, Tensor] = {}
    replace_numbered(arguments, lambda number, tensor: found.setdefault(number, tensor))
    return list(found.values())


def _holds_floats(tensor: Tensor) -> bool:
    """Whether it has elements, of a floating-point type of more than 8 bits: few operators take those of 8."""
    return tensor.numel() > 0 and tensor.is_floating_point() and tensor.itemsize > 1


def _is_sorted(tensor: Tensor) -> bool:
    return tensor.numel() >= SMALLEST and not is_constant(tensor) and is_ordered(tensor)


def _is_mask_of_numbers(tensor: Tensor) -> bool:
    plain = tensor.dtype is not torch.bool and tensor.numel() >= SMALLEST
    return plain and not is_constant(tensor) and is_mask(tensor)


def _has_infinities(tensor: Tensor) -> bool:
    return _holds_floats(tensor) and not bool(torch.isfinite(tensor).all())


def _has_zeros(tensor: Tensor) -> bool:
    return _holds_floats(tensor) and bool((tensor == 0).any()) and not is_constant(tensor)


def _has_same_zeros(first: Tensor, second: Tensor) -> bool:
    """Whether zeros and other values are in the same places: rare other values, as in one-hot rows, may be anywhere."""
    before, after = first == 0, second == 0
    return all(int((left & right).sum()) >= _SAME * int(left.sum()) for left, right in ((before, after), (~before, ~after)))
