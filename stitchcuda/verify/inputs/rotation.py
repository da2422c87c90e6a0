"""Inputs moved on by a few places: other contents of the same distribution and layout, for calls that nobody compares.

Pure functions. Where to look next: `verify/program/program_worker.py` (whose calls), `verify/inputs/timed_contents.py` (what
timed calls get).
"""

from __future__ import annotations

import torch

from stitchcuda.verify.inputs.value_order import is_ordered


def is_rollable(tensor: torch.Tensor) -> bool:
    """Whether other places mean nothing to its values: no integers, no masks, nothing in order."""
    plain = tensor.is_floating_point() and tensor.dim() > 0 and tensor.numel() > 0 and not tensor.stride().count(0)
    return plain and not is_ordered(tensor)


def roll(tensors: list[torch.Tensor], may: list[bool], by: int) -> list[torch.Tensor]:
    """New memory for those that may be rolled; the others are the same ones."""
    return [
        torch.empty_like(tensor).copy_(tensor.roll(by, 0)) if rolls else tensor
        for tensor, rolls in zip(tensors, may, strict=True)
    ]
