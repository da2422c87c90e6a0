"""Decides whether one output of a program is close enough to float64, by a bound that follows the reference's own error.

The bound: `FACTOR` times the reference's own error against float64, plus `ULPS` units in the last place of the output's scale
(its largest magnitude), since an exact reference has no error. Errors are measured in norm and at the worst element of the
output, and again where the whole output would hide them: an element is compared with the errors of elements at most `REACH`
times larger (so not with those next to a mask of -1e9), a slice with slices of similar norm. TF32 (250 times the error of
fp32), a wide softmax answered with zeros and a small row left out do not pass; three products of bf16 parts lie at the limit
(10 to 13 times). 16-bit outputs are allowed less. Pure functions on tensors of one device, in float64 there.
Where to look next: `verify/compare/narrow_outputs.py` (16-bit outputs), `verify/compare/reference_error.py` (what is measured).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stitchcuda.state import OutputError, Record
from stitchcuda.verify.compare import narrow_outputs, reference_error, unwritten
from stitchcuda.verify.compare.error_pattern import ErrorPattern
from stitchcuda.verify.compare.reference_error import CLASSES, Differences, OutputPart

FACTOR = 10.0                              # times the reference's own error
ULPS = 4.0                                 # of the output's scale
EXACT_ULPS = 256.0                         # for a float64 reference, whose own error shows as zero
REACH = 2.0**10                            # the rounding of values up to this many times larger excuses an element's error
_RARE = 1e-3                               # with a smaller share of the elements, or fewer than `_FEW`, a class of magnitudes
_FEW = 8                                   # shares the limit of a larger one
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_COARSE = 0.1                              # eps of 8-bit floats: ten times their rounding would be more than the value


class Bound(Record):
    """The errors that one output may have: `max_relative` of its scale at the worst element, `norm_relative` of its norm."""

    max_relative: float
    norm_relative: float
    unit: float = 0.0                      # eps of the dtype; 0: elements have no limit by their magnitude
    errors: tuple[float, ...] = (0.0,) * CLASSES   # the reference's, as in `Measure`, largest of all input sets
    slice_relative: float = math.inf       # of a slice's norm; a larger error is compared with slices of similar norm


class Measure(Record):
    """The reference's own error in one output on one input set, relative to the output's scale or norm."""

    unit: float                            # eps of the dtype
    worst: float                           # at the worst element, relative to the scale
    norm: float                            # in norm
    counts: tuple[int, ...] = (0,) * CLASSES   # number of elements per magnitude class
    errors: tuple[float, ...] = (0.0,) * CLASSES   # largest error per class beyond the rounding of the element itself
    slices: float = 0.0                    # in norm, of the median slice
    share: narrow_outputs.RoundingShare | None = None      # for 16-bit outputs only


def eps(dtype: torch.dtype) -> float:
    """One unit in the last place at 1; 0.0 for integers and booleans, which must be exact."""
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


def measure_error(own: torch.Tensor, exact: torch.Tensor, *, device: str | None = None) -> Measure:
    """Measures how far the reference's output `own` is from its float64 output `exact`. `device`: where it computes, by default
    where they are."""
    unit = eps(own.dtype)
    if unit == 0.0:
        return Measure(unit=unit, worst=0.0, norm=0.0)
    found = Differences(own, exact, device=device, forgiven=unit / 2 if unit >= _COARSE else 0.0)
    size, scale = found.size.norm, found.size.largest
    counts, errors = found.by_class(unit / 2)
    return Measure(
        unit=unit,
        worst=found.error.largest / scale if scale else 0.0,
        norm=found.error.norm / size if size else 0.0,
        counts=tuple(counts.tolist()),
        errors=tuple(errors.tolist()),
        slices=reference_error.typical_slice(found),
        share=narrow_outputs.share(own.dtype, exact, found) if narrow_outputs.applies(unit) else None,
    )


def bound(expected: list[torch.Tensor], exact: list[torch.Tensor]) -> Bound:
    """The bound for one output from the reference's outputs over all input sets, in their own dtype and in float64."""
    return pool_measures([measure_error(own, true) for own, true in zip(expected, exact, strict=True)])


