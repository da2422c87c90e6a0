"""The parameters and buffers of the reference's module: as constructed, drawn anew, or those of a block.

Whoever changes them outside of this class, as a call may, puts them back with `reset`. It runs nothing of the reference.
Where to look next: `verify/inputs/reseeding.py` (how values are drawn), `verify/reference/reference_worker.py` (who asks).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from stitchcuda.verify.inputs.far_state import KINDS, BufferFacts, Draw, concerns, drawn_far
from stitchcuda.verify.inputs.integer_values import IntegerUses
from stitchcuda.verify.inputs.reference_requests import ReferenceTensor, Renew
from stitchcuda.verify.inputs.reseeding import (
    Freedom,
    amplify,
    find_freedom,
    is_constant,
    perturb,
    perturb_far,
    plant,
    widen,
)
from stitchcuda.verify.inputs.secret_inputs import KEPT_BUFFERS, shorten_list
from stitchcuda.verify.inputs.standing import find_standing
from stitchcuda.verify.inputs.variants import OutputSummary, why_worse
from stitchcuda.verify.messages import gpu_memory
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.reference.blocks import Blocks

_NONE: Freedom = "none"
_FREEDOMS: tuple[Freedom, ...] = ("any", "same signs")
_WIDE, _WITH_ZEROS = 1, 2                  # values of other magnitudes, and some zeros among them; none: near those that it has
_NEAR: Mapping[str, float] = MappingProxyType({})
_TRIES = 8                                 # for each of the two: a try takes a call in float64 too
_FEW_TRIES = 3                             # for each strength of a kind of values far from the constructor's
_MUCH = 6                                  # times a state; with less room on the GPU the original is kept on the host

Outputs = dict[str, OutputSummary]
Call = Callable[[], Outputs | str]
"""Calls the reference with the values that it has now. Returns its outputs, or how it fails."""


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
        persistent = self.tensors().keys()
        # Buffers that no state_dict holds, which a call may change.
        self._transient = {name: tensor.clone() for name, tensor in module.named_buffers() if name not in persistent}
        parameters = self._parameter_names()
        self._wanted = {name: find_freedom(name, tensor, parameters) for name, tensor in self.tensors().items()}
        self._freedom = self._wanted       # what the reference stands of it, as far as was tried
        self._why = ""                     # how it fails otherwise
        self._widths = dict.fromkeys(self._wanted, _WITH_ZEROS)  # likewise
        self._why_near = ""
        self._compared: Mapping[str, Sequence[float]] = {}
        self._counts = False               # whether counters get other values in `widen`
        self._facts: Mapping[str, BufferFacts] = {}  # of whole numbers, for values far from the constructor's

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the module has now, by name."""
        state = self._module.state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    @torch.no_grad()
    def reset(self) -> None:
        """Gives the module the values with which it was constructed, in buffers that no state_dict holds too."""
        self._set(self._original)
        self._key = ""
        for name, tensor in self._module.named_buffers() if self._transient else ():
            if name in self._transient:
                tensor.copy_(self._transient[name])

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

    def renew(self, request: Renew, usual: Outputs, call: Call) -> Iterator[str]:
        """Gives the module generic values, and yields notes on the tensors whose values are not generic. Those that the
        reference does not stand are found by trying, once for all draws. `usual`: its outputs as constructed."""
        if why := self._fails(request, self._freedom, usual, call):
            self._why = why
            self._freedom = self._search(request, usual, call)
            self._draw(request, self._freedom)
        yield from self._describe_kept(set(request.keep))

    def _search(self, request: Renew, usual: Outputs, call: Call) -> dict[str, Freedom]:
        """Returns how much each tensor may vary beside the others."""
        found = dict.fromkeys(self._freedom, _NONE)
        for freedom in _FREEDOMS:
            may = [name for name, most in self._freedom.items() if found[name] == "none" and most in ("any", freedom)]

            def stands(names: Sequence[str], freedom: Freedom = freedom, before: dict[str, Freedom] = found) -> bool:
                return not self._fails(request, {**before, **dict.fromkeys(names, freedom)}, usual, call)

            found = {**found, **dict.fromkeys(find_standing(may, stands), freedom)}
        return found

    def widen(
        self, request: Renew, usual: Outputs, call: Call, *, zeros: bool, compared: Mapping[str, Sequence[float]]
    ) -> Iterator[str]:
        """Gives the module values of other magnitudes, after `renew`, with `zeros` or none. Yields a note on those that
        the reference does not stand so, which get what `renew` gives. They are found as there. `call` also says how the outputs
        are unsuitable. `compared`: by name, values with which the reference compares a tensor's own: it gets these too."""
        widths = {name: width if zeros else _WIDE for name, width in self._widths.items()}
        self._compared, self._counts = compared, True
        why = self._fails(request, self._freedom, usual, call, widths)
        if why and (compared or any(tensor.numel() == 1 for tensor in self._original.values())):
            self._compared, self._counts = {}, False
            why = self._fails(request, self._freedom, usual, call, widths)
        if why:
            found: dict[str, int] = {}
            for width in (_WITH_ZEROS, _WIDE):
                may = [name for name, most in widths.items() if name not in found and most >= width]

                def stands(names: Sequence[str], width: int = width, before: dict[str, int] = found) -> bool:
                    return not self._fails(request, self._freedom, usual, call, {**before, **dict.fromkeys(names, width)})

                found = {**found, **dict.fromkeys(find_standing(may, stands, _TRIES), width)}
            self._widths, self._why_near = found, why
            self._draw(request, self._freedom, found)
        others = {*self._widths, *request.keep}
        near = [name for name, freedom in self._freedom.items() if freedom != _NONE and name not in others]
        if near:
            why = f"as the reference {self._why_near} with others"
            yield f"limited: parameters only near the constructor's values, {why}: {shorten_list(near)}"

    def go_far(self, request: Renew, usual: Outputs, call: Call, facts: Mapping[str, BufferFacts]) -> set[str]:
        """Gives the module values of the kind `request.far`, after `renew`, each tensor of the largest strength that the
        reference stands, as far as few tries show. Returns which have such values. `call`: as for `widen`."""
        kind, self._facts, found = KINDS[request.far], facts, dict[str, float]()
        may = [name for name, value in self._original.items() if concerns(kind, value, self._freedom[name])]
        random.Random(request.seed).shuffle(may)
        for strength in kind.strengths:
            left = [name for name in may if name not in found and self._gets_others(request, name, strength)]

            def stands(names: Sequence[str], strength: float = strength, before: dict[str, float] = found) -> bool:
                return not self._fails(request, self._freedom, usual, call, {**before, **dict.fromkeys(names, strength)})

            found = {**found, **dict.fromkeys(find_standing(left, stands, _FEW_TRIES), strength)}
        self._draw(request, self._freedom, found)
        return set(found)

    def buffer_facts(self, outputs: Mapping[str, torch.Tensor], uses: IntegerUses | None) -> dict[str, BufferFacts]:
        """How the reference uses its tensors of whole numbers. `outputs`: of a call with the constructor's values. `uses`: what
        was seen; None: everything may be an index."""
        changed = [name.removeprefix("buffer:") for name in outputs if name.startswith("buffer:")]
        lengths = tuple(length for name in changed if name in self._original for length in self._original[name].shape)
        found = {}
        for name, value in self._original.items():
            if not (value.is_floating_point() or value.is_complex()):
                after = outputs.get(f"buffer:{name}", value)
                steps = (after.to(value.device).long() - value.long()).flatten()
                alike = steps.numel() > 0 and is_constant(steps)
                index = uses is None or name in uses.indices - uses.bounded
                read = uses is None or name in uses.read
                found[name] = BufferFacts(index, read, int(steps[0]) if alike else 0, lengths)
        return found

    def _gets_others(self, request: Renew, name: str, strength: float) -> bool:
        """Whether a tensor gets other values of a kind; floats always do."""
        value = self._original[name].to(self._device)
        if value.is_floating_point() or value.is_complex() or name in request.keep:
            return name not in request.keep
        drawn = self._drawn_far(request, name, value, strength, torch.Generator(self._device).manual_seed(request.seed))
        return not torch.equal(drawn, value)

    def _drawn_far(
        self, request: Renew, name: str, value: torch.Tensor, strength: float, generator: torch.Generator
    ) -> torch.Tensor:
        facts = self._facts.get(name, BufferFacts())
        return drawn_far(KINDS[request.far], Draw(value, self._freedom[name], generator, facts), strength)

    def _fails(
        self, request: Renew, freedom: Mapping[str, Freedom], usual: Outputs, call: Call, widths: Mapping[str, float] = _NEAR
    ) -> str:
        """Draws values, and says how the reference fails with them, or ""."""
        self._draw(request, freedom, widths)
        found = call()
        return found if isinstance(found, str) else why_worse(found, usual)

    @property
    def varied(self) -> bool:
        """Whether any tensor gets other values, of those that may."""
        return not self._wanted or any(freedom != "none" for freedom in self._freedom.values())

    def _describe_kept(self, keep: set[str]) -> Iterator[str]:
        """Yields notes on the tensors whose values are not generic, apart from those in `keep`."""
        for freedom, what in (("same signs", "constructor's zeros and signs"), ("none", "constructor's values")):
            kept = [
                name for name, wanted in self._wanted.items()
                if wanted != self._freedom[name] == freedom and name not in keep
            ]  # fmt: skip
            if kept:
                yield f"limited: kept with the {what}, as the reference {self._why} with others: {shorten_list(kept)}"
        yield from self.describe_fixed(keep, set())

    def describe_fixed(self, keep: set[str], varied: set[str]) -> Iterator[str]:
        """Yields notes on masks and integers, apart from those in `keep`: their values are the constructor's, and for those
        that are `varied` two calls had others."""
        names = self._parameter_names()
        fixed = [
            name for name, wanted in self._wanted.items()
            if wanted == "none" and name not in names and self._original[name].numel()
            and not name.endswith("num_batches_tracked")
        ]  # fmt: skip
        if kept := [name for name in fixed if name not in keep]:
            yield f"{KEPT_BUFFERS}: {shorten_list(kept)}"
        if others := [name for name in fixed if name in varied]:
            what = "as a checkpoint may hold them, such as a counter far on or at the end of a ring"
            yield f"buffers of masks and integers had other values in two calls only, {what}: {shorten_list(others)}"

    @torch.no_grad()
    def _draw(self, request: Renew, freedom: Mapping[str, Freedom], widths: Mapping[str, float] = _NEAR) -> None:
        """Gives the module new values, tensor by tensor, since all of them may be half of the GPU's memory. `widths`: how far
        from their own, for a request of a kind its strength."""
        state, parameters, keep = self.tensors(), self._parameter_names(), set(request.keep)
        grouped = {name: torch.empty(0) for group in request.alike for name in group}
        self._key = ""
        for number, (name, value) in enumerate(self._original.items()):
            generator = torch.Generator(self._device).manual_seed(request.seed + number)
            drawn = value.to(self._device)
            if (width := widths.get(name, 0)) and request.far:
                drawn = self._drawn_far(request, name, drawn, width, generator)
            elif width:
                drawn = widen(drawn, freedom[name], generator, zeros=width == _WITH_ZEROS)
                if value.numel() == 1 and name not in parameters:
                    drawn = self._recounted(value.to(self._device), drawn, generator)
                if (values := self._compared.get(name)) and freedom[name] == "any":
                    plant(drawn, values, generator)
            else:
                drawn = perturb(drawn, freedom[name], generator)
            drawn = amplify(drawn) if request.amplified and name in parameters else drawn
            if name in grouped:
                grouped[name] = drawn
            state[name].copy_(value if name in keep or name in grouped else drawn)
        for group in request.alike:        # the largest of each number, since a running variance must stay positive
            first, *others = (grouped[name].reshape(-1) for name in group)
            shared = first if first.is_complex() else torch.stack([first, *others]).float().amax(0)
            for name in set(group) - keep:
                state[name].copy_(shared.reshape(state[name].shape))

    def _recounted(self, value: torch.Tensor, drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Returns another value of a buffer of one number, `drawn` if it is not a whole one: calls may count in it."""
        whole = value.dtype in (torch.int32, torch.int64) or (value.is_floating_point() and bool(value == value.round()))
        if not self._counts or not whole:
            return drawn
        return value + torch.randint(128, 1024, value.shape, generator=generator, device=self._device).to(value.dtype)

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
