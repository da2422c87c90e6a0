"""Makes timed calls inside a worker, with the same code for reference and program. It decides nothing.

Each call gets contents that no call had before (`verify/inputs/timed_contents.py`), at old or new addresses. Its outputs are
copied in stream order the moment it returns, so that later work is missing from the copy, which the judge may read. A block
with `run` false leaves out the call alone. Between blocks all tensors move, since addresses can change a kernel's time by
several percent. A row is many calls with nothing between them. Between timed spans no Python of the program runs: results are
dropped before there are new contents, arguments are new objects, modes and garbage collection are off.
Where to look next: `verify/timing/stopwatch.py` (the clocks), `verify/program/buffer_restoring.py` (state),
`verify/timing/rounds.py` (the judge's side).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import torch

from stitchcuda.verify.inputs import timed_contents
from stitchcuda.verify.inputs.draw_seeds import seed_for_turn, seed_generators
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.program_requests import WrittenTensors
from stitchcuda.verify.messages.request import Answer, Done
from stitchcuda.verify.messages.shared_tensors import alias, extent
from stitchcuda.verify.messages.tensor_block import fill, unpack
from stitchcuda.verify.messages.timing_requests import (
    BlockTimes,
    CallRow,
    Deliver,
    LayRow,
    MoveTensors,
    PrepareTiming,
    ReleaseTiming,
    TimeBlock,
    TimingPrepared,
    TimingReleased,
    TimingRequest,
)
from stitchcuda.verify.timing.stopwatch import Clock

TimedCallable = Callable[..., object]
EncodedResult = tuple[Any, list[torch.Tensor]]
"""(structure, its tensors), as `wire.encode` returns them."""

# Bound before a program is imported, so that its modes and tensor classes take no part in what happens between calls.
_Quiet = torch._C.DisableTorchFunction
_dispatching = torch._C._len_torch_dispatch_stack
_collect, _collect_not = gc.enable, gc.disable
_INERT = (torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, str)


class NotPlain(Exception):
    """The call returned something else than plain tensors with memory. The text completes "forward returned ..."."""


class TimedCalls:
    """The input sets in memory, one place for the inputs of most calls, and a copy of what the last call returned."""

    def __init__(
        self, request: PrepareTiming, call: TimedCallable, clock: Clock, *, device: str,
        restore: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`restore`: puts back state that a call changes."""
        self._sets = [
            (unpack(inputs, device), structure) for inputs, structure in zip(request.inputs, request.structures, strict=True)
        ]
        self._moving, self._scaled, self._draw_seeds = request.moving, request.scaled, request.draw_seeds
        self._call, self._clock, self._restore, self._device = call, clock, restore, device
        self._place = timed_contents.allocate_like(self._sets[0][0])
        self._spare: list[list[torch.Tensor]] = []  # for the calls at new addresses in the next block
        self._given = self._place          # the tensors that the last call was given
        self._aliases: list[torch.Tensor] = []  # of `_place`: objects for calls, which never get our own
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # of outputs: (bytes, a meta tensor with the layout)
        self._structure: Any = None
        self._result: object = None        # of the last call
        self._encoded: EncodedResult | None = None     # the same encoded, if that ran code of the program
        self._row: list[tuple[list[torch.Tensor], Any]] = []  # (contents, structure) of calls
        self._row_seed: int | None = None  # of its last call
        self._spacer: torch.Tensor | None = None
        self._cores = os.sched_getaffinity(0)
        self.pinned = request.core in self._cores
        if request.core is not None and self.pinned:
            try:
                os.sched_setaffinity(0, {request.core})
            except PermissionError:        # the judge makes a note of it
                self.pinned = False

    def move(self, request: MoveTensors) -> Done:
        """Memory for calls at new addresses is taken before the one call that this makes. If it were taken between calls, it
        would be the free blocks for the program's outputs, and a timed call would ask the driver for memory, which no user's
        loop does."""
        self._drop_result()
        self._row = []
        self._spacer = None
        self._place = self._given = self._aliases = []
        self._spare = []
        if self._device == "cuda":
            torch.cuda.empty_cache()
        with _Quiet():
            self._spacer = torch.empty(request.spacer, dtype=torch.uint8, device=self._device)
            self._place = timed_contents.allocate_like(self._sets[0][0])
            try:
                for _ in range(request.fresh):
                    self._spare.append(timed_contents.allocate_like(self._place))
            except RuntimeError as error:  # what is missing is taken just before its call
                if not is_out_of_memory(error):
                    raise
            self._aliases = [alias(tensor) for tensor in self._place]
        self.block(TimeBlock(calls=[request.call], run=True))
        return Done()

    def block(self, request: TimeBlock) -> BlockTimes:
        run = request.run
        device: list[float] = []
        rest: list[float] = []
        collects = gc.isenabled()
        try:
            for number, turn, fresh in request.calls:
                _collect_not()
                if run:
                    self._drop_result()           # destructors run before there are new contents
                self._check_no_mode()
                with _Quiet():
                    sources, structure = self._sets[number]
                    self._given, given = self._place, self._aliases
                    if fresh:
                        self._given = self._spare.pop() if self._spare else timed_contents.allocate_like(sources)
                        given = [alias(tensor) for tensor in self._given]
                    timed_contents.refresh(self._given, sources, turn, self._moving, scaled=self._scaled)
                    args, kwargs = wire.decode(structure, given, self._device)
                    self._restore()
                seed_generators(seed_for_turn(self._draw_seeds[number], turn))
                self._clock.settle()
                if run:
                    if collects:
                        _collect()
                    self._clock.start()
                    self._result = self._call(*args, **kwargs)
                    self._encoded = None if _inert(self._result) else encode(self._result)
                else:
                    self._clock.start()
                self._clock.returned()
                _collect_not()
                with _Quiet():
                    self._copy_outputs()
                on_stream, elsewhere = self._clock.stop()
                device.append(on_stream)
                rest.append(elsewhere)
                del args, kwargs, given    # frees memory at new addresses
            with _Quiet():
                self._restore()
        finally:
            if collects:
                _collect()
        return BlockTimes(device_ms=device, rest_ms=rest)

    def lay(self, request: LayRow) -> Done:
        self._drop_result()
        self._row = []
        self._spare = []
        self._check_no_mode()
        with _Quiet():
            for number, turn, _ in request.calls:
                sources, structure = self._sets[number]
                given = timed_contents.allocate_like(sources)
                timed_contents.refresh(given, sources, turn, self._moving, scaled=self._scaled)
                self._row.append((given, structure))
                self._row_seed = seed_for_turn(self._draw_seeds[number], turn)
            self._restore()
        self._clock.settle()
        return Done()

    def row(self) -> Done:
        """Makes the calls that were laid, and waits for the device. The last outputs are copied; only before that call are
        generators seeded, which takes time."""
        waiting = [wire.decode(structure, [alias(tensor) for tensor in given], self._device) for given, structure in self._row]
        for left, (args, kwargs) in zip(reversed(range(len(waiting))), waiting, strict=True):
            self._result = None            # so that memory for one result is enough
            if not left:
                seed_generators(self._row_seed)
            self._result = self._call(*args, **kwargs)
        self._encoded = None if _inert(self._result) else encode(self._result)
        self._given = self._row[-1][0]
        self._row = []
        with _Quiet():
            self._copy_outputs()
        self._clock.stop()
        with _Quiet():
            self._restore()
        return Done()

    def _drop_result(self) -> None:
        self._result = self._encoded = None

    def _check_no_mode(self) -> None:
        """Raises `NotPlain` if a dispatch mode of the program is still on: it would see what happens between calls."""
        if _dispatching():
            raise NotPlain("with a TorchDispatchMode of its own still in force")

    def deliver(self, request: Deliver) -> WrittenTensors:
        copies = []
        for store, output in self._copies:
            blank = torch.empty(0, dtype=output.dtype, device=store.device)
            copies.append(blank.set_(store.untyped_storage(), 0, output.shape, output.stride()))
        return WrittenTensors(
            structure=self._structure,
            outputs=fill(request.outputs, timed_contents.sample(copies, request.sample)),
            inputs_after=fill(request.inputs_after, timed_contents.sample(self._given, request.sample)),
        )

    def close(self) -> None:
        """Lets the process run on all its cores again."""
        if self.pinned:
            os.sched_setaffinity(0, self._cores)

    def _copy_outputs(self) -> None:
        self._structure, found = self._encoded or encode(self._result)
        if len(self._copies) != len(found):
            self._copies = [(torch.empty(0, dtype=torch.uint8), tensor) for tensor in found]
        for position, tensor in enumerate(found):
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise NotPlain(f"a {type(tensor).__name__}, not a plain tensor")
            tensor = alias(tensor)         # without attributes that hide its methods
            if tensor.is_conj() or tensor.is_neg():
                tensor = tensor.resolve_conj().resolve_neg()
            address, size = tensor.data_ptr(), extent(tensor) * tensor.element_size()
            if size and not address:
                raise NotPlain("a tensor without memory")
            store = self._copies[position][0]
            if store.numel() != size or store.device != tensor.device:
                store = torch.empty(size, dtype=torch.uint8, device=tensor.device)
            if size and tensor.device.type == self._device:
                self._clock.copy(store, address, size)
            elif size:
                store.copy_(tensor.detach().as_strided((size // tensor.element_size(),), (1,)).view(torch.uint8))
            # Only the layout is kept, so that the output itself can be freed.
            layout = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            self._copies[position] = (store, layout)


def _inert(value: object) -> bool:
    """Whether encoding a value runs no code of the program."""
    kind = type(value)
    if kind in _INERT:
        return True
    if kind is dict:
        return all(_inert(key) and _inert(item) for key, item in value.items())  # type: ignore[attr-defined]
    return kind in (tuple, list) and all(_inert(item) for item in value)  # type: ignore[attr-defined]


def encode(result: object) -> EncodedResult:
    """Returns a result as (structure, tensors). Runs code of the program if the result is of the program's own type."""
    found: list[torch.Tensor] = []
    return wire.encode(result, found), found


def answer_request(
    held: TimedCalls | None, request: TimingRequest, prepare: Callable[[PrepareTiming], TimedCalls]
) -> tuple[TimedCalls | None, Answer]:
    """Answers a request. `held`: what `prepare` made, None before and after timing. Returns (what to hold from now on, the
    answer)."""
    match request:
        case PrepareTiming():
            held = prepare(request)
            return held, TimingPrepared(pinned=held.pinned)
        case ReleaseTiming():
            if held is not None:
                held.close()
            return None, TimingReleased(tampered=[])
    if held is None:
        raise RuntimeError("a block of calls before its input sets")
    match request:
        case MoveTensors():
            return held, held.move(request)
        case TimeBlock():
            return held, held.block(request)
        case LayRow():
            return held, held.lay(request)
        case CallRow():
            return held, held.row()
        case Deliver():
            return held, held.deliver(request)
