"""Makes the blocks of memory in which tensors go between processes, where there is room: on the GPU, else on the host.

Only the reference worker makes them. A program's worker may write to memory of the GPU that it is given, so it gets copies.
Where to look next: `verify/messages/tensor_block.py` (the blocks), `verify/reference/reference_worker.py` (the process).
"""

from __future__ import annotations

from pathlib import Path

import torch

from stitchcuda.verify.inputs.reference_requests import Lend, Lent, SaveBlock, Wipe
from stitchcuda.verify.messages import gpu_memory, tensor_block
from stitchcuda.verify.messages.request import Done
from stitchcuda.verify.messages.tensor_block import TensorBlock

_FREE = 0.25                               # of a GPU's memory stays free of blocks that are kept: programs need some too
_FREE_OF_ROOMS = 0.1                       # and of those for one call, when the program has its memory already


class Blocks:
    """Makes blocks for one device, "cuda" or "cpu". `on_host`: how many were made on the host because the GPU was full.
    `state_bytes`, `call_bytes`: what a program probably needs for its state and a call, as the reference does; 0: unknown.
    `compared_bytes`: what is needed beside what is kept when a call is compared (`needs`).
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self.on_host = 0
        self.state_bytes = self.call_bytes = self.compared_bytes = 0

    def pack(self, tensors: list[torch.Tensor]) -> TensorBlock:
        """Returns a new block with copies of the tensors. Raises `WireError` for a dtype that cannot be sent."""
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        return tensor_block.pack(tensors, self._counted(self._place_to_keep(size)))

    def needs(self, given: int, returned: int) -> None:
        """Says how many bytes a call is given and returns, before a set of these is kept. Beside what is kept there has to be
        room for a call: the program's own memory, that which it writes to, copies of that for two calls, and the outputs that
        it is compared with, whose float64 is twice as wide."""
        self.compared_bytes = max(self.compared_bytes, 8 * given + 12 * returned)

    def keeps_on_gpu(self, size: int) -> bool:
        """Whether a set's outputs of so many bytes would be kept where they can be read in no time."""
        return self._place_to_keep(size) == self._device

    def lend(self, request: Lend) -> Lent:
        rooms = {name: tensor_block.new_block(size, self.place_for_call(size)) for name, size in request.rooms.items()}
        return Lent(tuple(map(self._lent, request.blocks)), rooms)

    def wipe(self, request: Wipe) -> Done:
        for block in request.blocks:
            tensor_block.wipe(block)
        return Done()

    def save(self, request: SaveBlock) -> Done:
        tensor_block.save(request.block, Path(request.path))
        return Done()

    def _lent(self, block: TensorBlock) -> TensorBlock:
        if block.device == "cpu":
            return block                   # nobody can write to it
        place = self._place(block.size, _FREE, self.state_bytes + self.call_bytes)
        return tensor_block.pack(tensor_block.unpack(block, "cuda"), self._counted(place))

    def place_for_call(self, size: int) -> str:
        """Returns where so many bytes of a call are to lie, "cuda" or "cpu". The program has its parameters already."""
        return self._counted(self._place(size, _FREE_OF_ROOMS, self.call_bytes))

    def _place_to_keep(self, size: int) -> str:
        return self._place(size, _FREE, self.state_bytes + self.call_bytes + self.compared_bytes)

    def _counted(self, place: str) -> str:
        self.on_host += place != self._device
        return place

    def _place(self, size: int, share: float, needed: int) -> str:
        """Returns where so many bytes are to lie, so that this share of the GPU's memory, and `needed` bytes, stay free."""
        if self._device != "cuda":
            return "cpu"
        free, total = gpu_memory.free_and_total()
        left = max(share * total, needed)
        if free - size < left:
            torch.cuda.empty_cache()
            free, _ = gpu_memory.free_and_total()
        return "cuda" if free - size >= left else "cpu"
