"""Finds which values an input may take outside of the range that get_inputs() happens to show.

A program that is right only in that range (a copy in place of ReLU, where all inputs are in [0, 1]) is wrong. So constants
become generic, values get the other sign, and rows become zero, constant or tied, wherever the reference stands it, which is
found out by trying, once. Infinities, NaN, and zeros that every draw has in the same places are structure and stay. Whoever
calls this runs the reference.
Where to look next: `verify/inputs/value_changes.py` (the changes), `verify/inputs/variants.py` (which uses the ranges),
`verify/reference/range_search.py` (who tries).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.verify.inputs.integer_values import SMALLEST, UNUSED, IntegerUses, is_mask
from stitchcuda.verify.inputs.reseeding import is_constant, root_mean_square
from stitchcuda.verify.inputs.standing import find_standing
from stitchcuda.verify.inputs.value_changes import (
    leave_range,
    values_around,
    with_compared,
    with_constant_rows,
    with_grown_integers,
    with_huge_values,
    with_large_values,
    with_nonfinite,
    with_rows_of_zeros,
    with_small_rows,
    with_ties,
)
from stitchcuda.verify.inputs.value_domain import WIDE, can_grow, find_domain, is_narrow, is_setting
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.shared_tensors import group_by_memory, replace_tensors

_SAME = 0.9                                # zeros are structure if this share of them, and of the others, stay in the next draw
_HUGE = 8192.0, 1024.0, 128.0, 85.0, 48.0, 24.0  # the first that the reference stands; of float32, e^89 overflows
_REACHES: tuple[Callable[[Tensor], int], ...] = (  # the largest that an integer grows to: the first that the reference stands
    lambda tensor: 2**36 if tensor.dtype is torch.int64 else WIDE, lambda _: WIDE,
    lambda tensor: 8 * int(tensor.abs().max()), lambda tensor: 2 * int(tensor.abs().max()),
)


@dataclass(frozen=True)
class InputRanges:
    """What may be done to input tensors, by their number (see `replace_numbered`).

    `free`: the values may leave the range that get_inputs() shows. `zeros`, `small`, `constant`: rows may be zero, many times
    smaller, or of one small value. `tied`: the largest and smallest values may be there several times. `blank`: all values may
    be zero. `nonfinite`: values may be these; `compared`: likewise, as it compares with them. `large`: all values may be
    larger, or some whole numbers; `huge`: by number, a value as large as a few of its floats become; `grown`: a value up to
    which some of its integers grow. `full`: masks may leave nothing out. `compared_state`: by name, values with which it
    compares a parameter's or buffer's own. `uses`: of integers. `ties`: an operator tells equal values apart, or integers are
    among the outputs; `open_ties`: it matters which of equal values an operator names, and torch does not document that.
    `fine_noise`: rounding noise must be fine (`RoundingNoise`), as on inputs as given the usual one makes errors that programs
    may hardly have. `still`: true where an element keeps its value. `notes`: on what stays as it is.
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


def _is_long(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.itemsize >= 4


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
