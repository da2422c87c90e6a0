"""Makes variants of the inputs that `get_inputs()` gives: other values, another memory layout, another size.

A program that is right only for standard normal values is wrong. But values must keep their meaning (`find_domain`): rows that
sum to one and masks are only reordered, integers too and only along an axis on which they seem to have one range. Values in
[0, 1] stay there, non-negative ones stay non-negative, and sorted or constant tensors are left alone, unless the reference
stands other values (`InputRanges`). Works on the nested arguments of one call and never changes them in place. `why_unsuitable`
says whether the reference can be trusted on a variant. Where to look next: `verify/inputs/secret_inputs.py` (which set gets
which variant), `verify/inputs/input_ranges.py`, `verify/reference/expected_outputs.py` (who tries them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.verify.inputs.input_ranges import InputRanges, replace_numbered
from stitchcuda.verify.inputs.integer_values import SMALLEST, crowd
from stitchcuda.verify.inputs.rare_values import ONE, RARE, draw
from stitchcuda.verify.inputs.reseeding import is_constant, random_places
from stitchcuda.verify.inputs.value_changes import (
    leave_range,
    like,
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
from stitchcuda.verify.inputs.value_domain import Domain, find_domain, is_setting, rows_sum_to_one
from stitchcuda.verify.inputs.value_order import find_interchangeable_axis
from stitchcuda.verify.messages.shared_tensors import as_real, flat_parts, without_float8

Variant = Literal[
    "as given", "exchanged", "touched", "patchwork", "scaled up", "scaled down", "negative", "shifted", "uniform", "sparse",
    "sorted", "repeated", "outlier", "non-contiguous", "blank", "full", "nudged", "crowded", "one run", "alike", "drifted",
    "rare draws", "met",
]  # fmt: skip
GIVEN: Variant = "as given"
BLANK: Variant = "blank"
FULL: Variant = "full"
NUDGED: Variant = "nudged"
CROWDED: Variant = "crowded"
ONE_RUN: Variant = "one run"
ALIKE: Variant = "alike"
DRIFTED: Variant = "drifted"
MET: Variant = "met"                       # is made by `verify/reference/condition_search.py`
RARE_DRAWS: Variant = "rare draws"         # of inputs as given
_WHOLE: tuple[Variant, ...] = (BLANK, FULL, NUDGED, CROWDED, ONE_RUN, ALIKE, DRIFTED, RARE_DRAWS, MET)
SMALL: tuple[Variant, ...] = ("negative", "scaled down")
VALUES: tuple[Variant, ...] = ("scaled up", "shifted", "uniform", "sparse", "sorted", "repeated", "outlier")
"""The variants that change values. All are moderate, because the error bound assumes well-conditioned calls."""
_REARRANGING: tuple[Variant, ...] = ("patchwork", "exchanged", "touched", "sorted", "repeated", "sparse")
# These also reorder masks, labels and rows of probabilities, whose values must stay.
MASKS_AS_GIVEN = ", masks as given"        # ends the name of a variant of these that does not reorder them
BEYOND = ", outside of the range of get_inputs()"  # ends the name of a variant that uses `InputRanges.free`
LIKE_ANOTHER: tuple[Variant, ...] = ("exchanged", "touched", "non-contiguous", *_WHOLE)  # no others are drawn
_PATCHES: tuple[Variant, ...] = ("scaled up", "scaled down", "negative", "sparse", "outlier", "sorted", "uniform")

_MEANINGS: dict[str, str] = {
    "exchanged": "inputs seen before in which a few elements have exchanged places",
    "touched": "inputs seen before of which a few elements are changed",
    "patchwork": "inputs with rows of several kinds (large, small, negative, sparse, sorted, uniform, zero, tied, with an "
    "outlier, with NaN and infinities where the reference looks for them)",
    "scaled up": "inputs with large values",
    "scaled down": "inputs with small values, some of the rows of one value",
    "negative": "inputs whose values are negative and small, some of the rows of one value",
    "shifted": "inputs shifted by a standard deviation",
    "uniform": "inputs with evenly distributed values",
    "sparse": "inputs of which half the values are zero",
    "sorted": "inputs whose rows are sorted",
    "repeated": "inputs in which every second row repeats the one before",
    "outlier": "inputs with one very large value",
    "non-contiguous": "inputs in another memory layout",
    "blank": "inputs that are zero everywhere",
    "full": "masks that leave nothing out",
    "nudged": "inputs that differ by little from those of the call before",
    "crowded": "inputs with integers that are nearly all alike",
    "one run": "inputs with sorted integers in one long run: other segments are empty",
    "alike": "inputs whose rows are nearly all alike",
    "rare draws": "random draws of which the first one is rare",
    "met": "inputs that meet a condition which random ones do not",
    "drifted": "inputs that differ by 1/131072 from those of the call before",
}
_AS_SHOWN = InputRanges()
_NOWHERE: Mapping[str, Tensor] = {}
_SCALE = 8.0
_OUTLIER = 64.0
_HEADROOM = 0.5                            # outputs above this share of the dtype's largest number are near overflow
_WORSE = 8.0                               # a variant with over 8 times the usual error is ill-conditioned,
_NEGLIGIBLE = 8.0                          # unless its error is below 8 ulps more than that
_FEWER = 0.25                              # for parameters; inputs are varied one way of many


def vary(arguments: Any, variant: str, generator: torch.Generator, ranges: InputRanges = _AS_SHOWN) -> Any | None:
    """Returns the arguments with other values or another layout; None if the variant changes nothing.

    `variant`: a kind of rare values, a `Variant`, or one with `MASKS_AS_GIVEN` and then `BEYOND` at its end, each if wanted.
    `generator`: best on their device. `ranges`: what else may be done to them. Tensors that share memory still do in the
    result.
    """
    if variant == GIVEN:
        return arguments
    if is_rare(variant):
        return draw(arguments, variant, generator, ranges)
    beyond, variant = variant.endswith(BEYOND), variant.removesuffix(BEYOND)
    alone, plain = variant.endswith(MASKS_AS_GIVEN), variant.removesuffix(MASKS_AS_GIVEN)
    if beyond and (plain in LIKE_ANOTHER or not ranges.free):
        return None
    if alone and all(find_domain(leaf) != "permuted" for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)):
        return None                        # without masks it is the same as the plain variant
    if plain == BLANK:
        return replace_numbered(arguments, lambda number, tensor: (
            ranges.hold(number, tensor, torch.zeros_like(tensor)) if number in ranges.blank else tensor
        )) if ranges.blank else None       # fmt: skip
    if plain == FULL:
        return replace_numbered(arguments, lambda number, tensor: (
            torch.ones_like(tensor) if number in ranges.full else tensor
        )) if ranges.full else None        # fmt: skip
    changed = [False]

    def change(number: int, tensor: Tensor) -> Tensor:
        if plain == "non-contiguous":
            other = _spread_out(tensor)
        elif plain == NUDGED:
            other = _nudged(tensor, generator)
        elif plain == DRIFTED:
            other = _drifted(tensor)
        elif plain in (CROWDED, ONE_RUN):
            other = crowd(tensor, number, ranges.uses, generator, rising=plain == ONE_RUN)
        elif plain == ALIKE:
            other = ranges.hold(number, tensor, _alike(tensor, generator)) if number in ranges.zeros else tensor
        else:
            free = beyond and number in ranges.free
            if plain == "patchwork" and number in ranges.large and is_setting(tensor):
                free = False               # there it grows, elsewhere it gets the other sign
            wide = leave_range(tensor, generator, number, ranges.uses) if free else tensor
            # What was drawn as a mask is not reordered: the first of each line is as given.
            masks = alone or (wide is not tensor and not tensor.is_floating_point())
            other = _change_values(wide, plain, generator, alone=masks)
            if not alone:
                other = _change_rows(other, plain, number, ranges, generator)
            other = tensor if other is tensor else ranges.hold(number, tensor, other)
        changed[0] |= other is not tensor
        return other

    result = replace_numbered(arguments, change)
    return result if changed[0] else None


def is_rare(variant: str) -> bool:
    """Whether it is a kind of `verify/inputs/rare_values.py`."""
    return variant.removesuffix(ONE) in RARE


def describe(variant: str) -> str:
    """Says what a variant's inputs are, such as "inputs with large values"."""
    if is_rare(variant):
        return RARE[variant.removesuffix(ONE)].meaning
    plain = variant.removesuffix(BEYOND).removesuffix(MASKS_AS_GIVEN)
    return _MEANINGS.get(plain, f"inputs {plain}") + variant.removeprefix(plain)


