"""What the values of one input tensor may mean, as far as they show: which changes keep their meaning, and their range.

Whole numbers may be labels, counts or positions; values in [0, 1] probabilities; few floats a setting of the call. Pure
functions that change nothing and run no reference.
Where to look next: `verify/inputs/value_changes.py` (the changes), `verify/inputs/input_ranges.py` (which are tried).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from stitchcuda.verify.inputs.integer_values import SMALLEST, UNUSED, IntegerUses, can_redraw, holds_whole_numbers, is_mask
from stitchcuda.verify.inputs.reseeding import is_constant
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.messages.shared_tensors import is_float8, without_float8

WIDE = 2**30                               # of integers that grow
_ROW_SUM = 1e-3                            # how far from 1 the sum of a row of probabilities may be

Domain = Literal["free", "positive", "unit", "fixed", "permuted"]


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


def is_setting(tensor: Tensor) -> bool:
    """Whether it holds so few floats that they are a setting of the call, such as a temperature."""
    return tensor.is_floating_point() and 0 < tensor.numel() < SMALLEST


def can_grow(tensor: Tensor) -> bool:
    """Whether it holds whole numbers that may be numbers to compute with, and larger ones fit into its dtype."""
    if find_domain(tensor) != "permuted" or is_mask(tensor) or not holds_whole_numbers(tensor) or rows_sum_to_one(tensor):
        return False
    narrow = tensor.is_floating_point() or tensor.itemsize < 4
    return narrow or (tensor.dtype in (torch.int32, torch.int64) and int(tensor.abs().max()) < WIDE)
