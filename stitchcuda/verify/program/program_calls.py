"""Calls a loaded program inside its worker, on inputs from blocks, and writes what it returned and left behind into blocks.

What `forward` returned is copied before any other code of the program can run. A call is recorded, repeated many times as a
user would, or profiled. It holds no expected output, and judges nothing.
Where to look next: `verify/program/program_worker.py` (the process, and how a program is loaded), `verify/program/trial.py`
(the judge's side), `verify/integrity/call_effects.py` (what a call leaves behind).
"""

from __future__ import annotations

import gc
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import MOST_STEPS, Target
from stitchcuda.verify.inputs import draw_seeds, timed_contents
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity.byte_traffic import (
    HARMLESS,
    ORDINARY,
    ByteTraffic,
    Poison,
    add_red_zones,
    poison_as,
    poison_cached,
)
from stitchcuda.verify.integrity.call_effects import POOLED, CallEffects, generators_digest, output_marks, overlapping
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder
from stitchcuda.verify.messages import gpu_memory, wire
from stitchcuda.verify.messages.program_requests import (
    Called,
    CallProgram,
    GradientMode,
    ProfileCall,
    RepeatCalls,
    Repeated,
    RereadOutputs,
    Traced,
    WrittenTensors,
)
from stitchcuda.verify.messages.shared_tensors import alias, extent, memory_of
from stitchcuda.verify.messages.tensor_block import TensorBlock, digest, fill, unpack
from stitchcuda.verify.program import launch_failures
from stitchcuda.verify.program.buffer_restoring import held_tensor
from stitchcuda.verify.program.build_interceptor import Interceptor
from stitchcuda.verify.program.failures import ProgramError
from stitchcuda.verify.program.native_copy import NativeCopy, copy_natively, count_on_gpu
from stitchcuda.verify.program.state_loading import StateLoading
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock

_MODES: dict[GradientMode, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad, "enable_grad": torch.enable_grad, "inference_mode": torch.inference_mode,
}  # fmt: skip
_PITCH = 8                                 # elements between rows
_watch: Callable[[torch.UntypedStorage], Any] = StorageWeakRef


