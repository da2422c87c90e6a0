"""Computes the error bounds of 16-bit outputs (bfloat16, float16): less than ten times the reference's own error.

Most of that error is the final rounding, at most half an ulp, which every honest program shares and none exceeds by factors;
ten times it and four ulps would be some per cent of a bfloat16. So two parts are told apart: the error of rounding the float64
result, and what the reference's roundings inside add. The norm of an output averages over luck and has the tightest limit. A
single element may have twice its rounding, an ulp, and five times what was added inside; a slice five times the error of slices
of similar norm. An error small enough to come from float32 inside counts ten times, as in other outputs.

The constants come from simulated honest programs (one rounding at the end; the reference's roundings with sums in another
order; any subset of its roundings; flash attention, folded and one-pass norms) for 27 operators, both types, reduced sizes of
32 to 8192 and the variants of `verify/inputs/variants.py`: in 20,000 judgements they used at most 0.51 of what is allowed; a
tanh good to 2^-11, as hardware's is, 0.8 in float16, and sequential sums of 8192 products that cancel 0.7. With a factor of 2
for elements, slices and uneven errors too, some attentions were refused, because the near tie of a sharp softmax falls by luck.
Of dishonest programs, a mean over half of 2048 numbers exceeds the bound at least 2 times, and so do products of factors with
6 bits. `tests/verify/test_bound_narrow.py` repeats both on a small scale.
Where to look next: `verify/compare/bound.py` (who decides).
"""

from __future__ import annotations

import math

import torch

from stitchcuda.state import Record
from stitchcuda.verify.compare import reference_error
from stitchcuda.verify.compare.reference_error import Differences

ULPS = 1.0                                 # for an element, on top of twice its rounding
INSIDE = 5.0                               # times the largest error added inside; for slices, times that of similar slices
NORM_INSIDE = 2.0                          # in norm, times the error added inside, if it is spread over all slices,
FEW = 10.0                                 # up to this many times if it lies in few of them
NORM_ULPS = 0.2                            # of the norm if many elements carry it, up to `ULPS` if one does
SLICE_ULPS = 0.25                          # of a slice's norm
LIKE = 64                                  # next larger and smaller slices that count as similar: few are ill-conditioned
FLOAT32 = 2.0**-16                         # of the scale: smaller errors may come from float32 arithmetic
FLOAT32_EPS = 2.0**-19                     # of the largest value within reach, for float32 sums in another order
_FINEST, _COARSEST = 2.0**-11, 0.1


def applies(unit: float) -> bool:
    """Whether `unit` is the eps of a 16-bit float."""
    return _FINEST < unit < _COARSEST


class RoundingShare(Record):
    """The parts of the reference's error in norm, relative to the output's norm."""

    rounding: float                        # from rounding the float64 result
    inside: float                          # from roundings inside the reference
    even: float                            # 1 if the error is spread over all slices, 1/n if one of n slices has it all
    carried: float                         # how many elements carry the output's norm


def share(dtype: torch.dtype, exact: torch.Tensor, found: Differences) -> RoundingShare:
    """Splits the error `found` of the reference's output, of type `dtype`, against `exact` into its parts."""
    size = found.size.norm
    if size == 0.0:
        return RoundingShare(rounding=0.0, inside=0.0, even=1.0, carried=1.0)
    least, error = Differences(exact.to(dtype), exact, device=found.device).error.norm, found.error.norm
    return RoundingShare(
        rounding=min(least, error) / size,
        inside=math.sqrt(max(0.0, error**2 - least**2)) / size,
        even=_even(found),
        carried=found.carried(),
    )


def norm_allowed(share: RoundingShare, unit: float) -> float:
    """The error in norm allowed for an output, relative to its norm."""
    inside = min(FEW, NORM_INSIDE / math.sqrt(share.even))
    return 2 * share.rounding + inside * share.inside + unit * max(NORM_ULPS, ULPS / math.sqrt(max(1.0, share.carried)))


def inside_allowed(error: float) -> float:
    """The error allowed for an element on top of its rounding, given the reference's; both relative to the scale."""
    return max(INSIDE * error, min(FEW * error, FLOAT32))


def slices_allowed(like: torch.Tensor, sizes: torch.Tensor, typical: float, unit: float) -> torch.Tensor:
    """The errors allowed for slices of norms `sizes`, given the largest errors `like` of similar slices. `typical`: the norm of
    a slice if all were alike."""
    return torch.maximum(INSIDE * like, torch.clamp(FEW * like, max=FLOAT32 * typical)) + SLICE_ULPS * unit * sizes


def _even(found: Differences) -> float:
    """How evenly the error is spread over slices, as `RoundingShare.even`, for the least even way to slice."""
    even = 1.0
    for _, kept in reference_error.partitions(found.shape):
        errors, sizes = found.error.slices(kept), found.size.slices(kept)
        there = sizes > 0
        relative = (errors[there] / sizes[there]).square()
        if relative.numel() and float(relative.max()) > 0:
            relative = relative / relative.max()
            even = min(even, float(relative.mean() ** 2 / relative.square().mean()))
    return even
