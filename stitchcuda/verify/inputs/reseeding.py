"""Draws values for a reference's parameters and buffers: generic ones near its own, ones far from these, or larger weights.

Generic values are no zeros, ones or identities, and of both signs, so that a program which relies on what a constructor writes
is wrong. Pure functions on tensors. Where to look next: `verify/reference/reference_state.py` (who sets the values, and finds
out which of them the reference does not stand).
"""

from __future__ import annotations

import math
from typing import Literal

import torch

_CHANGE = 0.1                              # standard deviation of a change, relative to the root mean square of a tensor

Freedom = Literal["any", "same signs", "none"]
"""Which values a tensor may get: any, those with the zeros and signs that it has, or its own."""


def find_freedom(name: str, value: torch.Tensor, parameters: set[str]) -> Freedom:
    """Which values to try first for a parameter or buffer. Integers and masks (buffers of zeros and ones, or with infinities)
    keep their own; a running variance is positive."""
    if value.numel() == 0 or not (value.is_floating_point() or value.is_complex()):
        return "none"
    if name not in parameters and _is_mask(value):
        return "none"
    return "same signs" if name.rsplit(".", 1)[-1] == "running_var" else "any"


def perturb(value: torch.Tensor, freedom: Freedom, generator: torch.Generator) -> torch.Tensor:
    """Returns a tensor in which each element is changed by about 10 %, of itself for "same signs" and else of the tensor's root
    mean square (or by 0.1, if all are zero); if all have one sign or one magnitude, random ones get the other sign."""
    if freedom == "none":
        return value
    if value.is_complex():
        return torch.view_as_complex(perturb(torch.view_as_real(value.resolve_conj()).contiguous(), freedom, generator))
    wide = value if value.dtype is torch.float64 else value.float()
    change = torch.randn(value.shape, generator=generator, device=generator.device).to(value.device)
    change.clamp_(-3, 3).mul_(_CHANGE)     # in place, since it may take gigabytes
    if freedom == "same signs":
        return change.mul_(wide).add_(wide).to(value.dtype)
    change = change.mul_(_root_mean_square(wide) or 1.0).add_(wide)
    low, high = map(float, torch.aminmax(wide))
    if low >= 0 or high <= 0 or (low == -high and is_constant(wide.abs())):
        change.mul_(random_signs(value.shape, generator).to(value.device))
    return change.to(value.dtype)


def amplify(value: torch.Tensor) -> torch.Tensor:
    """Returns a weight of two and more axes scaled up to the standard deviation sqrt(2 / fan-in), with which layers and ReLUs
    preserve the variance of what goes through them (He et al. 2015); other tensors, and larger weights, as they are."""
    if not value.dtype.is_floating_point or value.dim() < 2 or value.numel() < 2:
        return value
    wanted, found = math.sqrt(2 / value[0].numel()), float(value.float().std())
    return (value.float() * (wanted / found)).to(value.dtype) if 0 < found < wanted else value


def is_constant(value: torch.Tensor) -> bool:
    """Whether all elements are equal, as in a tensor of zeros. False for an empty tensor."""
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def perturb_far(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns a floating-point tensor with random signs and each element times 0.5 to 1.5; other tensors as they are."""
    if not value.dtype.is_floating_point or value.numel() == 0:
        return value
    factor = torch.rand(value.shape, generator=generator, device=generator.device).add_(0.5)
    factor.mul_(random_signs(value.shape, generator))
    return factor.to(value.device).mul_(value).to(value.dtype)


def random_signs(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Random signs, as 1 and -1; -1 for a single element."""
    if shape.numel() == 1:
        return torch.full(shape, -1.0, device=generator.device)
    return torch.randint(2, shape, generator=generator, device=generator.device, dtype=torch.float32).mul_(2).sub_(1)


def _root_mean_square(value: torch.Tensor) -> float:
    """Of the finite elements."""
    if not math.isfinite(norm := float(torch.linalg.vector_norm(value, dtype=torch.float64))):
        norm = float(torch.linalg.vector_norm(torch.nan_to_num(value, 0.0, 0.0, 0.0), dtype=torch.float64))
    return norm / math.sqrt(value.numel())


def _is_mask(value: torch.Tensor) -> bool:
    """Whether a tensor holds both zeros and ones and nothing else, or an infinity. A constant tensor is none."""
    if not bool(torch.isfinite(value).all()):
        return True
    return not is_constant(value) and bool(((value == 0) | (value == 1)).all())
