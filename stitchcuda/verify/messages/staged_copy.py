"""Copies bytes between the GPU and pages of the host, much at a time by way of pinned memory.

A driver that copies to pages which nobody has touched yet has one core fill them, at 2 GB/s. By way of pinned memory the GPU's
part takes little time, and all cores fill the pages. Used for blocks that lie on the host because the GPU is full.
Where to look next: `verify/messages/tensor_block.py` (the blocks), `benchmarks/host_copies.py` (what it gains).
"""

from __future__ import annotations

import torch

_MUCH = 2**28                              # bytes
_PART = 2**27                              # bytes of pinned memory
_pinned: torch.Tensor | None = None        # kept: to pin pages takes as long as to fill them


def copy_bytes(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies between two flat tensors of as many bytes, on any devices. When it returns, the host may read what it got."""
    size = source.numel()
    if target.is_cuda == source.is_cuda or size < _MUCH:
        target.copy_(source)
        return
    part = _part()
    for begin in range(0, size, _PART):
        piece = part[: min(_PART, size - begin)]
        piece.copy_(source[begin : begin + _PART])
        target[begin : begin + _PART].copy_(piece)


def _part() -> torch.Tensor:
    global _pinned
    if _pinned is None:
        _pinned = torch.empty(_PART, dtype=torch.uint8, pin_memory=True)
    return _pinned