def pool_measures(measures: Sequence[Measure]) -> Bound:
    """The bound for one output from the reference's errors over all input sets: on a single set they can be small by luck."""
    unit = measures[0].unit if measures else 0.0
    ulps = _ulps(unit)
    errors = tuple(max(largest) for largest in zip(*(measure.errors for measure in measures), strict=True)) or (0.0,) * CLASSES
    if narrow_outputs.applies(unit):
        return Bound(
            max_relative=narrow_outputs.inside_allowed(max(errors)) + _rounding(unit) + ulps * unit,
            norm_relative=_middle([narrow_outputs.norm_allowed(measure.share, unit) for measure in measures if measure.share]),
            unit=unit, errors=errors,
            slice_relative=(
                narrow_outputs.INSIDE * _middle([measure.slices for measure in measures]) + narrow_outputs.SLICE_ULPS * unit
            ),
        )
    return Bound(
        max_relative=FACTOR * max((measure.worst for measure in measures), default=0.0) + ulps * unit,
        norm_relative=FACTOR * max((measure.norm for measure in measures), default=0.0) + ulps * unit,
        unit=unit, errors=errors,
        slice_relative=FACTOR * max((measure.slices for measure in measures), default=0.0) + ulps * unit,
    )


def judge(
    name: str,
    given: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    allowed: Bound,
    own: Measure | None = None,
    *,
    device: str | None = None,
) -> OutputError:
    """Compares a program's output `given` with float64. Shape, dtype and the places of NaN and infinities are compared first.

    `expected`, `exact`: the reference's output in its own dtype and in float64. `own`: the measured error of `expected`, if it
    was measured before. `device`: where it computes, by default where they are. `note` of the result says in a phrase what is
    wrong.
    """
    def refused(note: str) -> OutputError:
        return OutputError(
            name=name, max_error=math.inf, max_bound=0.0, norm_error=math.inf, norm_bound=0.0, ok=False, note=note
        )

    if given.shape != expected.shape:
        return refused(f"has shape {tuple(given.shape)} where the reference has {tuple(expected.shape)}")
    if given.dtype != expected.dtype:
        return refused(f"has dtype {_name(given.dtype)} where the reference has {_name(expected.dtype)}")
    if given.dtype is torch.bool and bool((given.view(torch.uint8) > 1).any()):
        return refused("has booleans whose byte is neither 0 nor 1, as in memory that nothing wrote")
    if eps(expected.dtype) == 0.0:
        differs = _signed(given) != _signed(expected)
        wrong, note = int(differs.sum()), ""
        if wrong:
            note = f"{wrong} of {given.numel()} elements differ (integers and booleans must be exact){_pattern_of(differs)}"
        worst = float((given.double() - expected.double()).abs().max()) if wrong else 0.0
        return OutputError(
            name=name, max_error=worst, max_bound=0.0, norm_error=worst, norm_bound=0.0, ok=not wrong, note=note
        )
    if problem := _nonfinite(given, expected):
        return refused(problem)
    found = Differences(given, exact, device=device)
    if narrow_outputs.applies(eps(expected.dtype)):
        own = own or measure_error(expected, exact, device=device)
        allowed = _at_least(allowed, pool_measures([own]))
    worst, norm = found.error.largest, found.error.norm
    max_bound, norm_bound = allowed.max_relative * found.size.largest, allowed.norm_relative * found.size.norm
    bits = _bits(norm / found.size.norm if found.size.norm else 0.0, expected.dtype)
    note, limits = "", _limits(found, allowed, own)
    if worst > max_bound or norm > norm_bound:
        note = _where(given, exact, found) + _pattern(exact, found, limits)
    elif hidden := _in_a_class(given, exact, found, limits):
        worst, max_bound, note = hidden
        note += _pattern(exact, found, limits)
    elif hidden := _in_a_slice(expected, exact, found, allowed):
        norm, norm_bound, note = hidden
    return OutputError(
        name=name, max_error=worst, max_bound=max_bound, norm_error=norm, norm_bound=norm_bound, ok=not note, note=note,
        bits=bits, bits_of_reference=_bits(own.norm, expected.dtype) if own is not None else None,
        bits_allowed=_bits(allowed.norm_relative, expected.dtype),
    )  # fmt: skip


