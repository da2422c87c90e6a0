"""Other values for a reference's parameters and running statistics: new secret ones, and ones far from its own.

Pure functions on tensors. Where to look next: `verify/reference/reference_worker.py`, which sets them.
"""

from __future__ import annotations

import torch

_RENEWED_BUFFERS = ("running_mean", "running_var")
_RENEWAL = 0.1                             # relative change of a parameter; absolute where it is constant


def perturb(name: str, value: torch.Tensor, parameters: set[str], generator: torch.Generator) -> torch.Tensor:
    """A parameter (or running statistic) a little off; everything else, and integers, as they are."""
    learnt = name in parameters or name.rsplit(".", 1)[-1] in _RENEWED_BUFFERS
    if not learnt or not value.dtype.is_floating_point or value.numel() == 0:
        return value
    noise = torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.device)
    wide = value.float()
    other = wide + _RENEWAL * noise.clamp(-3, 3) * (1.0 if is_constant(value) else wide)
    return other.to(value.dtype)


def is_constant(value: torch.Tensor) -> bool:
    """Whether all of its elements are equal, as ones and zeros of a constructor are."""
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def perturb_strongly(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A parameter as different as it can be while its sizes stay: other signs and half to one and a half times as much."""
    if not value.dtype.is_floating_point or value.numel() == 0:
        return value
    factor = 0.5 + torch.rand(value.shape, generator=generator, dtype=torch.float32)
    sign = 1 - 2 * torch.randint(2, value.shape, generator=generator)
    return (value.float() * (factor * sign).to(value.device)).to(value.dtype)
