"""Runs generated code in a sandboxed process: loads a program, calls it on given inputs, writes its outputs into blocks.

It answers requests of the judge (`verify/messages/program_requests.py`). It holds inputs, parameters and the program, but
never a seed, an expected output or a bound. The judge believes only the tensors that it wrote, and a report of tampering. An
exception of the program is one sentence in the answer; a crash is noticed by the judge's side.
Where to look next: `verify/program/trial.py` (the judge's side), `verify/processes/worker.py` (how a crash is noticed),
`verify/program/build_interceptor.py` (how the program's kernels are built), `verify/integrity/tampering.py` (what counts as
tampering).
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stitchcuda.counts import counted
from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import Target
from stitchcuda.verify.inputs import draw_seeds, timed_contents
from stitchcuda.verify.integrity import device_time, tampering
from stitchcuda.verify.integrity.byte_traffic import HARMLESS, ByteTraffic, Poison, add_red_zones, poison_as, poison_cached
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder, close_recordings
from stitchcuda.verify.messages import build_orders, gpu_memory, host_memory, wire
from stitchcuda.verify.messages.device_memory import device_memory
from stitchcuda.verify.messages.large_parameters import construct
from stitchcuda.verify.messages.program_requests import (
    Called,
    CallProgram,
    DisturbTensor,
    IdleWork,
    Launches,
    LoadProgram,
    ProfileCall,
    ProgramLoaded,
    ReloadState,
    RepeatCalls,
    Repeated,
    RereadOutputs,
    SkipKernels,
    Traced,
    WatchIdle,
    WrittenTensors,
)
from stitchcuda.verify.messages.request import Answer, Done
from stitchcuda.verify.messages.shared_tensors import alias, extent, memory_of
from stitchcuda.verify.messages.tensor_block import TensorBlock, digest, fill, unpack
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS, PrepareTiming, ReleaseTiming, TimingRequest
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.program import launch_failures, simulated_device
from stitchcuda.verify.program.buffer_restoring import BufferRestoring
from stitchcuda.verify.program.build_interceptor import Interceptor
from stitchcuda.verify.program.failures import ProgramError, describe_failure
from stitchcuda.verify.program.kernel_switches import switches
from stitchcuda.verify.program.native_copy import NativeCopy, copy_natively, count_on_gpu
from stitchcuda.verify.program.state_loading import StateLoading
from stitchcuda.verify.reference.float64_truth import allow_tf32
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock
from stitchcuda.verify.timing.timed_calls import TimedCalls

_hidden: dict[str, Any] = {}               # our own modules, which a program that imports them by name must not get
_TamperCheck = Callable[[], list[str]]     # returns sentences on what the program did to the process it runs in


class ProgramWorker:
    """One loaded program. Each public method but `prepare` takes a request and returns its answer.

    `build`: sends a build order to the builder. `add_checks`: takes the two tamper checks once they exist. `judged`: false in
    `verify/program/profiled_process.py`, where a profiler must be able to record.
    """

    def __init__(
        self,
        scratch: Path,
        target: Target,
        build: build_orders.Build,
        add_checks: Callable[[_TamperCheck, _TamperCheck], None],
        *,
        judged: bool = True,
    ) -> None:
        self._scratch = scratch
        self._target = target
        self._build = build
        self._device = "cuda" if target == "cuda" else "cpu"
        self.program: torch.nn.Module      # these three after `load`; the program is called in `interceptor.running()`
        self.interceptor: Interceptor
        self._state: StateLoading
        self._transient: dict[str, torch.Tensor] = {}  # buffers that no state_dict holds and a forward changes
        self._inputs: list[torch.Tensor] = []  # of the last call with the same addresses, as this worker reads them back
        self._shown: list[torch.Tensor] = []  # other tensor objects for the same memory, which the program is given
        self._switches = switches(target)
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
        self._held: timed_calls.EncodedResult = (None, [])
        self._skipping = False
        self._turn = self._calls = 0
        self._add_checks = add_checks
        self._folder = scratch
        self._judged = judged

    def prepare(self) -> None:
        """Creates the CUDA context and the clock, and looks up the driver's functions for shared memory and the runtime's for
        errors (GPU only), before there is a program that could replace them."""
        if self._target == "cuda" and self._clock is None:
            self._clock = DeviceClock()
            device_memory()
            launch_failures.watch_gpu()

    def load(self, request: LoadProgram) -> ProgramLoaded:
        path = Path(request.program)
        allow_tf32(request.precision)
        self.prepare()
        if self._target == "cuda":
            gpu_memory.set_limit(request.gpu_bytes)
        source = path / "model_new.py" if path.is_dir() else path
        self._folder = path if path.is_dir() else path.parent
        skip = self._target == "cuda" and request.masked  # the simulator can leave out any kernel without it
        self.interceptor = Interceptor(self._target, self._folder, self._build, skip=skip)
        self.interceptor.install()
        if self._target == "sim":
            # A device promises no order of blocks and threads, so the order is random: a program that needs one is wrong. With
            # CHECK, shared memory that nothing wrote reads as NaN, not as what the last block left there.
            seed = 2 * secrets.randbelow(2**15) + request.backwards
            self.interceptor.start({"SCHEDULE": f"random:{seed}", "CHECK": "1"})
        sys.dont_write_bytecode = True
        if self._judged:
            close_recordings()
        sealed = tampering.seal()
        sealed.accept_changes()
        self._add_checks(sealed.checker(), tampering.watch(self._folder, self._scratch))
        _hidden.update({name: module for name, module in sys.modules.items() if name.partition(".")[0] == "stitchcuda"})
        for name in _hidden:               # a program that imports them gets fresh copies, which measure nothing
            del sys.modules[name]
        with self.interceptor.running():
            module = self._import(source)
            model = getattr(module, "ModelNew", None)
            if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
                raise ProgramError(f"{source.name} defines no class ModelNew that is an nn.Module")
            tensors = unpack(request.init, self._device)
            args, kwargs = wire.decode(request.init_structure, tensors, self._device)
            program = construct(lambda: _construct(model, args, kwargs), request.init_seed, self._device).to(self._device)
            if self._target == "sim":
                simulated_device.move_to_device(program)
        program.train(request.training)
        self.program = program
        given = dict(zip(request.state_names, self._read_state(request.state), strict=True))
        with self.interceptor.running():
            self._state = StateLoading(program, given, request, strict=path.is_dir())
        buffers = dict(program.named_buffers())
        self._transient = {name: buffers[name].detach().clone() for name in request.transient if name in buffers}
        return ProgramLoaded(
            missing=self._state.missing,
            elsewhere=self._state.elsewhere,
            guessed=self._state.guessed,
            spare=self._state.spare_sizes(),
            alike=self._state.names_of_alike(),
            caught=self.interceptor.take_failures(),
            tampered=[],
        )

    def call(self, request: CallProgram) -> Called:
        program, interceptor = self.program, self.interceptor
        self._restore()                    # may run code of the program, so it comes before this call's inputs are read
        fresh = self._take_inputs(request.inputs)
        given = self._copy_to_last_inputs(fresh) if request.same_addresses else add_red_zones(fresh)
        # The program gets tensor objects of its own: what it does to them (such as changing their class) must not affect those
        # that are written to blocks here.
        shown = self._shown if request.same_addresses else [alias(tensor) for tensor in given]
        args, kwargs = wire.decode(request.structure, shown, self._device)
        self._calls += 1
        if self._skipping:                 # each harmless poison in turn: a kernel is idle only if it is missed with none
            self._turn += 1
            poison_as(HARMLESS[self._turn % len(HARMLESS)])
        else:                              # at times a harmless one too: it must not tell a program that kernels are skipped
            harmless = self._calls > 2 and secrets.randbelow(2)
            poison_as(secrets.choice(HARMLESS) if harmless else "nan")
        inverted = not request.same_addresses
        traffic: Poison = ByteTraffic(inverted=inverted) if self._target == "sim" else Poison(inverted=inverted)
        if self._target == "cuda":
            poison_cached()
        launched, touched = loaded_runtime.launches(), loaded_runtime.host_bytes()
        recorder = DispatchRecorder(watch=self._target == "sim")
        launch_failures.find()             # one from before this call says nothing of it
        draw_seeds.seed_generators(request.draw_seed)
        with torch.no_grad(), recorder, interceptor.running(traffic):
            structure, outputs = timed_calls.encode(program(*args, **kwargs))  # may run code of the program's own types
            failed_launch, caught = launch_failures.find(), interceptor.take_failures()
            copies = self._copies(outputs) # while operators are recorded: none may come between
        own = loaded_runtime.take_bytes() if self._target == "sim" else 0
        launched, touched = loaded_runtime.launches() - launched, loaded_runtime.host_bytes() - touched
        if request.hold:
            self._held = structure, [alias(tensor) for tensor in outputs]
        written = self._write(request, structure, copies, given)
        if self._target == "cuda":
            return Called(**vars(written), failed_launch=failed_launch, caught=caught, tampered=recorder.reasons)
        vendor, framework = recorder.total("vendor"), recorder.total("framework")
        moved, elsewhere = own + vendor + framework or 1, vendor + framework
        boundary = recorder.at_boundary(*({memory_of(tensor) for tensor in tensors} for tensors in (given, outputs)))
        # Replays count only if graphs move at least half of the bytes of vendor libraries and torch's operators; copies at the
        # boundary, to and from the graph's static buffers, are not counted among these.
        at_work = 2 * recorder.replayed >= elsewhere - boundary
        return Called(
            **vars(written),
            failed_launch=failed_launch,
            caught=caught,
            own=own / moved,
            vendor=vendor / moved,
            framework=framework / moved,
            vendor_by_torch=vendor / moved,  # the simulator runs no library that a program calls itself
            elsewhere=elsewhere,
            boundary=boundary,
            launches=launched,
            replays=recorder.total("replay") if at_work else 0,
            host_bytes=touched + recorder.total("read"),
            tampered=recorder.reasons,
        )

    def _take_inputs(self, block: TensorBlock) -> list[torch.Tensor]:
        """Returns a call's inputs. The program finds no descriptor of them."""
        gpu_memory.leave_to_others()       # what the reference took while the program was loaded is free again
        tensors = unpack(block, self._device)
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
        return copy_natively(plain, self._clock)

    def _write(
        self, request: CallProgram | RepeatCalls, structure: Any, outputs: list[NativeCopy], given: list[torch.Tensor]
    ) -> WrittenTensors:
        """Writes copies of the outputs of a call, the inputs as they are after it, and the state that the reference's calls
        change, to the request's blocks."""
        now, updated = self._state.current(), self._state.updated
        return WrittenTensors(
            structure=structure,
            outputs=fill(request.outputs, [copy.tensor() for copy in outputs]),
            inputs_after=fill(request.inputs_after, given),
            state_after=fill(request.state_after, [tensor for name, tensor in now.items() if name in updated]),
            digests=[digest(tensor, request.state_key) for name, tensor in now.items() if name not in updated],
        )

    def reload(self, request: ReloadState) -> Done:
        with self.interceptor.running():
            self._state.load(dict(zip(request.names, self._read_state(request.state), strict=True)))
        return Done()

    def _read_state(self, block: TensorBlock) -> list[torch.Tensor]:
        """Returns the values that are to be loaded. They stay on the host if the GPU had no room for them."""
        return unpack(block, block.device)

    def disturb(self, request: DisturbTensor) -> Done:
        with self.interceptor.running():
            self._state.disturb(request.number)
        return Done()

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
        while not last:
            last = done + 1 == request.calls or time.monotonic() >= until
            compared = done == place or (last and done < place)
            given = timed_contents.roll(tensors, rollable, 0 if compared else done + 1)
            args, kwargs = wire.decode(request.structure, [alias(tensor) for tensor in given], self._device)
            self._restore()
            if request.draw_seed is not None:
                draw_seeds.seed_generators(request.draw_seed if compared else secrets.randbits(62))
            with torch.no_grad(), interceptor.running():
                found, outputs = timed_calls.encode(program(*args, **kwargs))
            if compared:
                written = self._write(request, found, self._copies(outputs), given)
            done += 1
        self._synchronize()
        assert written is not None
        return Repeated(**vars(written), calls=done, tampered=[])

    def skip(self, request: SkipKernels) -> Launches:
        launches = self._switches.take_launches()
        self._switches.skip(request.kernels)
        self._skipping = bool(request.kernels)
        poison_as("nan")
        return Launches(launches=launches)

    def profile(self, request: ProfileCall) -> Traced:
        """Records through CUPTI what the device does in a call after a warm-up on other contents."""
        program, interceptor = self.program, self.interceptor
        asked = self._take_inputs(request.inputs)
        rollable = [timed_contents.is_rollable(tensor) for tensor in asked]
        tensors = add_red_zones(timed_contents.roll(asked, rollable, 3))
        args, kwargs = wire.decode(request.structure, [alias(tensor) for tensor in tensors], self._device)
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

    def idle(self, request: WatchIdle) -> IdleWork:
        """Records what the device does without a call, on one CPU core as while calls are timed."""
        cores = os.sched_getaffinity(0)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {min(cores)})
        try:
            return IdleWork(worked=device_time.record_idle(request.budget_s))
        finally:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cores)

    def time(self, request: TimingRequest) -> Answer:
        program, interceptor = self.program, self.interceptor

        def prepare(request: PrepareTiming) -> TimedCalls:
            assert self._clock is not None
            buffers = BufferRestoring(program, *self._state.tensors_to_restore(request.restore))
            return TimedCalls(request, program, self._clock, device=self._device, restore=buffers.apply)

        with torch.no_grad(), interceptor.running():
            self._timed, answer = timed_calls.answer_request(self._timed, request, prepare)
        if self._timed is None:
            torch.cuda.empty_cache()
        return answer

    def _import(self, source: Path) -> Any:
        if not source.is_file():
            raise ProgramError(f"{source.name} is missing in the program's folder")
        sys.path.append(str(source.parent))
        spec = importlib.util.spec_from_file_location("model_new", source)
        if spec is None or spec.loader is None:
            raise ProgramError(f"{source.name} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["model_new"] = module
        spec.loader.exec_module(module)
        return module

    def _restore(self) -> None:
        """Gives parameters and buffers their values from before the first call: a call must not profit from the one before."""
        with torch.no_grad():
            if self._state.changed():
                with self.interceptor.running():
                    self._state.restore()
            for name, buffer in self.program.named_buffers() if self._transient else ():
                if name in self._transient and buffer.shape == self._transient[name].shape:
                    buffer.copy_(self._transient[name])

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
            self._shown = [alias(tensor) for tensor in self._inputs]
        return self._inputs

    def _synchronize(self) -> None:
        if self._target == "cuda":
            torch.cuda.synchronize()


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answers the judge's messages until it closes the channel."""
    if target == "cuda":                   # on the simulator, host memory is the device's: it is limited and counted
        host_memory.keep_freed()
    checks: tuple[_TamperCheck, ...] = ()

    def add_checks(replaced: _TamperCheck, looked: _TamperCheck) -> None:
        nonlocal checks
        checks = (*checks, replaced, looked)

    worker = ProgramWorker(scratch, target, build_orders.order_over(channel), add_checks)
    with contextlib.suppress(Exception):   # what fails here fails again, and is reported, when a program is loaded
        worker.prepare()
    answered: list[tuple[type, Callable[[Any], Answer]]] = [
        (LoadProgram, worker.load), (CallProgram, worker.call), (SkipKernels, worker.skip), (RereadOutputs, worker.reread),
        (ReloadState, worker.reload), (DisturbTensor, worker.disturb), (RepeatCalls, worker.repeat),
        (ProfileCall, worker.profile), (WatchIdle, worker.idle), *((kind, worker.time) for kind in TIMING_REQUESTS),
    ]  # fmt: skip
    handlers = {kind.__name__: (kind, handler) for kind, handler in answered}
    # These functions are bound before there is a program that could replace them. The tamper checks run here, through local
    # variables and not by name, so that a replaced function cannot hide that it was replaced. They are in a tuple, because a
    # program could empty a list. A program that obtained this frame could still rebind these variables: `tampering.watch` makes
    # looking for frames fail, and reports it.
    receive, send = channel.receiver(), channel.sender()
    take, fields_of = wire.take_blocks, vars
    checked = frozenset(kind.__name__ for kind in (LoadProgram, CallProgram, RepeatCalls, ReleaseTiming))  # no timed call
    while True:
        message = take(receive())
        token, name = message.pop("id"), message.pop("do")
        make, handle = handlers[name]
        try:
            answer = handle(make(**message))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            answer = describe_failure(error, worker._folder)
        fields = fields_of(answer)
        if name in checked and "error" not in fields:
            found = [sentence for check in checks for sentence in check()]
            fields = fields | {"tampered": [*fields["tampered"], *found]}
        send(fields | {"id": token})


def _construct(model: type[torch.nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """Constructs `ModelNew` with the arguments of the reference's constructor, or with none where it does not take these.
    Raises `ProgramError` where it takes neither."""
    try:
        inspect.signature(model).bind(*args, **kwargs)
    except TypeError:
        try:
            inspect.signature(model).bind()
        except TypeError:
            raise ProgramError(
                f"ModelNew{inspect.signature(model)} cannot be called with the reference's "
                f"{counted(len(args) + len(kwargs), 'argument')}"
            ) from None
        return model()
    return model(*args, **kwargs)


def _overwrite(old: torch.Tensor, new: torch.Tensor) -> None:
    """Writes the contents of `new` to the addresses of `old`, whose strides may be others."""
    if 0 in [stride for size, stride in zip(old.shape, old.stride(), strict=True) if size > 1]:
        _span(old).data.copy_(_span(new))
    else:
        old.data.copy_(new)                # through .data, so that the tensor's version does not change


def _span(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor covers, each place once: an expanded tensor cannot be written to directly."""
    return tensor.as_strided((extent(tensor),), (1,))
