"""Timed calls inside a worker, the same code for reference and program. It decides nothing and knows no expectation.

Each call gets contents that no call had before, at old addresses or at new ones (`contents.py`), and its outputs are copied
aside in stream order the moment it returns, so that work which arrives later is missing from them. The judge may ask for
that copy after any block. A block with `run` false does all of this except the call: what the frame itself costs. Between
blocks everything moves to other memory, since where a tensor happens to lie can change a kernel's time by several percent.
Where to look next: `stopwatch.py` (the clocks), `timing.py` (the judge's side).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stitchcuda.tools import contents, wire
from stitchcuda.tools.memory import extent
from stitchcuda.tools.stopwatch import Clock

Call = Callable[..., object]


class NotPlain(Exception):
    """The call returned something else than plain tensors with memory; the text completes "forward returned"."""


class TimedCalls:
    """Input sets at hand, one place for inputs that stays, and the copy of what the last call returned."""

    def __init__(
        self, message: dict[str, Any], call: Call, clock: Clock, *, device: str, restore: Callable[[], None] = lambda: None
    ) -> None:
        """`message`: sets (inputs, structure), moving, scaled, core (None: wherever the system likes).

        `restore` puts back state that a call changes.
        """
        self._sets = [
            (wire.read_tensors(Path(one["inputs"]), device=device), one["structure"]) for one in message["sets"]
        ]
        self._moving: list[int] = message["moving"]
        self._scaled = bool(message["scaled"])
        self._call, self._clock, self._restore, self._device = call, clock, restore, device
        self._place = contents.twins(self._sets[0][0])
        self._given = self._place          # what the last call was given
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []  # (bytes, the layout of their output)
        self._structure: Any = None
        self._result: object = None        # of the last call
        self._spacer: torch.Tensor | None = None
        self._cores = os.sched_getaffinity(0)
        self.pinned = message.get("core") in self._cores
        if self.pinned:
            try:
                os.sched_setaffinity(0, {message["core"]})
            except PermissionError:        # the sandbox's to say; the judge makes a note of it
                self.pinned = False

    def move(self, spacer: int, call: list[int]) -> None:
        """Give all memory back, take it anew behind `spacer` bytes, and call once: nothing of this is timed."""
        self._result = self._spacer = None
        self._place = self._given = []
        if self._device == "cuda":
            torch.cuda.empty_cache()
        self._spacer = torch.empty(spacer, dtype=torch.uint8, device=self._device)
        self._place = contents.twins(self._sets[0][0])
        self.block([call], run=True)

    def block(self, calls: list[list[int]], *, run: bool) -> dict[str, list[float]]:
        """Times of calls (set, turn, fresh addresses): on the call's stream, and of what goes on elsewhere, in milliseconds."""
        device: list[float] = []
        rest: list[float] = []
        for number, turn, fresh in calls:
            sources, structure = self._sets[number]
            self._given = contents.twins(sources) if fresh else self._place
            contents.refresh(self._given, sources, turn, self._moving, scaled=self._scaled)
            args, kwargs = wire.decode(structure, self._given, self._device)
            self._restore()
            self._clock.settle()
            if run:
                self._result = None        # its memory is free for the next
                self._clock.start()
                self._result = self._call(*args, **kwargs)
            else:
                self._clock.start()
            self._clock.returned()
            self._keep(self._result)
            on_stream, elsewhere = self._clock.stop()
            device.append(on_stream)
            rest.append(elsewhere)
        self._restore()
        return {"device_ms": device, "rest_ms": rest}

    def deliver(self, outputs: Path, inputs: Path, seed: int) -> dict[str, Any]:
        """Write what the last call had returned, and the inputs it was given as they are now; of large ones a sample."""
        copies = []
        for store, output in self._kept:
            blank = torch.empty(0, dtype=output.dtype, device=store.device)
            copies.append(blank.set_(store.untyped_storage(), 0, output.shape, output.stride()))
        wire.write_tensors(outputs, contents.sampled(copies, seed))
        wire.write_tensors(inputs, contents.sampled(self._given, seed))
        return {"structure": self._structure}

    def close(self) -> None:
        if self.pinned:
            os.sched_setaffinity(0, self._cores)

    def _keep(self, result: object) -> None:
        found: list[torch.Tensor] = []
        self._structure = wire.encode(result, found)
        if len(self._kept) != len(found):
            self._kept = [(torch.empty(0, dtype=torch.uint8), tensor) for tensor in found]
        for position, tensor in enumerate(found):
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise NotPlain(f"a {type(tensor).__name__}, not a plain tensor")
            if tensor.is_conj() or tensor.is_neg():
                tensor = tensor.resolve_conj().resolve_neg()
            address, size = tensor.data_ptr(), extent(tensor) * tensor.element_size()
            if size and not address:
                raise NotPlain("a tensor without memory")
            store = self._kept[position][0]
            if store.numel() != size or store.device != tensor.device:
                store = torch.empty(size, dtype=torch.uint8, device=tensor.device)
            if size and tensor.device.type == self._device:
                self._clock.copy(store, address, size)
            elif size:
                store.copy_(tensor.detach().as_strided((size // tensor.element_size(),), (1,)).view(torch.uint8))
            # The layout alone: the output itself must be free to go.
            layout = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            self._kept[position] = (store, layout)


def answer(
    held: TimedCalls | None, message: dict[str, Any], make: Callable[[], TimedCalls]
) -> tuple[TimedCalls | None, dict[str, Any]]:
    """One `time` message: (what to hold from now on, the answer). Its `mode` is prepare, move, block, deliver or release."""
    mode = message["mode"]
    if mode == "prepare":
        made = make()
        return made, {"pinned": made.pinned}
    if mode == "release":
        if held is not None:
            held.close()
        return None, {}
    if held is None:
        raise RuntimeError("a block of calls before its input sets")
    if mode == "move":
        held.move(message["spacer"], message["call"])
        return held, {}
    if mode == "deliver":
        return held, held.deliver(Path(message["outputs"]), Path(message["inputs_after"]), message["sample"])
    return held, dict(held.block(message["calls"], run=message["run"]))
