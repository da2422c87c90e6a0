"""Draws values for a reference's parameters and buffers: generic ones near its own, of other magnitudes, or far from these.

Generic values are no zeros, ones or identities, and of both signs, so that a program which relies on what a constructor writes
is wrong. Pure functions on tensors. Where to look next: `verify/reference/reference_state.py` (who sets the values, and finds
out which of them the reference does not stand).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from stitchcuda.verify.messages.shared_tensors import without_float8

_CHANGE = 0.1                              # standard deviation of a change, relative to the root mean square of a tensor
_LEAST_UP = 2.5                            # one element of a vector grows by so much at least: past a limit at twice its size
_TINY = 1e-3                               # a vector of a smaller root mean square is drawn from 1 / WIDEST to 1
_FEW = 16                                  # a tensor of so few elements is treated as a vector
_ONE_ZERO_OF = 16                          # rows, or elements of a vector

WIDEST = 8.0
"""The largest factor by which `widen` scales an element of a vector up or down."""

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
    change = change.mul_(root_mean_square(wide) or 1.0).add_(wide)
    low, high = map(float, torch.aminmax(wide))
    if low >= 0 or high <= 0 or (low == -high and is_constant(wide.abs())):
        change.mul_(random_signs(value.shape, generator).to(value.device))
    return change.to(value.dtype)


def widen(value: torch.Tensor, freedom: Freedom, generator: torch.Generator, *, zeros: bool) -> torch.Tensor:
    """Returns what `perturb` gives at other magnitudes: rows scaled by random factors, and the tensor to its root mean square.
    Rows are those along the first axis longer than 1.

    In a vector, each element is scaled by 1 / `WIDEST` to `WIDEST`; one grows and keeps its sign. Vectors of zeros or tiny
    elements get 1 / `WIDEST` to 1. `zeros`: about one row or element in sixteen is zero, at least one of eight and more, except
    for "same signs".
    """
    if freedom == "none":
        return value
    if value.is_complex():
        parts = torch.view_as_real(value.resolve_conj()).contiguous()
        return torch.view_as_complex(widen(parts, freedom, generator, zeros=zeros))
    made = perturb(value, freedom, generator)
    wide = made if made.dtype is torch.float64 else made.float()
    longest = next((length for length in value.shape if length > 1), 1)
    count = value.numel() if value.numel() <= max(longest, _FEW) else longest
    size, place = torch.rand(2, count, generator=generator, device=generator.device).to(value.device)
    factors = WIDEST ** (2 * size - 1)
    if zeros and freedom == "any" and 2 * count >= _ONE_ZERO_OF:
        factors[(place < 1 / _ONE_ZERO_OF) | (place == place.min())] = 0
    rows = wide.view(count, -1)            # in place, since it may take gigabytes
    if count < value.numel():
        norms = torch.linalg.vector_norm(rows, dim=1).nan_to_num(0.0, 0.0, 0.0)
        factors *= norms.norm() / (norms * factors).norm().clamp(min=torch.finfo(torch.float32).tiny)
        rows.mul_(factors[:, None])
        return wide.to(value.dtype)
    grown, old = int(place.argmax()), value.reshape(-1)
    if root_mean_square(value) < _TINY:
        rows.sign_().mul_((factors / WIDEST).sqrt_()[:, None])
        rows[grown] = rows[grown].abs() * (-1 if float(old[grown]) < 0 else 1)
    else:
        rows.mul_(factors[:, None])
        if float(old[grown]):
            rows[grown] = float(old[grown]) * _LEAST_UP * (WIDEST / _LEAST_UP) ** float(size[grown])
    return wide.to(value.dtype)


def plant(value: torch.Tensor, others: Sequence[float], generator: torch.Generator) -> None:
    """Writes each of the values, and half as much again, into one of 32 elements and into one at least, as far as there is
    room."""
    wanted = [made for other in others for made in ((other, 1.5 * other) if other else (0.0,))]
    count = max(1, value.numel() // max(32, len(wanted)))
    places = random_places(value.numel(), count * len(wanted), generator).to(value.device)
    order = torch.randperm(len(wanted), generator=generator, device=generator.device).tolist()
    for turn, place in enumerate(order):
        value.view(-1)[places[turn * count : (turn + 1) * count]] = wanted[place]


def random_places(size: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Returns `count` different positions below `size`, or all `size` of them, in random order, on the generator's device.

    One is drawn in each of as many stretches of equal length: a permutation of billions takes much memory, and minutes.
    """
    count = min(count, size)
    order = torch.randperm(count, generator=generator, device=generator.device)
    begins, ends = order * size // count, (order + 1) * size // count
    drawn = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    return begins + (drawn * (ends - begins)).long()


def amplify(value: torch.Tensor) -> torch.Tensor:
    """Returns a weight of two and more axes scaled up to the standard deviation sqrt(2 / fan-in), with which layers and ReLUs
    preserve the variance of what goes through them (He et al. 2015); other tensors, and larger weights, as they are."""
    if not (value.is_floating_point() or value.is_complex()) or value.dim() < 2 or value.numel() < 2:
        return value
    wide = value if value.is_complex() else value.float()
    wanted, found = math.sqrt(2 / value[0].numel()), float(wide.std())
    return (wide * (wanted / found)).to(value.dtype) if 0 < found < wanted else value


def is_constant(value: torch.Tensor) -> bool:
    """Whether all elements are equal, as in a tensor of zeros. False for an empty tensor."""
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def perturb_far(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns a tensor of floats with random signs and each element times 0.5 to 1.5; of complex numbers, real and imaginary
    parts; other tensors as they are."""
    if value.is_complex():
        return torch.view_as_complex(perturb_far(torch.view_as_real(value.resolve_conj()).contiguous(), generator))
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


def root_mean_square(value: torch.Tensor) -> float:
    """Of the finite elements."""
    if not math.isfinite(norm := float(torch.linalg.vector_norm(value, dtype=torch.float64))):
        norm = float(torch.linalg.vector_norm(torch.nan_to_num(value, 0.0, 0.0, 0.0), dtype=torch.float64))
    return norm / math.sqrt(value.numel())


def _is_mask(value: torch.Tensor) -> bool:
    """Whether a tensor holds both zeros and ones and nothing else, or an infinity. A constant tensor is none."""
    value = without_float8(value)
    if not bool(torch.isfinite(value).all()):
        return True
    return not is_constant(value) and bool(((value == 0) | (value == 1)).all())