def resize(arguments: Any, sizes: Sequence[Sequence[int]]) -> Any:
    """Returns the arguments cut or tiled. `sizes` holds (tensor, axis, length), with tensors numbered as pytree leaves."""
    leaves, spec = pytree.tree_flatten(arguments)
    tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, axis, length in sizes:
        position = tensors[number]
        given = leaves[position]
        index = torch.arange(length, device=given.device) % given.shape[axis]
        leaves[position] = given.index_select(axis, index)
    return pytree.tree_unflatten(leaves, spec)


def _change_rows(tensor: Tensor, plain: str, number: int, ranges: InputRanges, generator: torch.Generator) -> Tensor:
    """Changes rows, and values, as the reference stands it. Patchwork gets zeros, and the small negative values constant rows:
    a row of either would cut through the other's columns."""
    if plain == "patchwork":
        tensor = with_large_values(tensor, generator) if number in ranges.large else tensor
        tensor = with_small_rows(tensor, generator) if number in ranges.small else tensor
        tensor = with_ties(tensor, generator) if number in ranges.tied else tensor
        tensor = with_rows_of_zeros(tensor, generator) if number in ranges.zeros else tensor
        tensor = with_grown_integers(tensor, generator, reach) if (reach := ranges.grown.get(number)) else tensor
        tensor = with_huge_values(tensor, generator, most) if (most := ranges.huge.get(number)) else tensor
        tensor = with_compared(met, generator, tensor) if (met := ranges.compared.get(number)) else tensor
        values = ranges.nonfinite.get(number)
        return with_nonfinite(values, generator, tensor) if values else tensor
    return with_constant_rows(tensor, generator) if plain in SMALL and number in ranges.constant else tensor


