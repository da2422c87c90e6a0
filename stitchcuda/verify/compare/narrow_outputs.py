"""What 16-bit outputs (bfloat16, float16) are allowed: less than ten times the reference's own error.

Most of that error is writing the result down, at most half an ulp, which every honest program shares and none exceeds by
factors; ten times it and four ulps would be some per cent of a bfloat16. So two things are told apart: what it costs to round
the float64 result, and what the reference's own roundings inside add. The norm of an output averages over luck and is the
tight one. Single elements are held to twice their rounding, an ulp, and five times what was added inside, slices to five
times the error of slices like them. What is small enough to come of float32 inside counts ten times, as everywhere.

The constants come of simulating honest programs (one rounding at the end; the reference's roundings with sums in another
order; any subset of its roundings; flash attention, folded and one-pass norms) for 27 operators, both types, reduced sizes of
32 to 8192 and the variants of `verify/inputs/variants.py`: in 20,000 judgements they used at most 0.51 of what is allowed; a
tanh that is good to 2^-11, as hardware's is, 0.8 in float16, and sums of 8192 products one after the other, where they cancel,
0.7. Where elements, slices and uneven errors were allowed 2 times too, some attentions were refused: how the near tie of a
sharp softmax falls is luck. Of dishonest ones, a mean over half of 2048 numbers exceeds the bound 2 times and more, and so do
products whose factors have 6 bits. `tests/verify/test_bound_narrow.py` repeats both in small. Pure functions that make no
verdict; where to look next: `verify/compare/bound.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from stitchcuda.verify.compare import reference_error
from stitchcuda.verify.compare.reference_error import Differences, Float64Output, as_float64_output

ULPS = 1.0                                 # of an element, beside twice its rounding
INSIDE = 5.0                               # times the largest error that roundings inside add, and times that of slices alike
NORM_INSIDE = 2.0                          # times the norm of what they add, where all slices have their part of it,
FEW = 10.0                                 # and at most where few have
NORM_ULPS = 0.2                            # of the norm, where many elements carry it; of one element an ulp
SLICE_ULPS = 0.25
LIKE = 64                                  # slices of the next larger and smaller norms: few of them are ill-conditioned
FLOAT32 = 2.0**-16                         # of the scale: errors below it may be float32's
FLOAT32_EPS = 2.0**-19                     # of the largest value within reach, for sums that float32 takes in another order
_FINEST, _COARSEST = 2.0**-11, 0.1


def applies(unit: float) -> bool:
    """Whether it is the ulp of a 16-bit float."""
    return _FINEST < unit < _COARSEST


@dataclass(frozen=True)
class RoundingShare:
    """Whose the reference's error in norm is, relative to the output's."""

    rounding: float                        # of the float64 result written down
    inside: float                          # what the reference adds to it
    even: float                            # 1 where all slices have their part of the error, 1/n where one of n has it all
    carried: float                         # how many elements carry the output's norm


def share(own: torch.Tensor, exact: torch.Tensor | Float64Output, found: Differences) -> RoundingShare:
    size = found.size.norm
    if size == 0.0:
        return RoundingShare(0.0, 0.0, 1.0, 1.0)
    known = as_float64_output(exact)
    least, error = known.against(known.exact.to(own.dtype)).off.norm, found.off.norm
    return RoundingShare(
        rounding=min(least, error) / size,
        inside=math.sqrt(max(0.0, error**2 - least**2)) / size,
        even=_even(found),
        carried=found.size.carried(),
    )


def norm_allowed(share: RoundingShare, unit: float) -> float:
    """Of an output, relative to its norm."""
    inside = min(FEW, NORM_INSIDE / math.sqrt(share.even))
    return 2 * share.rounding + inside * share.inside + unit * max(NORM_ULPS, ULPS / math.sqrt(max(1.0, share.carried)))


def inside_allowed(error: float) -> float:
    """Of an element, for an error of the reference's beyond its rounding; both relative to the scale."""
    return max(INSIDE * error, min(FEW * error, FLOAT32))


def slices_allowed(like: torch.Tensor, sizes: torch.Tensor, typical: float, unit: float) -> torch.Tensor:
    """Of slices of norms `sizes` for the largest error of their like; `typical`: the norm of a slice like the whole."""
    return torch.maximum(INSIDE * like, torch.clamp(FEW * like, max=FLOAT32 * typical)) + SLICE_ULPS * unit * sizes


def _even(found: Differences) -> float:
    even = 1.0
    for _, kept in reference_error.partitions(found.off.values.shape):
        errors, sizes = found.off.slices(kept), found.size.slices(kept)
        there = sizes > 0
        relative = (errors[there] / sizes[there]).square()
        if relative.numel() and float(relative.max()) > 0:
            relative = relative / relative.max()
            even = min(even, float(relative.mean() ** 2 / relative.square().mean()))
    return even
