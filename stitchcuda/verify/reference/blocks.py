"""Makes the blocks of memory in which tensors go between processes, where there is room: on the GPU, else on the host.

Only the reference worker makes them. A program's worker may write to memory of the GPU that it is given, so it gets copies.
Where to look next: `verify/messages/tensor_block.py` (the blocks), `verify/reference/reference_worker.py` (the process).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stitchcuda.verify.messages import gpu_memory, tensor_block
from stitchcuda.verify.messages.tensor_block import TensorBlock

_FREE = 0.25                               # of a GPU's memory stays free of blocks: programs need some too


class Blocks:
    """Makes blocks for one device, "cuda" or "cpu". `on_host`: how many were made on the host because the GPU was full."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.on_host = 0

    def pack(self, tensors: list[torch.Tensor]) -> TensorBlock:
        """Returns a new block with copies of the tensors. Raises `WireError` for a dtype that cannot be sent."""
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        return tensor_block.pack(tensors, self._place(size))

    def lend(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with what a program's worker may be given in place of each of `blocks`, and with new `rooms` of the sizes
        (bytes) that are asked for by name."""
        rooms = {name: tensor_block.new_block(size, self._place(size)) for name, size in message["rooms"].items()}
        return {"blocks": [self._lent(block) for block in message["blocks"]], "rooms": rooms}

    def wipe(self, message: dict[str, Any]) -> dict[str, Any]:
        """Overwrites `blocks`, which held a secret and will be freed."""
        for block in message["blocks"]:
            tensor_block.wipe(block)
        return {}

    def save(self, message: dict[str, Any]) -> dict[str, Any]:
        """Writes `block` to the file `path`, for a process that is given no descriptors."""
        tensor_block.save(message["block"], Path(message["path"]))
        return {}

    def _lent(self, block: TensorBlock) -> TensorBlock:
        if block.device == "cpu":
            return block                   # nobody can write to it
        return tensor_block.pack(tensor_block.unpack(block, "cuda"), self._place(block.size))

    def _place(self, size: int) -> str:
        """Returns where a block of so many bytes is to lie."""
        if self._device != "cuda":
            return "cpu"
        free, total = gpu_memory.free_and_total()
        if free - size < _FREE * total:
            torch.cuda.empty_cache()
            free, total = gpu_memory.free_and_total()
        if free - size < _FREE * total:
            self.on_host += 1
            return "cpu"
        return "cuda"