def find_off(given: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, allowed: Bound | None = None) -> torch.Tensor:
    """A mask of the rows of the last axis that have any element with a larger error than half of what is allowed for its
    magnitude; of integers and booleans, with another value than expected."""
    if allowed is None or eps(expected.dtype) == 0.0 or not given.numel():
        off = _signed(given) != _signed(expected)
    else:
        found = Differences(given, exact)
        limits, parts = _limits(found, allowed, None) / 2, []
        for part in found.parts():
            which = reference_error.classes(part.size, found.size.largest or 1.0).clamp_(max=len(limits) - 1)
            parts.append((part.error > limits[which]).flatten())
        given, expected = (tensor.float() if tensor.itemsize == 1 else tensor for tensor in (given, expected))
        same = (given == expected) | (torch.isnan(given) & torch.isnan(expected))
        off = torch.cat(parts).view(given.shape) | ~(same | (torch.isfinite(given) & torch.isfinite(expected)))
    return off.any(-1, keepdim=True).expand(off.shape).clone() if off.dim() > 1 else off


def _bits(error: float, dtype: torch.dtype) -> float:
    """The bits of a significand with which one operation has this relative error in norm, at most those of the dtype."""
    most = 1.0 - math.log2(eps(dtype))
    return round(min(most, -math.log2(error)), 1) if error > 0 and math.isfinite(error) else most


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits as signed integers, where torch compares no unsigned ones on a GPU."""
    return tensor.view(_SIGNED[tensor.dtype]) if tensor.dtype in _SIGNED else tensor


def _middle(of_sets: list[float]) -> float:
    """The median: input sets on which the reference is inaccurate widen no other set's bound, only their own (`_at_least`)."""
    return sorted(of_sets)[len(of_sets) // 2]


def _at_least(allowed: Bound, by_itself: Bound) -> Bound:
    """The bound over all input sets, with the limits in norm raised to those of `by_itself`, this set's own bound."""
    return Bound(
        max_relative=allowed.max_relative,
        norm_relative=max(allowed.norm_relative, by_itself.norm_relative),
        unit=allowed.unit, errors=allowed.errors,
        slice_relative=max(allowed.slice_relative, by_itself.slice_relative),
    )


def _ulps(unit: float) -> float:
    if narrow_outputs.applies(unit):
        return narrow_outputs.ULPS
    if unit >= _COARSE:
        return 1.5
    return EXACT_ULPS if unit <= torch.finfo(torch.float64).eps else ULPS


def _rounding(unit: float) -> float:
    """The error allowed for rounding an element to its dtype, relative to the element."""
    if narrow_outputs.applies(unit):
        return unit
    return unit / 2 * (1.0 if unit >= _COARSE else FACTOR)


def _reach(unit: float) -> int:
    """The octaves above an element whose rounding excuses its error: so few that an element left out is noticed."""
    if not unit or narrow_outputs.applies(unit):
        return 0
    return max(0, min(int(math.log2(REACH)), math.floor(math.log2(1 / (8 * ULPS * unit)))))


def _limits(found: Differences, allowed: Bound, own: Measure | None) -> torch.Tensor:
    """The error allowed in each magnitude class of an output. Rare is what is rare in this input set, since another one may
    have rows of small values. `own`: the measured error of the reference's output, if it was measured before."""
    if not allowed.unit:
        return torch.tensor([allowed.max_relative * found.size.largest], dtype=torch.float64, device=found.device)
    counts = own.counts if own else tuple(found.by_class(allowed.unit / 2)[0].tolist())
    limits = _by_class(counts, allowed.errors, allowed.unit)
    return torch.tensor(limits, dtype=torch.float64, device=found.device).mul_(found.size.largest)


def _by_class(counts: Sequence[int], errors: Sequence[float], unit: float) -> tuple[float, ...]:
    """The error allowed in each magnitude class, relative to the scale.

    It is `FACTOR` times the reference's largest error in this class, all below and those within `REACH` above, plus ulps of the
    largest value within `_reach`. Rare values (near a zero crossing) and rare zeros share the limit of the next larger class
    that is not rare: rows of small values, which have a limit of their own, may be much smaller still.
    """
    far, near, ulps = int(math.log2(REACH)), _reach(unit), _ulps(unit)
    edges = [min(1.0, 2.0 ** (1 - number)) for number in range(CLASSES)]
    below = list(errors)                   # the largest error in a class and those below
    for number in range(CLASSES - 2, -1, -1):
        below[number] = max(below[number], below[number + 1])
    enough = max(_FEW, _RARE * sum(counts))
    allowed, common = [], -1
    for number in range(CLASSES):
        common = number if counts[number] >= enough else common
        at = common if common >= 0 else number
        largest = next((j for j in range(max(0, at - near), at) if counts[j]), at)
        error = below[max(0, at - far)]
        inside = FACTOR * error
        if narrow_outputs.applies(unit):
            inside = narrow_outputs.inside_allowed(error) + narrow_outputs.FLOAT32_EPS * edges[max(0, at - far)]
        allowed.append(inside + _rounding(unit) * edges[at] + ulps * unit * edges[largest])
    return tuple(allowed)


def _in_a_class(
    given: torch.Tensor, exact: torch.Tensor, found: Differences, limits: torch.Tensor
) -> tuple[float, float, str] | None:
    """Returns (error, limit, note) of the element that exceeds the limit of its magnitude most; None if none does."""
    scale = found.size.largest
    if len(limits) == 1 or scale == 0.0 or found.error.largest <= float(limits.min()):
        return None

    def excess(part: OutputPart) -> torch.Tensor:
        return part.error / limits[reference_error.classes(part.size, scale)]

    flat, most, count = found.worst(excess, 1.0)
    if most <= 1.0:
        return None
    index = _index(flat, given)
    error, size = abs(complex(given[index].item()) - complex(exact[index].item())), abs(complex(exact[index].item()))
    limit = float(limits[int(reference_error.classes(torch.tensor(size, dtype=torch.float64), scale))])
    beside = f"{count} of {given.numel()} elements are off by more than values of their size may be"
    note = f"{_zeros(given)}{_at(given, exact, flat)}; {beside} (the largest value, {scale:.3g}, does not excuse it)"
    return error, limit, note


def _in_a_slice(
    expected: torch.Tensor, exact: torch.Tensor, found: Differences, allowed: Bound
) -> tuple[float, float, str] | None:
    """Returns (error in norm, limit, note) of the slice that exceeds its limit most; None if none does."""
    unit = eps(expected.dtype)
    elements = found.shape.numel()
    overall = found.size.norm / max(1.0, math.sqrt(elements))
    own: Differences | None = None
    for title, kept in reference_error.partitions(found.shape):
        errors, sizes = found.error.slices(kept), found.size.slices(kept)
        typical = overall * math.sqrt(elements / max(1, errors.numel()))
        common = torch.clamp(2.0 ** _reach(unit) * sizes, max=typical)
        ulps = _ulps(unit) * unit * torch.maximum(sizes, common)
        enough = allowed.slice_relative * sizes + (0.0 if narrow_outputs.applies(unit) else ulps)
        if not bool(((errors > enough) & (sizes > 0)).any()):
            continue
        own = own or Differences(expected, exact, device=found.device)
        owns = own.error.slices(kept)
        if narrow_outputs.applies(unit):
            like = reference_error.around(owns, sizes, narrow_outputs.LIKE) * sizes
            limit = torch.maximum(narrow_outputs.slices_allowed(like, sizes, typical, unit), enough)
        else:
            like = reference_error.around(owns, sizes) * sizes
            limit = FACTOR * like + torch.maximum(allowed.slice_relative * sizes, ulps)
        excess = torch.where((sizes > 0) & found.spread(kept), errors / limit, torch.zeros_like(errors))
        if float(excess.max()) <= 1.0:
            continue
        flat = int(excess.argmax())
        index = torch.unravel_index(torch.tensor(flat), [found.shape[axis] for axis in kept])
        place = title.format(", ".join(str(int(part)) for part in index))
        error, size, most = float(errors[flat]), float(sizes[flat]), float(limit[flat])
        note = (
            f"{place} is wrong: its error in norm is {error / size:.2g} of its own norm where {most / size:.2g} is allowed; "
            f"so are {int((excess > 1).sum()) - 1} of {excess.numel() - 1} others"
        )
        return error, most, note
    return None


def _nonfinite(given: torch.Tensor, expected: torch.Tensor) -> str:
    """Says how the places of NaN and infinities differ from the reference's; "" if they are the same."""
    held = given
    if given.dtype.itemsize == 1:
        given, expected = given.float(), expected.float()  # torch has no isinf for fp8
    if bool(torch.isfinite(given.sum())) and bool(torch.isfinite(expected.sum())):
        return ""                          # the quick way: a sum with NaN or infinities in it is not finite
    for what, test in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        if given.dtype.is_complex and what != "NaN":
            continue
        ours, theirs = test(given), test(expected)
        if not torch.equal(ours, theirs):
            extra, lacking = ours & ~theirs, theirs & ~ours
            if bool(extra.any()):
                cause = unwritten.explain_nan(held, extra) if what == "NaN" else ""
                count = f"{what} in {int(extra.sum())} of {given.numel()} elements where the reference has none"
                return f"{count}{f'; {cause}' if cause else ''}{_pattern_of(extra)}"
            return f"{int(lacking.sum())} of {given.numel()} elements should be {what} and are not{_pattern_of(lacking)}"
    return ""


def _pattern_of(wrong: torch.Tensor) -> str:
    """Returns "; all wrong elements are in …", or "" where they lie in no pattern."""
    pattern = ErrorPattern(wrong.shape, wrong.device)
    pattern.add(wrong, 0, tuple(slice(0, length) for length in wrong.shape))
    return f"; {pattern.describe()}".rstrip("; ")


def _pattern(exact: torch.Tensor, found: Differences, limits: torch.Tensor) -> str:
    """The same for the elements whose errors are above what is allowed for their magnitude."""
    pattern, scale = ErrorPattern(found.shape, found.device), found.size.largest
    for part in found.parts():
        which = reference_error.classes(part.size, scale).clamp_(max=len(limits) - 1)
        true = None if exact.dtype.is_complex else exact[part.place].to(found.device)
        pattern.add(part.error > limits[which], part.start, part.place, true)
    return f"; {pattern.describe()}".rstrip("; ")


def _where(given: torch.Tensor, exact: torch.Tensor, found: Differences) -> str:
    """Names the worst element with its value and how many elements are far off, so that a model can find the mistake."""
    scale = found.size.largest
    flat, _, far = found.worst(lambda part: part.error, 1e-2 * scale)
    total = given.numel()
    if not scale:
        return f"should be zero everywhere; {_at(given, exact, flat)}; {far} of {total} elements are not zero"
    return f"{_zeros(given)}{_at(given, exact, flat)}; {far} of {total} elements off by over 1 % of the scale"


def _at(given: torch.Tensor, exact: torch.Tensor, flat: int) -> str:
    index = _index(flat, given)
    value, should = given[index].item(), exact[index].item()
    return f"worst at {list(index)}: {value:.6g} where {should:.6g} is right"


def _index(flat: int, tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), tensor.shape))


def _zeros(given: torch.Tensor) -> str:
    given = given.float() if given.dtype.itemsize == 1 else given      # a GPU compares no fp8
    return "the output is all zeros; " if bool((given == 0).all()) else ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
