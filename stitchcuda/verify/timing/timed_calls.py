"""Timed calls inside a worker, the same code for reference and program. It decides nothing and knows no expectation.

Each call gets contents that no call had before, at old addresses or at new ones (`verify/inputs/timed_contents.py`), and its
outputs are copied aside in stream order the moment it returns, so that work which arrives later is missing from them. The judge
may ask for that copy after any block. A block with `run` false does all of this except the call: what the frame itself costs.
Between blocks everything moves to other memory, since where a tensor happens to lie can change a kernel's time by several
percent. A row is many calls with nothing between them, on contents laid out before: what the judge's clock sees of short calls.

Between two timed spans nothing of the program's runs, or it runs before there are new contents: results and arguments of a
call are dropped first, arguments are objects of their own, modes and collections are off, and reading a result of the
program's own types is part of the call. Threads and native code are left, which the judge's clock sees.
Where to look next: `verify/timing/stopwatch.py` (the clocks), `verify/program/buffer_restoring.py` (state),
`verify/timing/rounds.py` (the judge's side).
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stitchcuda.verify.inputs import timed_contents
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.shared_tensors import alias, extent
from stitchcuda.verify.timing.stopwatch import Clock

Call = Callable[..., object]
Read = tuple[Any, list[torch.Tensor]]
"""A result as `wire.encode` has it."""

# Taken before a program is imported. Without them its modes and tensors' classes would take part in what lies between calls.
_Quiet = torch._C.DisableTorchFunction
_dispatching = torch._C._len_torch_dispatch_stack
_collect, _collect_not = gc.enable, gc.disable
_INERT = (torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, str)


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
            (wire.read_tensors(Path(given["inputs"]), device=device), given["structure"]) for given in message["sets"]
        ]
        self._moving: list[list[int]] = message["moving"]
        self._scaled = bool(message["scaled"])
        self._call, self._clock, self._restore, self._device = call, clock, restore, device
        self._place = timed_contents.allocate_like(self._sets[0][0])
        self._spare: list[list[torch.Tensor]] = []  # new places, one for each such call of the block to come
        self._given = self._place          # what the last call was given
        self._shown: list[torch.Tensor] = []  # of the place, the objects that calls are given: they see none of ours
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []  # (bytes, the layout of their output)
        self._structure: Any = None
        self._result: object = None        # of the last call
        self._read: Read | None = None     # the same, if reading it ran code of the program
        self._row: list[tuple[list[torch.Tensor], Any]] = []  # (contents, the structure around them) of calls to come
        self._spacer: torch.Tensor | None = None
        self._cores = os.sched_getaffinity(0)
        self.pinned = message.get("core") in self._cores
        if self.pinned:
            try:
                os.sched_setaffinity(0, {message["core"]})
            except PermissionError:        # the sandbox's to say; the judge makes a note of it
                self.pinned = False

    def move(self, spacer: int, call: list[int], fresh: int) -> None:
        """Give all memory back, take it anew behind `spacer` bytes, and call once: nothing of this is timed.

        New places for `fresh` calls are taken before that call. Taken between calls they would be the free blocks that the
        program's outputs come from, and the next call would have to ask the driver for memory, which no loop of a user's does.
        """
        self._drop()
        self._row = []
        self._spacer = None
        self._place = self._given = self._shown = []
        self._spare = []
        if self._device == "cuda":
            torch.cuda.empty_cache()
        with _Quiet():
            self._spacer = torch.empty(spacer, dtype=torch.uint8, device=self._device)
            self._place = timed_contents.allocate_like(self._sets[0][0])
            with contextlib.suppress(torch.OutOfMemoryError):  # those that are missing are taken when it is their turn
                for _ in range(fresh):
                    self._spare.append(timed_contents.allocate_like(self._place))
            self._shown = [alias(tensor) for tensor in self._place]
        self.block([call], run=True)

    def block(self, calls: list[list[int]], *, run: bool) -> dict[str, list[float]]:
        """Times of calls (set, turn, fresh addresses): on the call's stream, and of what goes on elsewhere, in milliseconds."""
        device: list[float] = []
        rest: list[float] = []
        collects = gc.isenabled()
        try:
            for number, turn, fresh in calls:
                _collect_not()
                if run:
                    self._drop()           # whatever ends with it ends before there is anything new to work on
                self._alone()
                with _Quiet():
                    sources, structure = self._sets[number]
                    self._given, given = self._place, self._shown
                    if fresh:
                        self._given = self._spare.pop() if self._spare else timed_contents.allocate_like(sources)
                        given = [alias(tensor) for tensor in self._given]
                    timed_contents.refresh(self._given, sources, turn, self._moving, scaled=self._scaled)
                    args, kwargs = wire.decode(structure, given, self._device)
                    self._restore()
                self._clock.settle()
                if run:
                    if collects:
                        _collect()
                    self._clock.start()
                    self._result = self._call(*args, **kwargs)
                    self._read = None if _inert(self._result) else read(self._result)
                else:
                    self._clock.start()
                self._clock.returned()
                _collect_not()
                with _Quiet():
                    self._keep()
                on_stream, elsewhere = self._clock.stop()
                device.append(on_stream)
                rest.append(elsewhere)
                del args, kwargs, given    # those of new memory end here
            with _Quiet():
                self._restore()
        finally:
            if collects:
                _collect()
        return {"device_ms": device, "rest_ms": rest}

    def lay(self, calls: list[list[int]]) -> None:
        """Put the contents of a row of calls into memory, each into its own."""
        self._drop()
        self._row = []
        self._spare = []
        self._alone()
        with _Quiet():
            for number, turn, _ in calls:
                sources, structure = self._sets[number]
                given = timed_contents.allocate_like(sources)
                timed_contents.refresh(given, sources, turn, self._moving, scaled=self._scaled)
                self._row.append((given, structure))
            self._restore()
        self._clock.settle()

    def row(self) -> None:
        """Call on all of these, one right after the other, and wait for the device. The last call's outputs are kept."""
        waiting = [wire.decode(structure, [alias(tensor) for tensor in given], self._device) for given, structure in self._row]
        for args, kwargs in waiting:
            self._result = None            # one at a time is all that a call needs memory for
            self._result = self._call(*args, **kwargs)
        self._read = None if _inert(self._result) else read(self._result)
        self._given = self._row[-1][0]
        self._row = []
        with _Quiet():
            self._keep()
        self._clock.stop()
        with _Quiet():
            self._restore()

    def _drop(self) -> None:
        self._result = self._read = None

    def _alone(self) -> None:
        """No mode of the program's sees what lies between calls."""
        if _dispatching():
            raise NotPlain("with a TorchDispatchMode of its own still in force")

    def deliver(self, outputs: Path, inputs: Path, seed: int) -> dict[str, Any]:
        """Write what the last call had returned, and the inputs it was given as they are now; of large ones a sample."""
        copies = []
        for store, output in self._kept:
            blank = torch.empty(0, dtype=output.dtype, device=store.device)
            copies.append(blank.set_(store.untyped_storage(), 0, output.shape, output.stride()))
        wire.write_tensors(outputs, timed_contents.sample(copies, seed))
        wire.write_tensors(inputs, timed_contents.sample(self._given, seed))
        return {"structure": self._structure}

    def close(self) -> None:
        if self.pinned:
            os.sched_setaffinity(0, self._cores)

    def _keep(self) -> None:
        self._structure, found = self._read or read(self._result)
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


def _inert(value: object) -> bool:
    """Whether nothing of the program's runs when this is read."""
    kind = type(value)
    if kind in _INERT:
        return True
    if kind is dict:
        return all(_inert(key) and _inert(item) for key, item in value.items())  # type: ignore[attr-defined]
    return kind in (tuple, list) and all(_inert(item) for item in value)  # type: ignore[attr-defined]


def read(result: object) -> Read:
    """A result as the judge is told it; one of the program's own type runs code of the program."""
    found: list[torch.Tensor] = []
    return wire.encode(result, found), found


def answer(
    held: TimedCalls | None, message: dict[str, Any], make: Callable[[], TimedCalls]
) -> tuple[TimedCalls | None, dict[str, Any]]:
    """One `time` message: (what to hold from now on, the answer). Its `mode` is prepare, move, block, lay, row, deliver or
    release."""
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
        held.move(message["spacer"], message["call"], message["fresh"])
        return held, {}
    if mode == "lay":
        held.lay(message["calls"])
        return held, {}
    if mode == "row":
        held.row()
        return held, {}
    if mode == "deliver":
        return held, held.deliver(Path(message["outputs"]), Path(message["inputs_after"]), message["sample"])
    return held, dict(held.block(message["calls"], run=message["run"]))
