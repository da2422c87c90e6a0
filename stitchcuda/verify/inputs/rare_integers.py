"""Draws integers and booleans of rare structure: chains, lines that repeat themselves, inputs that complement each other.

Random integers that name places make short paths, random text never quotes itself, and random digits carry over a few places.
Values stay between those that are given, at each position, since they may be indices. Pure functions on tensors.
Where to look next: `verify/inputs/rare_values.py` (the table of kinds), `verify/inputs/integer_values.py` (the usual integers).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stitchcuda.verify.inputs.integer_values import SMALLEST, is_mask, low_and_high
from stitchcuda.verify.inputs.rare_drawing import Drawing, few_places
from stitchcuda.verify.inputs.reseeding import is_constant
from stitchcuda.verify.inputs.value_order import is_ordered

_EXACT = 2**52                             # larger ones are no float64
_LAST = 7 / 8                              # of its range, where sorted integers end early


def is_integers(tensor: Tensor) -> bool:
    """Whether it holds integers in no order, of more than two values."""
    return _is_long(tensor) and not is_mask(tensor) and not is_ordered(tensor)


def is_rising(tensor: Tensor) -> bool:
    """Whether it holds sorted integers, such as offsets."""
    return _is_long(tensor) and bool((tensor.long().diff(dim=-1) >= 0).all())


def is_adjacency(tensor: Tensor) -> bool:
    """Whether it holds square matrices of booleans."""
    return tensor.dtype is torch.bool and tensor.dim() > 1 and 2 < tensor.shape[-1] == tensor.shape[-2]


def chain(rows: Tensor, drawing: Drawing) -> Tensor | None:
    """Each integer names the place before its own, if so large ones are given."""
    length = rows.shape[1]
    made = (torch.arange(length, device=rows.device) - 1).clamp(min=0).double().expand(rows.shape)
    return _kept(made, drawing) if float(rows.max()) >= length / 2 else None


def repeating(rows: Tensor, drawing: Drawing) -> Tensor:
    """Each line repeats its first part, of any length up to the half, with one change."""
    length = rows.shape[1]
    period = 1 + drawing.whole(max(1, length // 2), len(rows), 1)
    made = rows.gather(1, torch.arange(length, device=rows.device) % period)
    return _kept(torch.where(few_places(rows, drawing, 1), rows, made), drawing)


def complementing(x: Tensor, drawing: Drawing) -> Tensor | None:
    """With an integer input of this shape before it, all but a few sums are the largest of both."""
    others = [
        other for number, other in enumerate(drawing.tensors)
        if number < drawing.number and other.shape == x.shape and is_integers(other)
    ]  # fmt: skip
    if not others:
        return None
    other = others[int(drawing.whole(len(others)))].double()
    rows = x.reshape(-1, x.shape[-1])
    own = few_places(rows, drawing).reshape(x.shape)
    return _kept(torch.where(own, x, x.maximum(other).max() - other), drawing)


def ending_early(x: Tensor, drawing: Drawing) -> Tensor:
    """The last ones are smaller than given, as the offsets of what does not fill its buffer."""
    low, high = x.aminmax()
    return x.clamp(max=float(low + ((high - low) * _LAST).floor()))


def path(x: Tensor, drawing: Drawing) -> Tensor:
    """Each row has one more true element beside its diagonal: the next on a path through all, in random order."""
    order = drawing.random(x.shape[-1]).argsort()
    made = torch.zeros_like(x)
    made[..., order[:-1], order[1:]] = 1.0
    return made


def _is_long(tensor: Tensor) -> bool:
    plain = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
    return plain and tensor.numel() >= SMALLEST and bool((tensor.abs() < _EXACT).all()) and not is_constant(tensor)


def _kept(made: Tensor, drawing: Drawing) -> Tensor:
    """The integers, between the least and the largest that are given at their position."""
    low, high = low_and_high(drawing.tensor)
    return made.reshape(drawing.tensor.shape).maximum(low.double()).minimum(high.double())
