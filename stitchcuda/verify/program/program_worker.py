"""Runs generated code: builds and loads a program, calls it on inputs it is given, writes its outputs. Nothing else.

It holds inputs, parameters and the program; never a seed, an expected output or a bound. The judge believes nothing it says
beyond the tensors it wrote. Every failure is one sentence in the answer; crashes are read from the outside
(`verify/processes/worker.py`).
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

from stitchcuda.simulator import loaded_runtime
from stitchcuda.state import Target
from stitchcuda.verify.inputs import rotation
from stitchcuda.verify.integrity import device_time as origin
from stitchcuda.verify.integrity import tampering
from stitchcuda.verify.integrity.byte_traffic import HARMLESS, ByteTraffic, Poison, poison_as, poison_cached, red_zoned
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder, close_recordings
from stitchcuda.verify.messages import build_orders, host_memory, wire
from stitchcuda.verify.messages.shared_tensors import alias, extent, memory_of
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.program import simulated_device
from stitchcuda.verify.program.buffer_restoring import BufferRestoring
from stitchcuda.verify.program.build_interceptor import Interceptor
from stitchcuda.verify.program.failures import ProgramError, describe_failure
from stitchcuda.verify.program.kernel_switches import switches
from stitchcuda.verify.program.state_loading import StateLoading
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock
from stitchcuda.verify.timing.timed_calls import TimedCalls

_hidden: dict[str, Any] = {}               # the modules that this worker is made of
_Teller = Callable[[], list[str]]          # what the program did to the process it runs in


class ProgramWorker:
    """One loaded program. Where it is not `judged`, only looked at, a profiler in this process may record."""

    def __init__(
        self,
        scratch: Path,
        target: Target,
        build: build_orders.Build,
        tell: Callable[[_Teller, _Teller], None],
        *,
        judged: bool = True,
    ) -> None:
        self._scratch = scratch
        self._target = target
        self._build = build
        self._device = "cuda" if target == "cuda" else "cpu"
        self._program: torch.nn.Module | None = None
        self._interceptor: Interceptor | None = None
        self._adopted: StateLoading | None = None
        self._transient: dict[str, torch.Tensor] = {}  # buffers that no state_dict holds and a forward changes
        self._inputs: list[torch.Tensor] = []
        self._shown: list[torch.Tensor] = []  # the same memory, as the program is given it again and again
        self._switches = switches(target)
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
        self._held: list[torch.Tensor] = []
        self._skipping = False
        self._turn = self._calls = 0
        self._tell = tell                  # takes what says which functions it replaced and what it looked at
        self._folder = scratch
        self._judged = judged

    def prepare(self) -> None:
        """What takes time and needs no program: on a GPU a context, and a clock whose functions no program has touched yet."""
        if self._target == "cuda" and self._clock is None:
            self._clock = DeviceClock()

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Build, import and construct `ModelNew`, take over the reference's parameters and buffers."""
        path = Path(message["program"])
        if message["precision"] == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        self.prepare()
        source = path / "model_new.py" if path.is_dir() else path
        self._folder = path if path.is_dir() else path.parent
        skip = self._target == "cuda" and bool(message.get("masked"))  # the simulator's kernels can always be left out
        self._interceptor = Interceptor(self._target, self._folder, self._build, skip=skip)
        self._interceptor.install()
        if self._target == "sim":
            # No order of blocks and threads is promised on a device: who needs one is wrong. Shared memory that nothing wrote
            # reads as NaN, not as the last block's leftovers.
            seed = 2 * secrets.randbelow(2**15) + bool(message.get("backwards"))
            self._interceptor.start({"SCHEDULE": f"random:{seed}", "CHECK": "1"})
        sys.dont_write_bytecode = True
        if self._judged:
            close_recordings()
        sealed = tampering.seal()
        sealed.renew()
        self._tell(sealed.teller(), tampering.watch(self._folder, self._scratch))
        _hidden.update({name: module for name, module in sys.modules.items() if name.partition(".")[0] == "stitchcuda"})
        for name in _hidden:               # who imports them by name gets others, which nothing here is measured by
            del sys.modules[name]
        started = time.monotonic()
        with self._interceptor.running():
            module = self._import(source)
            model = getattr(module, "ModelNew", None)
            if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
                raise ProgramError(f"{source.name} defines no class ModelNew that is an nn.Module")
            tensors = wire.read_tensors(Path(message["init"]), device=self._device)
            args, kwargs = wire.decode(message["init_structure"], tensors, self._device)
            torch.manual_seed(message["init_seed"])
            program = _constructed(model, args, kwargs).to(self._device)
            if self._target == "sim":
                simulated_device.move_to_device(program)
        program.train(bool(message["training"]))
        self._program = program
        given = dict(zip(message["state_names"], wire.read_tensors(Path(message["state"]), device=self._device), strict=True))
        with self._interceptor.running():
            self._adopted = StateLoading(program, given, message, strict=path.is_dir())
        buffers = dict(program.named_buffers())
        self._transient = {name: buffers[name].detach().clone() for name in message["transient"] if name in buffers}
        return {
            "kernels": self._interceptor.loaded,
            "build_s": self._interceptor.build_s,
            "seconds": time.monotonic() - started,
            "missing": self._adopted.missing,
            "elsewhere": self._adopted.elsewhere,
            "guessed": self._adopted.guessed,
            "spare": self._adopted.spare_sizes(),
            "alike": self._adopted.names_of_alike(),
        }

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """One forward on the inputs in a file, at old addresses or at new ones; outputs, state and inputs are written back.

        With `hold` the outputs stay alive, as they would with a caller who still needs them: `reread` writes them again.
        """
        program, interceptor = self.loaded()
        self._restore()                    # may run code of the program: nothing of this call is there yet
        fresh = wire.read_tensors(Path(message["inputs"]), device=self._device)
        given = self._placed(fresh) if message["same_addresses"] else red_zoned(fresh)
        # Objects of its own: what it does to them (their class, say) is not done to those that are read and written here.
        shown = self._shown if message["same_addresses"] else [alias(tensor) for tensor in given]
        args, kwargs = wire.decode(message["structure"], shown, self._device)
        self._calls += 1
        if self._skipping:                 # of each kind in turn: a kernel is idle only if it is missed with none
            self._turn += 1
            poison_as(HARMLESS[self._turn % len(HARMLESS)])
        else:                              # at times here too: fresh memory does not tell that a kernel is left out
            plain = self._calls > 2 and secrets.randbelow(2)
            poison_as(secrets.choice(HARMLESS) if plain else "nan")
        inverted = not message["same_addresses"]
        traffic: Poison = ByteTraffic(inverted=inverted) if self._target == "sim" else Poison(inverted=inverted)
        if self._target == "cuda":
            poison_cached()
        launched, touched = loaded_runtime.launches(), loaded_runtime.host_bytes()
        witness = DispatchRecorder(watch=self._target == "sim")
        with torch.no_grad(), witness, interceptor.running(traffic):
            structure, outputs = timed_calls.read(program(*args, **kwargs))  # which may run code of its own types
        own = loaded_runtime.take_bytes() if self._target == "sim" else 0
        launched, touched = loaded_runtime.launches() - launched, loaded_runtime.host_bytes() - touched
        self._synchronize()
        if message["hold"]:
            self._held = [alias(tensor) for tensor in outputs]
        self._write(message, outputs, given)
        answer: dict[str, Any] = {"structure": structure, "tampered": witness.reasons}
        if isinstance(traffic, ByteTraffic):
            sums = {"own": own, "vendor": witness.total("vendor"), "framework": witness.total("framework")}
            answer |= {origin: moved / (sum(sums.values()) or 1) for origin, moved in sums.items()}
            answer |= {"elsewhere": sums["vendor"] + sums["framework"], "host_bytes": touched + witness.total("read")}
            boundary = witness.at_boundary(*({memory_of(one) for one in some} for some in (given, outputs)))
            at_work = 2 * witness.replayed >= answer["elsewhere"] - boundary  # not beside work that goes on without it
            answer |= {"replays": witness.total("replay") if at_work else 0, "boundary": boundary, "launches": launched}
            answer["operators"] = dict(sorted(witness.noted.get("framework", {}).items(), key=lambda item: -item[1])[:8])
        return answer

    def _write(self, message: dict[str, Any], outputs: list[torch.Tensor], given: list[torch.Tensor]) -> None:
        """What a call left behind."""
        for tensor in outputs:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise ProgramError(f"forward returned a {type(tensor).__name__}, not a plain tensor")
        wire.write_tensors(Path(message["outputs"]), outputs)
        wire.write_tensors(Path(message["inputs_after"]), given)
        wire.write_tensors(Path(message["state_after"]), list(self._adoption().current().values()))

    def reload(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load other parameters, as somebody would who trained on."""
        _, interceptor = self.loaded()
        given = wire.read_tensors(Path(message["state"]), device=self._device)
        with interceptor.running():
            self._adoption().load(dict(zip(message["names"], given, strict=True)))
        return {}

    def disturb(self, message: dict[str, Any]) -> dict[str, Any]:
        """Change one of the tensors that are the program's own, or went by shape alone, and the one before back."""
        _, interceptor = self.loaded()
        with interceptor.running():
            self._adoption().disturb(message["number"])
        return {}

    def reread(self, message: dict[str, Any]) -> dict[str, Any]:
        """Write the outputs that were held once more: calls since then must not have changed them."""
        wire.write_tensors(Path(message["outputs"]), self._held)
        return {}

    def repeat(self, message: dict[str, Any]) -> dict[str, Any]:
        """Further calls as a user makes them, unrecorded and in memory as it is, within a time: who counts calls gets past the
        count. Contents are other ones each time; with the given ones, at a random place in the row, outputs are written."""
        program, interceptor = self.loaded()
        tensors = wire.read_tensors(Path(message["inputs"]), device=self._device)
        rollable = [rotation.rollable(tensor) for tensor in tensors]
        done, until = 0, time.monotonic() + message["budget_s"]
        place, structure, last = secrets.randbelow(message["calls"]), None, False
        while not last:
            last = done + 1 == message["calls"] or time.monotonic() >= until
            told = done == place or (last and done < place)
            given = rotation.rolled(tensors, rollable, 0 if told else done + 1)
            args, kwargs = wire.decode(message["structure"], [alias(tensor) for tensor in given], self._device)
            self._restore()
            with torch.no_grad(), interceptor.running():
                found, outputs = timed_calls.read(program(*args, **kwargs))
            if told:
                self._synchronize()
                structure = found
                self._write(message, outputs, given)
            done += 1
        self._synchronize()
        return {"calls": done, "structure": structure}

    def skip(self, message: dict[str, Any]) -> dict[str, Any]:
        """Leave these kernels out of the calls that follow; says how often each was launched since the last time."""
        launches = self._switches.take_launches()
        self._switches.skip(message["kernels"])
        self._skipping = bool(message["kernels"])
        poison_as("nan")
        return {"launches": launches}

    def profile(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the device did in one call after a warm-up (GPU only), through CUPTI: `origin.summary` makes shares of it."""
        program, interceptor = self.loaded()
        tensors = wire.read_tensors(Path(message["inputs"]), device=self._device)
        args, kwargs = wire.decode(message["structure"], [alias(tensor) for tensor in tensors], self._device)
        rollable = [rotation.rollable(tensor) for tensor in tensors]
        others = rotation.rolled(tensors, rollable, 3)

        def renew() -> None:
            for old, new, may in zip(tensors, others, rollable, strict=True):
                if may:
                    old.data.copy_(new)    # without a word, as `_placed` does

        with torch.no_grad(), interceptor.running():
            return origin.record(lambda: timed_calls.read(program(*args, **kwargs)), restore=self._restore, renew=renew)

    def idle(self, message: dict[str, Any]) -> dict[str, Any]:
        """What goes on on the device while nobody calls (GPU only), on one core, as it is under the clock."""
        cores = os.sched_getaffinity(0)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {min(cores)})
        try:
            return {"worked": origin.idle(message["budget_s"])}
        finally:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cores)

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Timed calls (GPU only), as `timed_calls.answer` says."""
        program, interceptor = self.loaded()

        def make() -> TimedCalls:
            assert self._clock is not None
            kept = BufferRestoring(program, *self._adoption().tensors_to_restore(message["restore"]))
            return TimedCalls(message, program, self._clock, device=self._device, restore=kept.apply)

        with torch.no_grad(), interceptor.running():
            self._timed, answer = timed_calls.answer(self._timed, message, make)
        if self._timed is None:
            torch.cuda.empty_cache()
        return answer

    def loaded(self) -> tuple[torch.nn.Module, Interceptor]:
        """The program and what its calls run under (`Interceptor.running`)."""
        if self._program is None or self._interceptor is None:
            raise ProgramError("no program is loaded")
        return self._program, self._interceptor

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
        """Parameters and buffers as before the first call: a call must not profit from the one before."""
        program, interceptor = self.loaded()
        with torch.no_grad():
            if (adopted := self._adoption()).changed():
                with interceptor.running():
                    adopted.restore()
            for name, buffer in program.named_buffers() if self._transient else ():
                if name in self._transient and buffer.shape == self._transient[name].shape:
                    buffer.copy_(self._transient[name])

    def _adoption(self) -> StateLoading:
        if self._adopted is None:
            raise ProgramError("no program is loaded")
        return self._adopted

    def _placed(self, fresh: list[torch.Tensor]) -> list[torch.Tensor]:
        """New contents at old addresses: what a result cached by pointer would miss."""
        def alike(old: torch.Tensor, new: torch.Tensor) -> bool:
            return old.shape == new.shape and old.dtype == new.dtype and old.stride() == new.stride()

        if len(self._inputs) == len(fresh) and all(map(alike, self._inputs, fresh)):
            for old, new in zip(self._inputs, fresh, strict=True):
                if 0 in [stride for size, stride in zip(old.shape, old.stride(), strict=True) if size > 1]:
                    _span(old).data.copy_(_span(new))
                else:
                    old.data.copy_(new)    # through .data no version is counted up: memory changes without a word
        else:
            self._inputs = red_zoned(fresh)
            self._shown = [alias(tensor) for tensor in self._inputs]
        return self._inputs

    def _synchronize(self) -> None:
        if self._target == "cuda":
            torch.cuda.synchronize()


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answer the judge until it hangs up."""
    if target == "cuda":                   # elsewhere the memory of a program is what is bounded, and what is looked at
        host_memory.keep_freed()
    tellers: tuple[_Teller, ...] = ()

    def tell(replaced: _Teller, looked: _Teller) -> None:
        nonlocal tellers
        tellers = (*tellers, replaced, looked)

    worker = ProgramWorker(scratch, target, build_orders.through(channel), tell)
    with contextlib.suppress(Exception):   # what fails here fails when a program is loaded, and is told then
        worker.prepare()
    handlers = {
        "load": worker.load,
        "call": worker.call,
        "skip": worker.skip,
        "reread": worker.reread,
        "reload": worker.reload,
        "disturb": worker.disturb,
        "repeat": worker.repeat,
        "profile": worker.profile,
        "idle": worker.idle,
        "time": worker.time,
    }
    # Before there is a program that could put others in their place. What it did to this process is added here, where nothing
    # is looked up by name: a function that it replaced cannot leave out that it was. Nobody can empty a tuple, but who had this
    # frame could exchange what the functions below hold: that no program gets one is what `tampering.watch` sees to.
    receive, send = channel.receiver(), channel.sender()
    while True:
        message = receive()
        try:
            answer = handlers[message["do"]](message)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            answer = describe_failure(error, worker._folder)
        if message["do"] in ("load", "call", "repeat") or message.get("mode") == "release":  # not those under the clock
            told = [one for teller in tellers for one in teller()]
            answer = answer | {"tampered": [*answer.get("tampered", []), *told]}
        send(answer | {"id": message["id"]})


def _constructed(model: type[torch.nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """`ModelNew` with the reference's own arguments, or without any where it takes none."""
    try:
        inspect.signature(model).bind(*args, **kwargs)
    except TypeError:
        try:
            inspect.signature(model).bind()
        except TypeError:
            raise ProgramError(
                f"ModelNew{inspect.signature(model)} cannot be called with the reference's {len(args) + len(kwargs)} arguments"
            ) from None
        return model()
    return model(*args, **kwargs)


def _span(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_strided((extent(tensor),), (1,))
