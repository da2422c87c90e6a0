"""Runs generated code in a sandboxed process: loads a program, and answers what the judge asks about it.

It answers requests of the judge (`verify/messages/program_requests.py`). It holds inputs, parameters and the program, but
never a seed, an expected output or a bound. The judge believes only the tensors that it wrote, and a report of tampering. An
exception of the program is one sentence in the answer; a crash is noticed by the judge's side.
Where to look next: `verify/program/program_calls.py` (the calls), `verify/program/trial.py` (the judge's side),
`verify/processes/worker.py` (how a crash is noticed), `verify/program/build_interceptor.py` (how the program's kernels are
built), `verify/integrity/tampering.py` (what counts as tampering).
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stitchcuda.counts import counted
from stitchcuda.state import Target
from stitchcuda.verify.integrity import call_effects, device_time, tampering
from stitchcuda.verify.integrity.byte_traffic import poison_as
from stitchcuda.verify.integrity.dispatch_recorder import close_recordings
from stitchcuda.verify.messages import build_orders, gpu_memory, host_memory, wire
from stitchcuda.verify.messages.device_memory import device_memory
from stitchcuda.verify.messages.large_parameters import construct
from stitchcuda.verify.messages.program_requests import (
    AddInstance,
    CallProgram,
    DisturbTensor,
    ExchangeInstances,
    IdleWork,
    Launches,
    LoadProgram,
    LoadSettings,
    ProfileCall,
    ProgramLoaded,
    ReloadState,
    RepeatCalls,
    RereadOutputs,
    SkipKernels,
    WatchIdle,
)
from stitchcuda.verify.messages.request import Answer, Done
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS, PrepareTiming, ReleaseTiming, TimingRequest
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.program import launch_failures, simulated_device
from stitchcuda.verify.program.buffer_restoring import BufferRestoring, held_tensor
from stitchcuda.verify.program.build_interceptor import Interceptor
from stitchcuda.verify.program.failures import ProgramError, describe_failure
from stitchcuda.verify.program.kernel_switches import switches
from stitchcuda.verify.program.program_calls import ProgramCalls
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
        self.program: torch.nn.Module      # these four after `load`; the program is called in `interceptor.running()`
        self.interceptor: Interceptor
        self.calls: ProgramCalls
        self._state: StateLoading
        self._model: type[torch.nn.Module]  # these three after `load`
        self._settings: LoadSettings
        self._strict: bool
        self._other: tuple[torch.nn.Module, StateLoading, ProgramCalls]  # another instance, after `add_instance`
        self._switches = switches(target)
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
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
            model = getattr(self._import(source), "ModelNew", None)
            if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
                raise ProgramError(f"{source.name} defines no class ModelNew that is an nn.Module")
        self._model, self._settings, self._strict = model, request, path.is_dir()
        program = self._instantiate(request.init, request.state)
        return ProgramLoaded(
            missing=self._state.missing,
            elsewhere=self._state.elsewhere,
            guessed=self._state.guessed,
            spare=self._state.spare_sizes(),
            alike=self._state.names_of_alike(),
            caught=self.interceptor.take_failures(),
            tampered=[],
            transient=list(self.calls.transient),
            arguments=call_effects.argument_names(program.forward),
            arguments_changed=self._arguments_changed,
            packed=self._state.packed,
        )

    def _instantiate(self, init: TensorBlock, state: TensorBlock) -> torch.nn.Module:
        """Constructs the program, loads the state and makes this instance the one that requests are for. Returns it."""
        settings = self._settings
        with self.interceptor.running():
            args, kwargs = wire.decode(settings.init_structure, unpack(init, self._device), self._device)
            before = call_effects.form((args, kwargs))
            program = construct(
                lambda: _construct(self._model, args, kwargs), settings.init_seed, self._device
            ).to(self._device)
            self._arguments_changed = call_effects.form((args, kwargs)) != before
            if self._target == "sim":
                simulated_device.move_to_device(program)
        program.train(settings.training)
        given = dict(zip(settings.state_names, self._read_state(state), strict=True))
        with self.interceptor.running():
            self._state = StateLoading(program, given, settings, strict=self._strict)
        buffers = dict(program.named_buffers())
        transient = {name: buffers[name].detach().clone() for name in settings.transient if name in buffers}
        self.program = program
        self.calls = ProgramCalls(program, self.interceptor, self._state, transient, self._target, self._clock)
        return program

    def add_instance(self, request: AddInstance) -> Done:
        first = self.program, self._state, self.calls
        self._instantiate(request.init, request.state)
        self._other = first
        return Done()

    def exchange(self, request: ExchangeInstances) -> Done:
        now = self.program, self._state, self.calls
        (self.program, self._state, self.calls), self._other = self._other, now
        return Done()

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

    def skip(self, request: SkipKernels) -> Launches:
        launches = self._switches.take_launches()
        self._switches.skip(request.kernels)
        self.calls.skipping = bool(request.kernels)
        poison_as("nan")
        return Launches(launches=launches)

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
            values, found = self._state.tensors_to_restore(request.restore)
            for name, value in self.calls.transient.items():
                if (tensor := held_tensor(program, name)) is not None:
                    values[name], found[name] = value, tensor
            buffers = BufferRestoring(program, values, found)
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
        (LoadProgram, worker.load), (CallProgram, lambda request: worker.calls.call(request)), (SkipKernels, worker.skip),
        (RereadOutputs, lambda request: worker.calls.reread(request)), (ReloadState, worker.reload),
        (AddInstance, worker.add_instance), (ExchangeInstances, worker.exchange), (DisturbTensor, worker.disturb),
        (RepeatCalls, lambda request: worker.calls.repeat(request)),
        (ProfileCall, lambda request: worker.calls.profile(request)), (WatchIdle, worker.idle),
        *((kind, worker.time) for kind in TIMING_REQUESTS),
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
