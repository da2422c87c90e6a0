"""Runs the reference, which is trusted: capture, inputs, expected outputs in its own precision and in float64, eager times.

It writes tensors where the judge says and never sees a program. Where to look next: `verify/reference/reference.py` and
`verify/reference/float64_truth.py` (what a reference is and computes), `verify/inputs/secret_inputs.py` (who asks).
"""

from __future__ import annotations

import contextlib
import copy
import resource
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs import timed_contents, variants
from stitchcuda.verify.inputs.reseeding import constant, far, renewed
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity import speed_of_light as ceiling
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.messages import host_memory, out_of_memory, wire
from stitchcuda.verify.messages.wire import Channel, WireError
from stitchcuda.verify.reference.reference import WEIGHT_SEED, Reference, load_reference, run, run64, told
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock, eager
from stitchcuda.verify.timing.timed_calls import TimedCalls

_EAGER_CALLS = 20


class ReferenceWorker:
    """One loaded reference."""

    def __init__(self, scratch: Path, target: Target) -> None:
        self._scratch = scratch
        self._target = target
        self._device = "cuda" if target == "cuda" else "cpu"
        self._reference: Reference | None = None
        self._original: dict[str, torch.Tensor] = {}
        self._precision: Precision = "reference"
        self._holds = ""                   # file of the parameters it has now
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load it within the time it may take; answer with what a program's constructor needs."""
        self._precision = message["precision"]
        if self._precision == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        self._reference = reference = load_reference(Path(message["path"]), self._device, seconds=message["patience"])
        self._original = {name: tensor.detach().clone() for name, tensor in self._state().items()}
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(reference.init, tensors)
        except WireError as error:
            raise BadInput(f"get_init_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        wire.write_tensors(Path(message["init"]), tensors)
        return {
            "init_structure": structure,
            "init_seed": WEIGHT_SEED,
            "training": reference.module.training,
            "state_names": list(self._state()),
            "state": self._described(),
            "sha": reference.sha,
            "gpu": str(torch.cuda.get_device_properties(0).uuid) if self._target == "cuda" else "",
        }

    def examine(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether it can be judged by, as far as it alone can tell: a `BadInput` where not."""
        self._loaded().examine()
        return {}

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        """Capture, the values the graph lifted, versions, and on a GPU the eager time."""
        from stitchcuda.compiler.capture import capture

        reference = self._loaded()
        args, kwargs = reference.inputs(message["seed"])
        traced = capture.trace(reference.module, args, kwargs, observe=True)  # fake strides are not always the real ones
        constants = None
        if traced.constants:
            constants = message["constants"]
            save_file({key: value.detach().cpu().contiguous().clone() for key, value in traced.constants.items()}, constants)
        facts = {"capture": traced.graph.model_dump_json(), "constants": constants, "torch": torch.__version__}
        facts |= {"sha": reference.sha, "device": self._device, "driver": "", "eager_ms": None}
        if self._target == "cuda":
            facts |= {"device": torch.cuda.get_device_name(), "eager_ms": self._eager_ms(args, kwargs)}
        return facts

    def renew(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give parameters and running statistics new values, so that ones and zeros cannot be baked in; write them.

        What a program lacks is kept: it draws its own with the seed of the constructor. Of each group that is `alike`, all get
        the same value.
        Where the reference does not stay finite with them, it keeps its own, and the answer says so.
        """
        reference = self._loaded()
        self._set(self._original)
        self._holds = ""
        note = ""
        keep = set(message["keep"])
        if not keep >= self._original.keys():
            args, kwargs = reference.inputs(message["seed"])
            before = _finite(run(reference.module, args, kwargs))
            generator = torch.Generator().manual_seed(message["seed"])
            values = {name: renewed(name, value, self._names(), generator) for name, value in self._original.items()}
            for group in message["alike"]:     # the largest, for statistics that are ones must stay positive
                one = torch.stack([values[name].float().reshape(-1) for name in group]).amax(0)
                values |= {name: one.reshape(values[name].shape).to(values[name].dtype) for name in group}
            self._set(values | {name: self._original[name] for name in keep})
            if _finite(run(reference.module, args, kwargs)) < before:
                self._set(self._original)
                note = "parameters were not varied: the reference does not stay finite with others"
        wire.write_tensors(Path(message["state"]), list(self._state().values()))
        self._holds = message["state"]
        return {"note": note}

    def expect(self, message: dict[str, Any]) -> dict[str, Any]:
        """Inputs for one secret seed, and what the reference makes of them in its own precision and in float64."""
        reference = self._loaded()
        self._hold(message["state"])
        (args, kwargs), expected, exact, facts = self._varied(message)
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode((args, kwargs), tensors)
        except WireError as error:
            raise BadInput(f"get_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        wire.write_tensors(Path(message["inputs"]), tensors)
        wire.write_tensors(Path(message["expected"]), list(expected.values()))
        wire.write_tensors(Path(message["exact"]), list(exact.values()))
        return {"structure": structure, "names": list(expected), **facts}

    def _varied(self, message: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
        """(inputs, answers, exact answers, what to say) for the first of `variants` that the reference stands.

        The last one is taken as it is: `as given`, with which everything else is compared.
        """
        given = self._loaded().inputs(message["seed"])
        generator = torch.Generator().manual_seed(message["seed"] + 1)
        skipped: list[str] = []
        *others, last = message["variants"]
        for variant in others:
            arguments = variants.varied(given, variant, generator)
            if arguments is None:
                continue                   # nothing to vary this way
            try:
                expected, exact = self._answers(*arguments)
                problem = variants.objection(expected, exact, message["usual"])
                if list(expected) != message["names"]:
                    problem = "it returns or writes other tensors"
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                problem = f"it raises {type(error).__name__}"
                self._check_alive(problem)
            if not problem:
                return arguments, expected, exact, {"variant": variant, "skipped": skipped, "usual": 0.0}
            skipped.append(f"{variant} inputs were not tried: the reference does not stand them ({problem})")
        try:
            arguments = variants.resized(given, message["sizes"])
            expected, exact = self._answers(*arguments)
        except (RuntimeError, ValueError, IndexError) as error:
            problem = f"The reference's forward raises {told(self._loaded().path, error)}."
            self._check_alive(problem)
            raise BadInput(problem) from error
        facts = {"variant": last, "skipped": skipped, "usual": variants.error(expected, exact)}
        return arguments, expected, exact, facts

    def reweighed(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the reference makes, in float64, of the inputs in a file with parameters far from its own
        (`verify/inputs/degenerate.py`)."""
        self._hold(message["state"])
        tensors = wire.read_tensors(Path(message["inputs"]), device=self._device)
        args, kwargs = wire.decode(message["structure"], tensors, self._device)
        parameters = {name for name in self._names() if name in self._state()}
        held = {name: tensor.detach().clone() for name, tensor in self._state().items()}
        generator = torch.Generator().manual_seed(message["seed"])
        try:
            self._set({name: far(value, generator) if name in parameters else value for name, value in held.items()})
            exact = run64(self._loaded().module, args, kwargs)
        except (RuntimeError, ValueError):
            return {"names": [], "parameters": len(parameters)}
        finally:
            self._set(held)
        wire.write_tensors(Path(message["exact"]), list(exact.values()))
        return {"names": list(exact), "parameters": len(parameters)}

    def expect_rolled(self, message: dict[str, Any]) -> dict[str, Any]:
        """The same for the inputs in a file, moved on by a turn as a timed call had them; of large tensors a sample."""
        self._hold(message["state"])
        sources = wire.read_tensors(Path(message["given"]), device=self._device)
        tensors = timed_contents.twins(sources)
        timed_contents.refresh(tensors, sources, message["turn"], message["moving"], scaled=message["scaled"])
        wire.write_tensors(Path(message["inputs"]), timed_contents.sampled(tensors, message["sample"]))
        args, kwargs = wire.decode(message["structure"], tensors, self._device)
        try:
            expected, exact = self._answers(args, kwargs)
            finite = _finite(expected) + _finite(exact)
        except (RuntimeError, ValueError, IndexError) as error:
            self._check_alive(f"it raises {type(error).__name__}")
            raise BadInput(f"The reference raises on inputs that were moved on: {str(error)[:300]}") from error
        for answers, what in ((expected, "expected"), (exact, "exact")):
            wire.write_tensors(Path(message[what]), timed_contents.sampled(list(answers.values()), message["sample"]))
        return {"names": list(expected), "finite": finite}

    def _answers(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """What the reference makes of these inputs in its own precision and in float64, under the same names."""
        reference = self._loaded()
        with self._as_asked():
            expected = run(reference.module, args, kwargs)
        if self._precision in ("fp16", "bf16"):
            plain = run(reference.module, args, kwargs)
            expected = {name: value.to(plain[name].dtype) for name, value in expected.items()}
        exact = run64(reference.module, args, kwargs)
        if list(exact) != list(expected):
            raise BadInput(f"The reference {reference.path.name} returns other outputs in float64: {', '.join(exact)}.")
        for name, own in expected.items():
            if own.shape != exact[name].shape:
                raise BadInput(
                    f"The size of {name} of the reference {reference.path.name} follows from rounding: {tuple(own.shape)} "
                    f"in its own precision, {tuple(exact[name].shape)} in float64. Give inputs that are far from its threshold."
                )
        return expected, exact

    def alive(self) -> bool:
        """False when nothing can be computed here any more: an index out of range on a GPU takes its context along."""
        try:
            if self._device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def _check_alive(self, problem: str) -> None:
        if not self.alive():
            raise LostContext(problem)

    def _hold(self, state: str) -> None:
        """Take over the parameters in a file, if they are not the ones at hand."""
        if state != self._holds:
            self._set(dict(zip(self._state(), wire.read_tensors(Path(state), device=self._device), strict=True)))
            self._holds = state

    def work(self, message: dict[str, Any]) -> dict[str, Any]:
        """What one call costs: bytes moved by operators on the simulator, device nanoseconds on a GPU."""
        reference = self._loaded()
        args, kwargs = reference.inputs(message["seed"])
        if self._target == "cuda":
            with torch.no_grad(), self._as_asked():
                recorded = device_time.record(
                    lambda: reference.module(*args, **kwargs), restore=lambda: self._set(self._original)
                )
            self._set(self._original)
            self._holds = ""
            return {"work": sum(int(row[2]) for row in recorded["rows"]), "rows": recorded["rows"]}
        moved: list[int] = []
        module = copy.deepcopy(reference.module)
        with torch.no_grad(), ByteTraffic(note=lambda kind, size, _: moved.append(0 if kind == "read" else size)):
            module(*args, **kwargs)
        return {"work": sum(moved)}

    def needs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Bytes of memory that this process has taken at most so far, and what the GPU has left."""
        host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self._target != "cuda":
            return {"host": host, "device": 0, "free": 0}
        return {"host": host, "device": torch.cuda.max_memory_reserved(), "free": torch.cuda.mem_get_info()[0]}

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Timed calls (GPU only), as `timed_calls.answer` says."""

        def make() -> TimedCalls:
            self._hold(message["state"])
            module = self._loaded().module
            named = dict(module.named_parameters()) | dict(module.named_buffers())
            held = {name: value for name, value in named.items() if name in message["restore"]}
            before = {name: value.clone() for name, value in held.items()}

            def restore() -> None:
                for name, value in before.items():
                    held[name].copy_(value)

            return TimedCalls(message, module, self._the_clock(), device=self._device, restore=restore)

        try:
            with torch.no_grad(), self._as_asked():
                self._timed, answer = timed_calls.answer(self._timed, message, make)
        except torch.OutOfMemoryError as error:
            self._timed = None
            return {"error": str(error).splitlines()[0], "kind": "memory"}
        if self._timed is None:
            torch.cuda.empty_cache()
        return answer

    def ceiling(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the device's memory allows (GPU only) and, if asked, which inputs matter element by element."""
        clock = self._the_clock()
        facts: dict[str, Any] = {"bandwidth": clock.peak_bandwidth(), "l2": clock.l2_bytes()}
        if message["matters"]:
            self._hold(message["state"])
            tensors = wire.read_tensors(Path(message["given"]), device=self._device)
            args, kwargs = wire.decode(message["structure"], tensors, self._device)
            module = self._loaded().module
            with self._as_asked():
                facts["matters"] = ceiling.matters(lambda args, kwargs: run(module, args, kwargs), args, kwargs, tensors)
        return facts

    def _eager_ms(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        module = self._loaded().module
        with torch.no_grad(), self._as_asked():
            for _ in range(3):
                module(*args, **kwargs)
            took = eager(self._the_clock(), lambda: module(*args, **kwargs), _EAGER_CALLS)
        self._set(self._original)
        self._holds = ""
        return took

    def _the_clock(self) -> DeviceClock:
        if self._clock is None:
            self._clock = DeviceClock()
        return self._clock

    def _loaded(self) -> Reference:
        if self._reference is None:
            raise RuntimeError("no reference is loaded")
        return self._reference

    def _names(self) -> set[str]:
        return {name for name, _ in self._loaded().module.named_parameters(remove_duplicate=False)}

    def _described(self) -> list[dict[str, Any]]:
        """What is known of each name of the state as constructed (`lacking.Held`)."""
        first: dict[Any, str] = {}
        told = []
        for name, value in self._state().items():
            place = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else (name,)
            told.append({
                "name": name, "shape": list(value.shape), "parameter": name in self._names(), "constant": constant(value),
                "tied": first.setdefault(place, name), "floating": value.is_floating_point(),
            })  # fmt: skip
        return told

    def _state(self) -> dict[str, torch.Tensor]:
        state = self._loaded().module.state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _set(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self._state().items():
                tensor.copy_(values[name])

    @contextlib.contextmanager
    def _as_asked(self) -> Iterator[None]:
        """The precision that was asked for: the reference's own error sets the bound, so it runs as the user would run it."""
        if self._precision in ("fp16", "bf16"):
            dtype = torch.float16 if self._precision == "fp16" else torch.bfloat16
            with torch.autocast(self._device, dtype=dtype):
                yield
        else:
            yield


class LostContext(Exception):
    """Of a CUDA device: only another process has one again."""


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answer the judge until it hangs up."""
    host_memory.keep_freed()
    worker = ReferenceWorker(scratch, target)
    handlers = {
        "load": worker.load,
        "examine": worker.examine,
        "baseline": worker.baseline,
        "renew": worker.renew,
        "expect": worker.expect,
        "reweighed": worker.reweighed,
        "expect_rolled": worker.expect_rolled,
        "ceiling": worker.ceiling,
        "work": worker.work,
        "needs": worker.needs,
        "time": worker.time,
    }
    while True:
        message = channel.receive()
        try:
            answer = handlers[message["do"]](message)
        except BadInput as error:
            answer = {"error": str(error), "kind": "bad_input"}
        except LostContext as error:
            answer = {"error": str(error), "kind": "crash"}
        except (MemoryError, torch.OutOfMemoryError) as error:
            detail = (str(error).splitlines() or ["none is left"])[0][:200].rstrip(".")
            answer = {"error": f"The reference does not fit into memory: {detail}.", "kind": "bad_input"}
        except Exception as error:
            answer = {"error": traceback.format_exc(), "kind": "error" if worker.alive() else "crash"}
            if lack := out_of_memory.asked_for(error):  # while it was looked at: its own forward still had room
                answer = {"error": f"The reference takes too much memory to be judged: {lack}.", "kind": "bad_input"}
        channel.send(answer | {"id": message["id"]})


def _finite(outputs: dict[str, torch.Tensor]) -> int:
    return sum(int(torch.isfinite(value).sum()) for value in outputs.values())
