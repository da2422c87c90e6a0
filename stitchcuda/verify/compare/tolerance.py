"""Computes the absolute and relative tolerance that published checks would need to pass a program's output.

Such checks call `torch.allclose(atol=t, rtol=t)`, often with t = 1e-2 or 1e-4. The tolerance is told beside a verdict, for
comparison with published results; no verdict depends on it.
Where to look next: `verify/compare/bound.py` (the rule that decides), `verify/reference/comparisons.py` (who calls).
"""

from __future__ import annotations

import math

import torch

_PART = 2**25                              # elements that are read at a time


def needed_tolerance(given: torch.Tensor, expected: torch.Tensor, *, device: torch.device | str | None = None) -> float:
    """Returns the smallest t with |given - expected| <= t + t * |expected| for all elements.

    `expected`: the reference's output in its own precision. NaN and infinities must be in the same places. Returns infinity
    for another shape, or where one of the two is not finite and they differ. `device`: where it computes, by default where
    `expected` is.
    """
    if given.shape != expected.shape:
        return math.inf
    wide = torch.complex128 if expected.is_complex() or given.is_complex() else torch.float64
    largest = 0.0
    flat = [tensor.reshape(-1) for tensor in (given, expected)]
    for start in range(0, expected.numel(), _PART):
        ours, right = (tensor[start : start + _PART].to(device or expected.device).to(wide) for tensor in flat)
        same = (ours == right) | (ours.isnan() & right.isnan())
        needed = ((ours - right).abs() / (1.0 + right.abs())).masked_fill_(same, 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
        largest = max(largest, float(needed.max()))
    return largest
