"""Changes the values of a reference's parameters and running statistics: a little, as secret ones, or far; or scales them up.

Pure functions on tensors. Where to look next: `verify/reference/reference_worker.py` (who sets the values).
"""

from __future__ import annotations

import math

import torch

_PERTURBED_BUFFERS = ("running_mean", "running_var")
_CHANGE = 0.1                              # standard deviation of the relative change; absolute for a constant tensor


def perturb(name: str, value: torch.Tensor, parameters: set[str], generator: torch.Generator) -> torch.Tensor:
    """Returns a parameter or running statistic with each element changed by about 10 %. Other tensors are returned as is."""
    learnt = name in parameters or name.rsplit(".", 1)[-1] in _PERTURBED_BUFFERS
    if not learnt or not value.dtype.is_floating_point or value.numel() == 0:
        return value
    change = torch.randn(value.shape, generator=generator, device=generator.device).to(value.device)
    change.clamp_(-3, 3).mul_(_CHANGE)     # in place, since it may take gigabytes
    wide = value.float()
    if not is_constant(value):
        change.mul_(wide)
    return change.add_(wide).to(value.dtype)


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
    sign = torch.randint(2, value.shape, generator=generator, device=generator.device, dtype=torch.float32)
    factor.mul_(sign.mul_(2).sub_(1))
    return factor.to(value.device).mul_(value).to(value.dtype)
