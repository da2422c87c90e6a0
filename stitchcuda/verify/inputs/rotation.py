"""Rolls input tensors along their first axis: other contents of the same distribution, for calls that are not compared.

Pure functions. Where to look next: `verify/program/program_worker.py` (which calls), `verify/inputs/timed_contents.py` (what
timed calls get).
"""

from __future__ import annotations

import torch

from stitchcuda.verify.inputs.value_order import is_ordered


def is_rollable(tensor: torch.Tensor) -> bool:
    """Whether its values mean the same at other positions: a floating-point tensor that is not sorted and not expanded."""
    plain = tensor.is_floating_point() and tensor.dim() > 0 and tensor.numel() > 0 and not tensor.stride().count(0)
    return plain and not is_ordered(tensor)


def roll(tensors: list[torch.Tensor], may: list[bool], by: int) -> list[torch.Tensor]:
    """Returns rolled copies of the tensors for which `may` is true, and the others themselves."""
    return [
        torch.empty_like(tensor).copy_(tensor.roll(by, 0)) if rolls else tensor
        for tensor, rolls in zip(tensors, may, strict=True)
    ]