@dataclass
class ProgramCalls:
    """Calls of one program. `transient`: buffers that no state_dict of the reference holds and its calls change, as they were
    before the first call. `skipping`: whether kernels are left out now. Each public method takes a request and returns its
    answer."""

    program: torch.nn.Module
    interceptor: Interceptor
    state: StateLoading
    transient: dict[str, torch.Tensor]
    target: Target
    clock: DeviceClock | None
    skipping: bool = False
    _inputs: list[torch.Tensor] = field(default_factory=list)  # of the last call with the same addresses, to be read back
    _shown: list[torch.Tensor] = field(default_factory=list)  # other objects for the same memory, which the program is given
    _held: timed_calls.EncodedResult = (None, [])
    _turn: int = 0
    _calls: int = 0

    @property
    def device(self) -> str:
        return "cuda" if self.target == "cuda" else "cpu"

    def call(self, request: CallProgram) -> Called:
        program, interceptor = self.program, self.interceptor
        if not request.continued:
            self._restore()                # may run code of the program, so it comes before this call's inputs are read
        fresh = self._take_inputs(request.inputs)
        # In fresh memory they begin where it begins, as a user's do: a program can tell, and such calls show whose the work is.
        given = self._copy_to_last_inputs(fresh) if request.same_addresses else fresh
        given = list(map(_pitched, given)) if request.pitched else given
        # The program gets tensor objects of its own: what it does to them (such as changing their class) must not affect those
        # that are written to blocks here.
        shown = self._shown if request.same_addresses else _aliases(given)
        args, kwargs = wire.decode(request.structure, shown, self.device)
        if request.mode == "enable_grad":  # as a user's inputs in training
            for tensor in shown:
                tensor.requires_grad_(tensor.is_floating_point() and not request.written)
        self._calls += 1
        if self.skipping:                 # each harmless poison in turn: a kernel is idle only if it is missed with none
            self._turn += 1
            poison_as(HARMLESS[self._turn % len(HARMLESS)])
        else:                              # at times another: it must not tell that a call is judged, or kernels are skipped
            harmless = self._calls > 2 and secrets.randbelow(2)
            poison_as(secrets.choice((*HARMLESS, *ORDINARY, *ORDINARY)) if harmless else "nan")
        inverted = not request.same_addresses
        simulated = self.target == "sim"
        traffic: Poison = ByteTraffic(inverted=inverted, folder=_folder(program)) if simulated else Poison(inverted=inverted)
        if self.target == "cuda":
            poison_cached()
        launched, touched = loaded_runtime.launches(), loaded_runtime.host_bytes()
        recorder = DispatchRecorder(watch=self.target == "sim")
        launch_failures.find()             # what is from before this call says nothing of it
        loaded_runtime.take_unwritten_read()
        draw_seeds.seed_generators(request.draw_seed)
        left = {f"input {place}": tensor for place, tensor in enumerate(given) if place not in request.written}
        left |= self.state.left_alone()
        mode = _MODES[request.mode]
        memory_before = gpu_memory.start_peak() if self.target == "cuda" else 0
        with mode():
            effects = CallEffects(program, (args, kwargs), list(left.values()))
        loaded_runtime.protect([memory_of(tensor) for tensor in left.values()])
        try:
            with mode():
                with recorder, interceptor.running(traffic):
                    structure, outputs = timed_calls.encode(program(*args, **kwargs))  # may run code of the program's own types
                    failed_launch, caught = launch_failures.find(), interceptor.take_failures()
                    unwritten_read = loaded_runtime.take_unwritten_read()
                    copies = self._copies(outputs)  # while operators are recorded: none may come between
                settings = effects.settings()
        finally:
            loaded_runtime.protect([])
        own = loaded_runtime.take_bytes() if self.target == "sim" else 0
        launched, touched = loaded_runtime.launches() - launched, loaded_runtime.host_bytes() - touched
        held = request.hold and (self.target != "cuda" or gpu_memory.holds_again(memory_before))
        marks = [[*output_marks(tensor), *([POOLED] if self._is_pooled(tensor) else [])] for tensor in outputs]
        if request.hold:
            self._held = (structure, [alias(tensor) for tensor in outputs]) if held else (None, [])
        written = self._write(request, structure, copies, given)
        names = list(left)
        called = Called(
            **vars(written), failed_launch=failed_launch, unwritten_read=unwritten_read, caught=caught, settings=settings,
            tampered=[*recorder.reasons, *_intrusions(traffic)],
            **self._find_shared(outputs, given), marks=marks,
            module_changed=effects.module_changed(), arguments_changed=effects.arguments_changed(),
            written_back=[names[place] for place in effects.written()], generators=generators_digest(),
            generators_moved=effects.generators_moved(), held=held,
        )  # fmt: skip
        if self.target == "cuda":
            return called
        vendor, framework = recorder.total("vendor"), recorder.total("framework")
        moved, elsewhere = own + vendor + framework or 1, vendor + framework
        boundary = recorder.at_boundary(*({memory_of(tensor) for tensor in tensors} for tensors in (given, outputs)))
        # Replays count only if graphs move at least half of the bytes of vendor libraries and torch's operators; copies at the
        # boundary, to and from the graph's static buffers, are not counted among these.
        at_work = 2 * recorder.replayed >= elsewhere - boundary
        return replace(
            called,
            own=own / moved,
            vendor=vendor / moved,
            framework=framework / moved,
            vendor_by_torch=vendor / moved,  # the simulator runs no library that a program calls itself
            elsewhere=elsewhere,
            own_bytes=own,
            boundary=boundary,
            launches=launched,
            replays=recorder.total("replay") if at_work else 0,
            host_bytes=touched + recorder.total("read"),
            steps=recorder.steps[:MOST_STEPS],
        )

    def _is_pooled(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies beside an output of the earlier call that is held, in one memory."""
        address = tensor.untyped_storage().data_ptr()
        beside = [held for held in self._held[1] if held.data_ptr() != tensor.data_ptr()]
        return address != 0 and any(held.untyped_storage().data_ptr() == address for held in beside)

    def _find_shared(self, outputs: list[torch.Tensor], given: list[torch.Tensor]) -> dict[str, Any]:
        """The positions of outputs that have elements in common, with each other, with inputs or with the program's state."""
        count, plain = len(outputs), [alias(tensor) for tensor in outputs]
        pairs = overlapping([*plain, *given, *self.state.held().values(), *self._transient_now()], count)
        with_inputs = count + len(given)
        return {
            "overlapping": [pair for pair in pairs if pair[1] < count],
            "in_inputs": sorted({first for first, second in pairs if count <= second < with_inputs}),
            "in_state": sorted({first for first, second in pairs if second >= with_inputs}),
        }

    def _transient_now(self) -> list[torch.Tensor]:
        found = [held_tensor(self.program, name) for name in self.transient]
        if None in found:
            raise ProgramError("the program keeps a buffer that the reference updates in no buffer after a call")
        return found  # type: ignore[return-value]

    def _take_inputs(self, block: TensorBlock) -> list[torch.Tensor]:
        """Returns a call's inputs. The program finds no descriptor of them."""
        gpu_memory.leave_to_others()       # what the reference took while the program was loaded is free again
        tensors = unpack(block, self.device)
        block.close()
        return tensors

    def _copies(self, outputs: list[torch.Tensor]) -> list[NativeCopy]:
        """Waits for the device and returns copies of what forward returned, which no code of the program can reach."""
        for tensor in outputs:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise ProgramError(f"forward returned a {type(tensor).__name__}, not a plain tensor")
        plain = [alias(tensor) for tensor in outputs]  # without attributes that hide its methods
        for tensor in plain:
            if tensor.is_meta:
                raise ProgramError("forward returned a tensor on the device meta, which has no values")
            end = (int(tensor.storage_offset()) + extent(tensor)) * tensor.itemsize
            if tensor.numel() and end > tensor.untyped_storage().nbytes():
                raise ProgramError("forward returned something that cannot be judged: a tensor whose memory was given back")
        self._synchronize()
        return copy_natively(plain, self.clock)

    def _write(
        self, request: CallProgram | RepeatCalls, structure: Any, outputs: list[NativeCopy], given: list[torch.Tensor]
    ) -> WrittenTensors:
        """Writes copies of the outputs of a call, the inputs as they are after it, and the state that the reference's calls
        change, to the request's blocks."""
        now, updated = self.state.current(), self.state.updated
        return WrittenTensors(
            structure=structure,
            outputs=fill(request.outputs, [copy.tensor() for copy in outputs]),
            inputs_after=fill(request.inputs_after, given),
            state_after=fill(
                request.state_after,
                [*(tensor for name, tensor in now.items() if name in updated), *self._transient_now()],
            ),
            digests=[digest(tensor, request.state_key) for name, tensor in now.items() if name not in updated],
        )

    def reread(self, request: RereadOutputs) -> WrittenTensors:
        structure, tensors = self._held
        return WrittenTensors(structure=structure, outputs=fill(request.outputs, tensors))

    def repeat(self, request: RepeatCalls) -> Repeated:
        """Makes calls as a user makes them: nothing recorded, nothing poisoned, each with other contents.

        A program that counts calls, to behave only while it is judged, gets past its count. The call on the request's inputs
        comes at a random place.
        """
        program, interceptor = self.program, self.interceptor
        tensors = self._take_inputs(request.inputs)
        rollable = [timed_contents.is_rollable(tensor) for tensor in tensors]
        done, until = 0, time.monotonic() + request.budget_s
        place, last = secrets.randbelow(request.calls), False
        written: WrittenTensors | None = None
        passed: list[Any] = []             # the memory of inputs and outputs
        descriptor = _free_descriptor()
        memory_before = gpu_memory.start_peak() if self.target == "cuda" else 0
        while not last:
            last = done + 1 == request.calls or time.monotonic() >= until
            compared = done == place or (last and done < place)
            given = timed_contents.roll(tensors, rollable, 0 if compared else done + 1)
            args, kwargs = wire.decode(request.structure, _aliases(given), self.device)
            self._restore()
            if request.draw_seed is not None:
                draw_seeds.seed_generators(request.draw_seed if compared else secrets.randbits(62))
            with torch.no_grad(), interceptor.running():
                found, outputs = timed_calls.encode(program(*args, **kwargs))
            if compared:
                written = self._write(request, found, self._copies(outputs), given)
            passed += [_watch(tensor.untyped_storage()) for tensor in (*given, *outputs) if tensor.numel()]
            if self.target == "cuda" and not gpu_memory.holds_again(memory_before):
                outputs = []               # else they are kept during the next call, as in a user's loop
            done += 1
        self._synchronize()
        del given, args, kwargs, found, outputs
        gc.collect()
        kept = len({memory.cdata for memory in passed if not memory.expired()})
        opened = max(0, _free_descriptor() - descriptor)
        assert written is not None
        return Repeated(**vars(written), calls=done, kept=kept, opened=opened, tampered=[])

    def profile(self, request: ProfileCall) -> Traced:
        """Records through CUPTI what the device does in a call after a warm-up on other contents. No outputs are held then."""
        program, interceptor = self.program, self.interceptor
        self._held = (None, [])
        asked = self._take_inputs(request.inputs)
        rollable = [timed_contents.is_rollable(tensor) for tensor in asked]
        tensors = timed_contents.roll(asked, rollable, 3)
        args, kwargs = wire.decode(request.structure, _aliases(tensors), self.device)
        structure: Any = None
        returned: list[NativeCopy] = []

        def call() -> timed_calls.EncodedResult:
            draw_seeds.seed_generators(request.draw_seed)
            return timed_calls.encode(program(*args, **kwargs))

        def renew() -> None:
            for old, new in zip(tensors, asked, strict=True):
                _overwrite(old, new)

        def keep(result: timed_calls.EncodedResult) -> int:
            nonlocal structure, returned
            structure, outputs = result
            returned = self._copies(outputs)
            return count_on_gpu(returned)

        with torch.no_grad(), interceptor.running():
            found = device_time.record(call, restore=self._restore, renew=renew, keep=keep)
        outputs = fill(request.outputs, [copy.tensor() for copy in returned])
        return Traced(**vars(found), structure=structure, outputs=outputs)

    def _restore(self) -> None:
        """Gives parameters and buffers their values from before the first call: a call must not profit from the one before."""
        with torch.no_grad():
            if self.state.changed():
                with self.interceptor.running():
                    self.state.restore()
            for name, buffer in self.program.named_buffers() if self.transient else ():
                if name in self.transient and buffer.shape == self.transient[name].shape:
                    buffer.copy_(self.transient[name])

    def _copy_to_last_inputs(self, fresh: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies new contents to the addresses of the last inputs, where layouts are the same: a program that caches results by
        pointer is then wrong."""
        def alike(old: torch.Tensor, new: torch.Tensor) -> bool:
            return old.shape == new.shape and old.dtype == new.dtype and old.stride() == new.stride()

        if len(self._inputs) == len(fresh) and all(map(alike, self._inputs, fresh)):
            for old, new in zip(self._inputs, fresh, strict=True):
                _overwrite(old, new)
        else:
            self._inputs = add_red_zones(fresh)
            self._shown = _aliases(self._inputs)
        return self._inputs

    def _synchronize(self) -> None:
        if self.target == "cuda":
            torch.cuda.synchronize()


def _pitched(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the first part of longer rows, as `x[:, :64]` is, if it has rows that lie side by side."""
    if tensor.dim() < 2 or not tensor.is_contiguous() or tensor.numel() == 0:
        return tensor
    rows = torch.zeros((*tensor.shape[:-1], tensor.shape[-1] + _PITCH), dtype=tensor.dtype, device=tensor.device)
    rows[..., :-_PITCH].copy_(tensor)
    return rows[..., :-_PITCH]


def _free_descriptor() -> int:
    """The least file descriptor that is free."""
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    return found


def _folder(program: torch.nn.Module) -> str:
    """The folder of the file that defines the program; "" if that is not known."""
    file = getattr(sys.modules.get(type(program).__module__), "__file__", None)
    return os.path.dirname(file) + os.sep if isinstance(file, str) else ""


def _intrusions(traffic: Poison) -> list[str]:
    if not traffic.intruders:
        return []
    where = ", ".join(traffic.intruders)
    return [f"Python functions ran inside operators of torch, where nobody counts what they do ({where})"]


def _aliases(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns other objects for the same tensors; those that are one tensor in all are one object, as a user gives it."""
    made: dict[Any, torch.Tensor] = {}
    found = []
    for place, tensor in enumerate(tensors):
        key = (memory_of(tensor) if tensor.numel() else place, tensor.dtype, tensor.shape, tensor.stride())
        found.append(made.setdefault(key, alias(tensor)))
    return found


def _overwrite(old: torch.Tensor, new: torch.Tensor) -> None:
    """Writes the contents of `new` to the addresses of `old`, whose strides may be others."""
    if 0 in [stride for size, stride in zip(old.shape, old.stride(), strict=True) if size > 1]:
        _span(old).data.copy_(_span(new))
    else:
        old.data.copy_(new)                # through .data, so that the tensor's version does not change


def _span(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor covers, each place once: an expanded tensor cannot be written to directly."""
    return tensor.as_strided((extent(tensor),), (1,))