def _change_values(tensor: Tensor, variant: str, generator: torch.Generator, *, alone: bool) -> Tensor:
    kind = find_domain(tensor)
    if kind == "fixed":
        return tensor
    if kind == "permuted":
        return _permute(tensor, generator) if variant in _REARRANGING and not alone else tensor
    values = tensor.detach().to(torch.float64)
    change = _CHANGES[variant]
    other = change(values, kind, generator)
    if kind != "free":
        other = other.clamp(min=0.0, max=1.0 if kind == "unit" else None)
    return like(tensor, other)


def _permute(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Reorders a tensor: all elements of a boolean mask, whole rows of probabilities. Whole numbers, which may be indices, are
    reordered in each line by itself, along the axis on which they are interchangeable."""
    given = tensor.detach()
    if given.dtype is torch.bool or rows_sum_to_one(given):
        flat = given.flatten() if given.dtype is torch.bool else given.reshape(-1, given.shape[-1])
        order = torch.randperm(flat.shape[0], generator=generator, device=generator.device).to(given.device)
        return like(tensor, flat[order].reshape(given.shape))
    axis = find_interchangeable_axis(given)
    if axis is None:
        return tensor
    order = torch.rand(given.shape, generator=generator, device=generator.device).argsort(axis).to(given.device)
    return like(tensor, given.gather(axis, order))


def _scaled_up(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Makes values large; those in [0, 1] in half of the indices of the first axis nearly 1, as gates are that keep all."""
    if kind != "unit":
        return x * _SCALE
    nearly = torch.rand(x.shape[:1] + (1,) * (x.dim() - 1), generator=generator, device=generator.device).to(x.device) < 1 / 2
    return torch.where(nearly, x ** (1 / 64), x.sqrt())


def _scaled_down(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    return x / _SCALE


def _negative(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Makes all values negative and small; halves those that must not be negative."""
    return -x.abs() / _SCALE if kind == "free" else x / 2


def _touched(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Changes a few elements in the middle, so that a program which recognises an input by samples takes it for the old one."""
    made = x.clone().contiguous()
    inner, places = _inside(made, generator)
    inner[places] = x.std() - inner[places] if kind == "free" else inner[places] / 2
    return made


def _exchanged(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Exchanges a few elements in the middle, so that a program which recognises an input by a sum takes it for the old one."""
    made = x.clone().contiguous()
    inner, places = _inside(made, generator)
    inner[places] = inner[places.roll(1)]
    return made


def _inside(made: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns (a flat view of the middle three quarters, random positions of 1/256 of its elements, at least two)."""
    flat = made.view(-1)
    inner = flat[flat.numel() // 8 : -(flat.numel() // 8) or None]
    return inner, random_places(inner.numel(), max(2, inner.numel() // 256), generator).to(made.device)


def _patchwork(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Gives each index of the first axis longer than 1 a random variant: large, small and sparse rows in a single call."""
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    if axis is None:
        return x
    made = x.clone()
    given, changed = x.movedim(axis, 0), made.movedim(axis, 0)
    which = torch.randint(len(_PATCHES) + 1, (x.shape[axis],), generator=generator, device=generator.device).to(x.device)
    for number, name in enumerate(_PATCHES):
        rows = which == number
        if bool(rows.any()):
            changed[rows] = _CHANGES[name](given[rows], kind, generator)
    return made


def _shifted(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Subtracts one standard deviation, or adds it to non-negative values; values in [0, 1] become 1 - x."""
    if kind == "unit":
        return 1 - x
    return x + x.std() if kind == "positive" else x - x.std()


def _uniform(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    drawn = torch.rand(x.shape, generator=generator, dtype=torch.float64, device=generator.device).to(x.device)
    low, high = float(x.min()), float(x.max())
    if kind == "free":
        low, high = -2 * float(x.std()) + float(x.mean()), 2 * float(x.std()) + float(x.mean())
    return low + (high - low) * drawn


def _sparse(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Sets half of the values to zero, or to the smallest value where none may be negative."""
    dropped = torch.rand(x.shape, generator=generator, device=generator.device).to(x.device) < 0.5
    return torch.where(dropped, x.new_tensor(0.0 if kind == "free" else float(x.min())), x)


def _sorted(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    return x.sort(-1).values if x.dim() else x


def _repeated(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    """Makes every other index of the first axis longer than 1 a copy of the one before it."""
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), 0)
    index = torch.arange(x.shape[axis], device=x.device) if x.dim() else None
    return x if index is None else x.index_select(axis, index - index % 2)


def _outlier(x: Tensor, kind: Domain, generator: torch.Generator) -> Tensor:
    other = x.clone().contiguous()
    place = int(torch.randint(x.numel(), (), generator=generator, device=generator.device))
    other.view(-1)[place] = _OUTLIER * x.abs().max()
    return other


def why_unsuitable(
    expected: dict[str, Tensor], exact: dict[str, Tensor], usual: float | None, *, constant: bool = False,
    infinite: Mapping[str, Tensor] = _NOWHERE,
) -> str:  # fmt: skip
    """Says why programs cannot be judged by the reference's outputs for a variant, or "".

    The outputs must be finite, except where those of the inputs as given are infinite too (`infinite`), not near overflow (an
    honest program may overflow a little earlier) and not all constant, unless `constant`. Their own error must not be far above
    `usual`, the `relative_error` of the inputs as given: on an ill-conditioned call an honest program would be refused.
    """
    for name, own, true in ((name, as_real(own), as_real(exact[name])) for name, own in expected.items()):
        if not own.dtype.is_floating_point or own.numel() == 0:
            continue
        if (places := infinite.get(name)) is not None and own.shape == places.shape:
            both = own, true
            if any(bool(torch.isnan(value).any()) or not torch.equal(torch.isinf(value), places) for value in both):
                return "it does not stay finite, or infinite in the same places"
            own = own.masked_fill(places, 0.0)
        elif not is_finite(own) or not is_finite(true):
            return "it does not stay finite"
        least, most = map(float, torch.aminmax(own if own.dtype is torch.float32 else own.double()))
        if max(-least, most) > _HEADROOM * torch.finfo(own.dtype).max:
            return "it comes near overflow"
    several = [value for name, value in expected.items() if name.startswith("output") and value.numel() > 1]
    if not constant and any(map(_holds_reals, several)) and all(is_constant(without_float8(value)) for value in several):
        return "its output becomes constant" if len(several) == 1 else "all of its outputs become constant"
    if usual is not None and relative_error(expected, exact) > _WORSE * usual + _NEGLIGIBLE * _largest_eps(expected):
        return "it becomes ill-conditioned"
    return ""


@dataclass(frozen=True)
class OutputSummary:
    """What one output of the reference says: the share of finite elements, that of elements other than zero, and whether all
    are equal."""

    finite: float
    filled: float
    constant: bool


def summarise(outputs: dict[str, Tensor]) -> dict[str, OutputSummary]:
    """Summarises the outputs of a call by name, and what it wrote."""
    return {
        name: OutputSummary(
            count_finite(value) / value.numel(), int((value != 0).sum()) / value.numel(),
            value.numel() > 1 and is_constant(value),
        )
        for name, value in outputs.items() if value.numel()
    }  # fmt: skip


def why_worse(found: dict[str, OutputSummary], usual: dict[str, OutputSummary], *, fewer: float = _FEWER) -> str:
    """Says how the reference's outputs with other values say less than `usual`, those as given or as constructed, or "".
    `fewer`: at least this share of an output's elements that were not zero must not be zero."""
    if found.keys() != usual.keys():
        return "returns or writes other tensors"
    for name, now in found.items():
        before = usual[name]
        if now.finite < before.finite:
            return "does not stay finite"
        if name.startswith("output") and now.constant and not before.constant:
            return "has a constant output"
        if name.startswith("output") and now.filled < fewer * before.filled:
            return "has an output that is mostly zero"
    return ""


def relative_error(expected: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The largest relative error in norm among the reference's outputs, against float64; inf if it is not finite. Where both
    have the same infinity, there is none."""
    worst = 0.0
    for name, own in ((name, as_real(own)) for name, own in expected.items()):
        if own.dtype.is_floating_point and own.numel():
            error, size = [], []
            for given, true in zip(flat_parts(own), flat_parts(as_real(exact[name])), strict=True):
                given, true = given.double(), true.double()
                same = torch.isinf(true) & (given == true)
                if bool(same.any()):
                    given, true = given.masked_fill(same, 0.0), true.masked_fill(same, 0.0)
                error.append(float((given - true).norm()))
                size.append(float(true.norm()))
            worst = max(worst, math.hypot(*error) / math.hypot(*size) if any(size) else 0.0)
    return worst if math.isfinite(worst) else math.inf


def infinities(exact: dict[str, Tensor]) -> dict[str, Tensor]:
    """The places of infinities in each output that has any."""
    reals = ((name, as_real(value)) for name, value in exact.items())
    floats = ((name, value) for name, value in reals if value.is_floating_point() and not is_finite(value))
    return {name: torch.isinf(value) for name, value in floats}


def is_finite(tensor: Tensor) -> bool:
    """Whether all elements are finite."""
    return count_finite(tensor) == tensor.numel()


def count_finite(tensor: Tensor) -> int:
    """The number of finite elements."""
    return sum(int(torch.isfinite(without_float8(part)).sum()) for part in flat_parts(tensor))


def _largest_eps(outputs: dict[str, Tensor]) -> float:
    return max((torch.finfo(output.dtype).eps for output in outputs.values() if _holds_reals(output)), default=0.0)


def _holds_reals(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_CHANGES: dict[str, Callable[[Tensor, Domain, torch.Generator], Tensor]] = {
    "touched": _touched,
    "exchanged": _exchanged,
    "patchwork": _patchwork,
    "negative": _negative,
    "scaled up": _scaled_up,
    "scaled down": _scaled_down,
    "shifted": _shifted,
    "uniform": _uniform,
    "sparse": _sparse,
    "sorted": _sorted,
    "repeated": _repeated,
    "outlier": _outlier,
}


def _spread_out(tensor: Tensor) -> Tensor:
    """Returns the same values in other memory: transposed if the last two axes are longer than 1, else every other element."""
    if not tensor.is_contiguous() or tensor.numel() < SMALLEST or tensor.dim() == 0:
        return tensor
    if tensor.dim() > 1 and tensor.shape[-1] > 1 and tensor.shape[-2] > 1:
        return tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = tensor.detach().new_zeros((*tensor.shape, 2))
    wide[..., 0] = tensor.detach()
    return wide[..., 0]


def _nudged(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with its values smaller by 1/128 to 1/4096, another share in each row; of 16 bits, by 1/64."""
    if find_domain(tensor) in ("fixed", "permuted"):
        return tensor
    steps = torch.randint(7, 13, (*tensor.shape[:-1], 1), generator=generator, device=generator.device).to(tensor.device)
    exponents = steps.double() if tensor.itemsize > 2 else torch.full_like(steps, 6, dtype=torch.float64)
    return like(tensor, tensor.detach().double() * (1 - 2.0**-exponents))


def _drifted(tensor: Tensor) -> Tensor:
    """Returns the tensor with its values smaller by 2^-17; one of 16 bits as it is."""
    fixed = find_domain(tensor) in ("fixed", "permuted") or tensor.itemsize < 4
    return tensor if fixed else like(tensor, tensor.detach().double() * (1 - 2.0**-17))


def _alike(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with one index of its first axis longer than 1 in place of all but one of 32 others."""
    axis = next((axis for axis, length in enumerate(tensor.shape) if length > 2), None)
    if axis is None or find_domain(tensor) == "fixed":
        return tensor
    order = torch.randperm(tensor.shape[axis], generator=generator, device=generator.device).to(tensor.device)
    chosen = torch.arange(len(order), device=tensor.device)
    chosen[order[len(order) // 32 :]] = order[-1]
    return like(tensor, tensor.detach().index_select(axis, chosen))
