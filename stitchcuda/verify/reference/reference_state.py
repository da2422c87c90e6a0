"""The parameters and buffers of the reference's module: as constructed, drawn anew, or those of a block.

Whoever changes them outside of this class, as a call may, puts them back with `reset`. It runs nothing of the reference.
Where to look next: `verify/inputs/reseeding.py` (how values are drawn), `verify/reference/reference_worker.py` (who asks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from stitchcuda.verify.inputs.reference_requests import ReferenceTensor, Renew
from stitchcuda.verify.inputs.reseeding import amplify, is_constant, perturb, perturb_far
from stitchcuda.verify.messages import gpu_memory
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.reference.blocks import Blocks

_MUCH = 6                                  # times a state; with less room on the GPU the original is kept on the host


class ReferenceState:
    """The state of one module. `size`: its bytes."""

    def __init__(self, module: nn.Module, device: str) -> None:
        """`device`: "cuda" or "cpu", where the module lies."""
        self._module = module
        self._device = device
        self._key = ""                     # of the block whose values the module has now; "" for others
        self.size = sum(tensor.nbytes for tensor in self.tensors().values())
        place = "cpu" if device == "cuda" and _MUCH * self.size > gpu_memory.free_and_total()[0] else device
        self._original = {name: tensor.detach().to(place, copy=True) for name, tensor in self.tensors().items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the module has now, by name."""
        state = self._module.state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def reset(self) -> None:
        """Gives the module the values with which it was constructed."""
        self._set(self._original)
        self._key = ""

    def use(self, block: TensorBlock) -> dict[str, torch.Tensor]:
        """Gives the module the values in a block, unless it has them already. Returns its tensors by name."""
        if block.key != self._key:
            self._set(dict(zip(self.tensors(), unpack(block, block.device, shared=True), strict=True)))
            self._key = block.key
        return self.tensors()

    def packed(self, blocks: Blocks) -> TensorBlock:
        """Returns a new block with the values that the module has now."""
        block = blocks.pack(list(self.tensors().values()))
        self._key = block.key
        return block

    @torch.no_grad()
    def draw(self, request: Renew) -> None:
        """Gives the module new values, tensor by tensor, since all of them may be half of the GPU's memory."""
        generator = torch.Generator(self._device).manual_seed(request.seed)
        state, parameters, keep = self.tensors(), self._parameter_names(), set(request.keep)
        grouped = {name: torch.empty(0) for group in request.alike for name in group}
        self._key = ""
        for name, value in self._original.items():
            drawn = perturb(name, value.to(self._device), parameters, generator)
            drawn = amplify(drawn) if request.amplified and name in parameters else drawn
            if name in grouped:
                grouped[name] = drawn
            elif name not in keep:
                state[name].copy_(drawn)
        for group in request.alike:        # the largest of each number, since a running variance must stay positive
            shared = torch.stack([grouped[name].float().reshape(-1) for name in group]).amax(0)
            for name in set(group) - keep:
                state[name].copy_(shared.reshape(state[name].shape))

    @torch.no_grad()
    def change_far(self, seed: int) -> int:
        """Gives the parameters values far from those that they have. Returns how many parameters these are."""
        generator = torch.Generator(self._device).manual_seed(seed)
        self._key = ""
        names = self._parameter_names()
        parameters = [tensor for name, tensor in self.tensors().items() if name in names]
        for tensor in parameters:
            tensor.copy_(perturb_far(tensor, generator))
        return len(parameters)

    def describe(self) -> tuple[ReferenceTensor, ...]:
        """Describes the state as constructed. Tied are names of the same memory, seen through the same shape and strides."""
        first: dict[Any, str] = {}
        parameters = self._parameter_names()
        facts = []
        for name, value in self.tensors().items():
            memory = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else (name,)
            facts.append(ReferenceTensor(
                name, tuple(value.shape), parameter=name in parameters, constant=is_constant(value),
                tied=first.setdefault(memory, name), floating=value.is_floating_point(),
            ))  # fmt: skip
        return tuple(facts)

    def _parameter_names(self) -> set[str]:
        return {name for name, _ in self._module.named_parameters(remove_duplicate=False)}

    @torch.no_grad()
    def _set(self, values: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(values[name])
