"""Runs the reference for the judge: captures it, draws inputs, computes expected outputs (also in float64), compares, times it.

This is the process of the trusted code. It answers messages of the judge (`ReferenceWorker.handlers`, by name) and puts tensors
into blocks (`verify/messages/tensor_block.py`). Of the input variants asked for it takes the first that the reference computes
without an exception and with a usable result. It decides no verdict and runs no generated program.
Where to look next: `verify/reference/reference.py` and `verify/reference/float64_truth.py` (what a reference is and computes),
`verify/inputs/secret_inputs.py` (who asks for inputs), `verify/judge/judge_resources.py` (who starts this process).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import resource
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs import timed_contents, variants
from stitchcuda.verify.inputs.reseeding import amplify, is_constant, perturb, perturb_far
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity import speed_of_light as ceiling
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.messages import gpu_memory, host_memory, out_of_memory, wire
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Answer, Failed, read
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS, PrepareTiming, TimingRequest
from stitchcuda.verify.messages.wire import Channel, WireError
from stitchcuda.verify.reference.blocks import Blocks
from stitchcuda.verify.reference.comparisons import AnswerLost, Comparisons
from stitchcuda.verify.reference.reference import WEIGHT_SEED, Reference, load_reference, run, run64
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock, median_ms
from stitchcuda.verify.timing.timed_calls import TimedCalls

_MOST_UNUSED = 2**31                       # bytes of the GPU's memory
_MUCH = 6                                  # times a state; with less room on the GPU the original is kept on the host
_EAGER_CALLS = 20                          # that an eager time is the median of


class ReferenceWorker:
    """One loaded reference. `handlers` lists the methods that answer messages: fields in, answer's fields out."""

    def __init__(self, scratch: Path, target: Target) -> None:
        self._scratch = scratch
        self._target = target
        self._device = "cuda" if target == "cuda" else "cpu"
        self._reference: Reference | None = None
        self._original: dict[str, torch.Tensor] = {}
        self._precision: Precision = "reference"
        self._on_cpu = False               # whether float64 was computed there for once, for want of the GPU's memory
        self._state_key = ""               # of the block whose parameters the module has now; "" for its own
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
        self.blocks = Blocks(self._device)
        self.comparisons = Comparisons(self._device, self._use_state, self.blocks)

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Returns the function that answers each message, by the message's name."""
        own = (self.load, self.examine, self.baseline, self.renew, self.expect, self.reweighed, self.expect_rolled,
               self.ceiling, self.work, self.needs)  # fmt: skip
        blocks, compare = self.blocks, self.comparisons
        theirs = (blocks.lend, blocks.wipe, blocks.save, compare.receive, compare.forget, compare.find_changed,
                  compare.compare, compare.compare_expected, compare.find_degenerate, compare.find_unvaried,
                  compare.find_movable, compare.find_changed_state, compare.mix_state)  # fmt: skip
        timing = {kind.__name__: functools.partial(self._timing, kind) for kind in TIMING_REQUESTS}
        return {**{handler.__name__: handler for handler in (*own, *theirs)}, **timing}

    def _timing(self, kind: type[Any], message: dict[str, Any]) -> dict[str, Any]:
        return vars(self.time(read(kind, {name: value for name, value in message.items() if name not in ("do", "id")})))

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference from `path` within `patience` seconds. Answers with what a program's constructor needs, the
        constructor's tensors in the block `init`. Raises `BadInput` where it cannot be loaded."""
        self._precision = message["precision"]
        if self._target == "cuda":
            gpu_memory.set_limit(message["gpu_bytes"])
        if self._precision == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        self._reference = reference = load_reference(Path(message["path"]), self._device, seconds=message["patience"])
        state = self._state()
        size = sum(tensor.nbytes for tensor in state.values())
        place = "cpu" if self._target == "cuda" and _MUCH * size > gpu_memory.free_and_total()[0] else self._device
        self._original = {name: tensor.detach().to(place, copy=True) for name, tensor in state.items()}
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(reference.init, tensors)
        except WireError as error:
            raise BadInput(f"get_init_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        return {
            "init": self.blocks.pack(tensors),
            "init_structure": structure,
            "init_seed": WEIGHT_SEED,
            "training": reference.module.training,
            "state_names": list(self._state()),
            "state": self._describe_state(),
            "sha": reference.sha,
            "gpu": str(torch.cuda.get_device_properties(0).uuid) if self._target == "cuda" else "",
        }

    def examine(self, message: dict[str, Any]) -> dict[str, Any]:
        """Runs the reference. Raises `BadInput` where it fails or its outputs do not repeat (`Reference.examine`)."""
        self._loaded().examine()
        return {}

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        """Captures the reference on the inputs of `seed`. Answers with the graph as JSON, torch's version and the device, and
        on a GPU with the eager time in ms; writes the graph's constant tensors to `constants`."""
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
        """Gives parameters and running statistics new values from `seed`, so that a program cannot rely on ones and zeros;
        answers with all in the block `state`.

        Names in `keep` stay as constructed: the program has no parameter for them, and draws its own with the constructor's
        seed. The names of each group in `alike` get the same values. `amplified`: weights are scaled up as well. Where the
        reference's outputs have fewer finite numbers with the new values, it keeps its own, and the answer's note says so.
        """
        reference = self._loaded()
        self._set(self._original)
        self._state_key = ""
        note = ""
        keep = set(message["keep"])
        if not keep >= self._original.keys():
            args, kwargs = reference.inputs(message["seed"])
            with self._explained(args, kwargs):
                before = _finite(run(reference.module, args, kwargs))
            self._draw_state(message["seed"], keep, message["alike"], amplified=message["amplified"])
            try:
                problem = "does not stay finite" if _finite(run(reference.module, args, kwargs)) < before else ""
            except Exception as error:
                problem = f"raises {type(error).__name__}"
                self._check_alive(problem)
                if out_of_memory.is_out_of_memory(error):
                    raise
            if problem:
                self._set(self._original)
                note = f"parameters were not varied: the reference {problem} with others"
        state = self.blocks.pack(list(self._state().values()))
        self._state_key = state.key
        return {"note": note, "state": state}

    @torch.no_grad()
    def _draw_state(self, seed: int, keep: set[str], alike: list[list[str]], *, amplified: bool) -> None:
        """Gives the module's state new values, tensor by tensor, since all of it may be half of the GPU's memory."""
        generator = torch.Generator(self._device).manual_seed(seed)
        state, parameters = self._state(), self._parameter_names()
        grouped = {name: torch.empty(0) for group in alike for name in group}
        for name, value in self._original.items():
            drawn = perturb(name, value.to(self._device), parameters, generator)
            drawn = amplify(drawn) if amplified and name in parameters else drawn
            if name in grouped:
                grouped[name] = drawn
            elif name not in keep:
                state[name].copy_(drawn)
        for group in alike:                # the largest of each number, since a running variance must stay positive
            shared = torch.stack([grouped[name].float().reshape(-1) for name in group]).amax(0)
            for name in set(group) - keep:
                state[name].copy_(shared.reshape(state[name].shape))

    def expect(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draws inputs for one secret seed and computes the reference's outputs in its own precision and in float64, with the
        parameters in `state`. Answers with the inputs' structure, the variant, and the blocks and facts of
        `Comparisons.keep`."""
        reference = self._loaded()
        self._use_state(message["state"])
        (args, kwargs), expected, exact, facts = self._draw_variant(message)
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode((args, kwargs), tensors)
        except WireError as error:
            raise BadInput(f"get_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        return {"structure": structure, **self.comparisons.keep(tensors, expected, exact), **facts}

    def _draw_variant(
        self, message: dict[str, Any]
    ) -> tuple[Any, dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
        """Returns (inputs, outputs, float64 outputs, facts for the answer) for the first of `variants` that the reference can
        compute. The last variant is `as given`: the inputs as get_inputs() returns them, never refused."""
        given = self._loaded().inputs(message["seed"])
        generator = torch.Generator(self._device).manual_seed(message["seed"] + 1)
        skipped: list[str] = []
        *others, last = message["variants"]
        for variant in others:
            arguments = variants.vary(given, variant, generator)
            if arguments is None:
                continue                   # nothing to vary this way
            try:
                expected, exact = self._compute(*arguments)
                problem = variants.why_unsuitable(expected, exact, message["usual"])
                if list(expected) != message["names"]:
                    problem = "it returns or writes other tensors"
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                problem = f"it raises {type(error).__name__}"
                self._check_alive(problem)
            if not problem:
                return arguments, expected, exact, {"variant": variant, "skipped": skipped + self._remarks(), "usual": 0.0}
            skipped.append(f"{variant} inputs were not tried: the reference does not stand them ({problem})")
        with self._explained(*given):
            arguments = variants.resize(given, message["sizes"])
            expected, exact = self._compute(*arguments)
        facts = {"variant": last, "skipped": skipped + self._remarks(), "usual": variants.relative_error(expected, exact)}
        return arguments, expected, exact, facts

    def reweighed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Computes the reference in float64 on the inputs in a block, with parameters far from those in `state`; answers with
        the outputs in the block `exact`. Why: `verify/inputs/degenerate.py`. There are no names where the reference fails."""
        self._use_state(message["state"])
        tensors = unpack(message["inputs"], self._device)
        args, kwargs = wire.decode(message["structure"], tensors, self._device)
        parameters = {name for name in self._parameter_names() if name in self._state()}
        generator = torch.Generator(self._device).manual_seed(message["seed"])
        self._state_key = ""               # what it has now is read again where it is needed
        try:
            with torch.no_grad():
                for name, tensor in self._state().items():
                    if name in parameters:
                        tensor.copy_(perturb_far(tensor, generator))
            exact = self._compute64(args, kwargs)
        except Exception as error:
            self._check_alive(f"it raises {type(error).__name__}")
            if out_of_memory.is_out_of_memory(error):
                raise
            return {"names": [], "parameters": len(parameters), "exact": None}
        return {"names": list(exact), "parameters": len(parameters), "exact": self.blocks.pack(list(exact.values()))}

    def expect_rolled(self, message: dict[str, Any]) -> dict[str, Any]:
        """Computes the outputs for one timed call, whose contents are those of the block `given`, moved on by `turn`
        (`verify/inputs/timed_contents.py`). Answers as "expect" does; of large tensors there is only a sample."""
        self._use_state(message["state"])
        sources = unpack(message["given"], self._device)
        tensors = timed_contents.allocate_like(sources)
        timed_contents.refresh(tensors, sources, message["turn"], message["moving"], scaled=message["scaled"])
        inputs = timed_contents.sample(tensors, message["sample"])
        args, kwargs = wire.decode(message["structure"], tensors, self._device)
        try:
            expected, exact = self._compute(args, kwargs)
            finite = _finite(expected) + _finite(exact)
        except (RuntimeError, ValueError, IndexError) as error:
            self._check_alive(f"it raises {type(error).__name__}")
            raise BadInput(f"The reference raises on inputs that were moved on: {str(error)[:300]}") from error
        expected, exact = (
            dict(zip(outputs, timed_contents.sample(list(outputs.values()), message["sample"]), strict=True))
            for outputs in (expected, exact)
        )
        return {"finite": finite, **self.comparisons.keep(inputs, expected, exact)}

    def _compute(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns the reference's outputs for these inputs in its own precision and in float64, under the same names."""
        reference = self._loaded()
        with self._in_precision():
            expected = run(reference.module, args, kwargs)
        if self._precision in ("fp16", "bf16"):
            plain = run(reference.module, args, kwargs)
            expected = {name: value.to(plain[name].dtype) for name, value in expected.items()}
        exact = self._compute64(args, kwargs)
        if any(value.device.type == "cpu" for value in exact.values()):
            expected = {name: value.cpu() for name, value in expected.items()}
        if list(exact) != list(expected):
            raise BadInput(f"The reference {reference.path.name} returns other outputs in float64: {', '.join(exact)}.")
        for name, own in expected.items():
            if own.shape != exact[name].shape:
                raise BadInput(
                    f"The size of {name} of the reference {reference.path.name} follows from rounding: {tuple(own.shape)} "
                    f"in its own precision, {tuple(exact[name].shape)} in float64. Give inputs that are far from its threshold."
                )
        return expected, exact

    def _compute64(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Returns the reference's outputs in float64, which the CPU computes if the GPU's memory does not suffice."""
        module = self._loaded().module
        try:
            return run64(module, args, kwargs)
        except RuntimeError as error:
            if self._device == "cpu" or not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()           # outside of the handler, whose traceback holds the tensors
        self._on_cpu = True
        return run64(module, args, kwargs, on_cpu=True)

    def give_memory_back(self) -> None:
        """Gives the GPU's memory that torch keeps unused back to the driver, if it is much: programs need some."""
        if self._device == "cuda" and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _MOST_UNUSED:
            torch.cuda.empty_cache()

    def alive(self) -> bool:
        """Whether anything can still be computed here: after an index out of range on a GPU, the CUDA context is lost."""
        try:
            if self._device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def _remarks(self) -> list[str]:
        return ["limited: float64 was computed on the CPU, because the GPU's memory does not suffice"] if self._on_cpu else []

    def _check_alive(self, problem: str) -> None:
        if not self.alive():
            raise LostContext(problem)

    @contextlib.contextmanager
    def _explained(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        """As `Reference.explained`, but raises `LostContext` if this process is of no use any more."""
        try:
            with self._loaded().explained(args, kwargs):
                yield
        except BadInput as problem:
            self._check_alive(str(problem))
            raise

    def _use_state(self, state: TensorBlock) -> dict[str, torch.Tensor]:
        """Gives the module the parameters and buffers in a block, unless it has them already. Returns them by name."""
        if state.key != self._state_key:
            self._set(dict(zip(self._state(), unpack(state, self._device), strict=True)))
            self._state_key = state.key
        return self._state()

    def work(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the cost of one call: bytes moved by its operators on the simulator, device nanoseconds on a GPU."""
        reference = self._loaded()
        args, kwargs = reference.inputs(message["seed"])
        if self._target == "cuda":
            with torch.no_grad(), self._in_precision():
                recorded = device_time.record(
                    lambda: reference.module(*args, **kwargs), restore=lambda: self._set(self._original)
                )
            self._set(self._original)
            self._state_key = ""
            return {"work": sum(took for _, _, took, _ in recorded.rows), "rows": recorded.rows}
        moved: list[int] = []
        module = copy.deepcopy(reference.module)
        traffic = ByteTraffic(note=lambda kind, size, _: moved.append(0 if kind == "read" else size))
        with self._explained(args, kwargs), torch.no_grad(), traffic:
            module(*args, **kwargs)
        return {"work": sum(moved)}

    def needs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with this process' peak memory so far, on the host and on the GPU, and the GPU's free memory (bytes)."""
        host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self._target != "cuda":
            return {"host": host, "device": 0, "free": 0}
        return {"host": host, "device": torch.cuda.max_memory_reserved(), "free": gpu_memory.free_and_total()[0]}

    def time(self, request: TimingRequest) -> Answer:
        def prepare(request: PrepareTiming) -> TimedCalls:
            assert request.state is not None
            self._use_state(request.state)
            module = self._loaded().module
            named = dict(module.named_parameters()) | dict(module.named_buffers())
            held = {name: value for name, value in named.items() if name in request.restore}
            before = {name: value.clone() for name, value in held.items()}

            def restore() -> None:
                for name, value in before.items():
                    held[name].copy_(value)

            return TimedCalls(request, module, self._get_clock(), device=self._device, restore=restore)

        try:
            with torch.no_grad(), self._in_precision():
                self._timed, answer = timed_calls.answer_request(self._timed, request, prepare)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._timed = None
            return Failed(out_of_memory.describe_request(error), "memory")
        if self._timed is None:
            torch.cuda.empty_cache()
        return answer

    def ceiling(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the peak memory bandwidth and the L2 size of the GPU and, if `matters`, with which inputs matter element
        by element (`verify/integrity/speed_of_light.py`)."""
        clock = self._get_clock()
        facts: dict[str, Any] = {"bandwidth": clock.peak_bandwidth(), "l2": clock.l2_bytes()}
        if message["matters"]:
            self._use_state(message["state"])
            tensors = unpack(message["given"], self._device)
            args, kwargs = wire.decode(message["structure"], tensors, self._device)
            module = self._loaded().module
            with self._in_precision():
                facts["matters"] = ceiling.find_mattering(lambda args, kwargs: run(module, args, kwargs), args, kwargs, tensors)
        return facts

    def _eager_ms(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        module = self._loaded().module
        with torch.no_grad(), self._in_precision():
            for _ in range(3):
                module(*args, **kwargs)
            took = median_ms(self._get_clock(), lambda: module(*args, **kwargs), _EAGER_CALLS)
        self._set(self._original)
        self._state_key = ""
        return took

    def _get_clock(self) -> DeviceClock:
        if self._clock is None:
            self._clock = DeviceClock()
        return self._clock

    def _loaded(self) -> Reference:
        if self._reference is None:
            raise RuntimeError("no reference is loaded")
        return self._reference

    def _parameter_names(self) -> set[str]:
        return {name for name, _ in self._loaded().module.named_parameters(remove_duplicate=False)}

    def _describe_state(self) -> list[dict[str, Any]]:
        """The fields of a `ReferenceTensor` (`verify/inputs/input_terms.py`) for each name of the state as constructed.

        `tied`: the first name of the same memory, seen through the same shape and strides.
        """
        first: dict[Any, str] = {}
        parameters = self._parameter_names()
        facts = []
        for name, value in self._state().items():
            memory = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else (name,)
            facts.append({
                "name": name, "shape": list(value.shape), "parameter": name in parameters, "constant": is_constant(value),
                "tied": first.setdefault(memory, name), "floating": value.is_floating_point(),
            })  # fmt: skip
        return facts

    def _state(self) -> dict[str, torch.Tensor]:
        state = self._loaded().module.state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _set(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self._state().items():
                tensor.copy_(values[name])

    @contextlib.contextmanager
    def _in_precision(self) -> Iterator[None]:
        """A context with autocast to the session's precision: the reference's own error sets the bound, so it runs as the user
        would run it."""
        if self._precision in ("fp16", "bf16"):
            dtype = torch.float16 if self._precision == "fp16" else torch.bfloat16
            with torch.autocast(self._device, dtype=dtype):
                yield
        else:
            yield


class LostContext(Exception):
    """The process has lost its CUDA context: only a new process can use the GPU again."""


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answers the judge's messages until it closes the channel.

    Kinds of errors: "bad_input" (the user's reference), "memory", "crash" (this process is of no use any more), "error".
    """
    host_memory.keep_freed()
    worker = ReferenceWorker(scratch, target)
    handlers, timing = worker.handlers(), {kind.__name__ for kind in TIMING_REQUESTS}
    while True:
        message = channel.receive()
        gpu_memory.leave_to_others()
        try:
            answer = handlers[message["do"]](message)
        except BadInput as error:
            answer = {"error": str(error), "kind": "bad_input"}
        except (LostContext, AnswerLost) as error:
            answer = {"error": str(error), "kind": "crash"}
        except Exception as error:
            answer = {"error": traceback.format_exc(), "kind": "error" if worker.alive() else "crash"}
            if lack := out_of_memory.describe_request(error):  # while it was examined: its own forward had enough memory
                answer = {"error": f"The reference takes too much memory to be judged: {lack}.", "kind": "bad_input"}
        channel.send(answer | {"id": message["id"]})
        if message["do"] not in timing:
            worker.give_memory_back()
        del message, answer                # with the blocks that they hold


def _finite(outputs: dict[str, torch.Tensor]) -> int:
    return sum(int(torch.isfinite(value).sum()) for value in outputs.values())
