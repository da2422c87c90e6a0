"""Runs the reference for the judge: captures it, draws inputs, computes expected outputs (also in float64), compares, times it.

This is the process of the trusted code. It answers requests of the judge (`verify/inputs/reference_requests.py`) and puts
tensors into blocks (`verify/messages/tensor_block.py`). Of the input variants asked for it takes the first that the reference
computes without an exception and with a usable result. It decides no verdict and runs no generated program.
Where to look next: `verify/reference/reference.py` and `verify/reference/float64_truth.py` (what a reference is and computes),
`verify/reference/reference_state.py` (its parameters), `verify/reference/comparisons.py` (the other requests),
`verify/judge/judge_resources.py` (who starts this process).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import resource
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs import draw_seeds, timed_contents, variants
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.input_ranges import InputRanges
from stitchcuda.verify.inputs.reference_requests import Construction, InputSet
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity import speed_of_light as ceiling
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.messages import gpu_memory, host_memory, out_of_memory, wire
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Answer, Failed, Request, read
from stitchcuda.verify.messages.tensor_block import unpack
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS, PrepareTiming, TimingRequest
from stitchcuda.verify.messages.wire import Channel, WireError
from stitchcuda.verify.reference.blocks import Blocks
from stitchcuda.verify.reference.comparisons import AnswerLost, Comparisons
from stitchcuda.verify.reference.float64_truth import allow_tf32, in_precision, private_state, run, run64, run_in_precision
from stitchcuda.verify.reference.random_draws import RandomDraws
from stitchcuda.verify.reference.range_search import search_ranges
from stitchcuda.verify.reference.reference import WEIGHT_SEED, Reference, load_reference
from stitchcuda.verify.reference.reference_state import ReferenceState
from stitchcuda.verify.timing import timed_calls
from stitchcuda.verify.timing.stopwatch import DeviceClock, median_ms
from stitchcuda.verify.timing.timed_calls import TimedCalls

_MOST_UNUSED = 2**31                       # bytes of the GPU's memory
_EAGER_CALLS = 20                          # that an eager time is the median of
_Answer = TypeVar("_Answer")


class ReferenceWorker:
    """One loaded reference. `handlers`: the method that answers each request."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._device = "cuda" if target == "cuda" else "cpu"
        self._reference: Reference | None = None
        self._state: ReferenceState        # from `load` on
        self._ranges: InputRanges | None = None  # of its inputs, once they were looked at
        self._precision: Precision = "reference"
        self.small = False                 # whether programs may need nearly all of the GPU's memory
        self._on_cpu = False               # whether float64 was computed there for once, for want of the GPU's memory
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
        self.blocks = Blocks(self._device)
        self.comparisons = compare = Comparisons(self._device, lambda block: self._state.use(block), self.blocks)
        self.handlers: dict[type[Request[Any]], Callable[[Any], Answer]] = {
            requests.LoadReference: self.load,
            requests.Examine: self.examine,
            requests.CaptureReference: self.capture,
            requests.Renew: self.renew,
            requests.Expect: self.expect,
            requests.Reweigh: self.reweigh,
            requests.ExpectTurned: self.expect_turned,
            requests.ReadCeiling: self.read_ceiling,
            requests.FindMattering: self.find_mattering,
            requests.RecordWork: self.record_work,
            requests.ReadMemoryNeeds: self.read_memory_needs,
            requests.Lend: self.blocks.lend,
            requests.Wipe: self.blocks.wipe,
            requests.SaveBlock: self.blocks.save,
            requests.Receive: compare.receive,
            requests.Forget: compare.forget,
            requests.FindChanged: compare.find_changed,
            requests.CompareAnswer: compare.compare,
            requests.FindWrong: compare.find_wrong,
            requests.FindDegenerate: compare.find_degenerate,
            requests.FindUnvaried: compare.find_unvaried,
            requests.FindMovable: compare.find_movable,
            requests.FindChangedState: compare.find_changed_state,
            requests.MixState: compare.mix_state,
            **dict.fromkeys(TIMING_REQUESTS, self.time),
        }

    def answer(self, request: Request[_Answer]) -> _Answer:
        """Returns the answer to a request. Raises `BadInput` for what is wrong with the user's reference."""
        answer: Any = self.handlers[type(request)](request)
        return answer  # type: ignore[no-any-return]

    def load(self, request: requests.LoadReference) -> Construction:
        self._precision = request.precision
        if self._target == "cuda":
            gpu_memory.set_limit(request.gpu_bytes)
            gpu_memory.allow_little()
            self.small = gpu_memory.is_small()
        allow_tf32(self._precision)
        self._reference = reference = load_reference(Path(request.path), self._device, seconds=request.patience)
        self._state = ReferenceState(reference.module, self._device)
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(reference.init, tensors)
        except WireError as error:
            raise BadInput(f"get_init_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        return Construction(
            init=self.blocks.pack(tensors),
            init_structure=structure,
            init_seed=WEIGHT_SEED,
            training=reference.module.training,
            precision=self._precision,
            gpu_bytes=request.gpu_bytes,
            state=self._state.describe(),
            gpu=str(torch.cuda.get_device_properties(0).uuid) if self._target == "cuda" else "",
            gpu_memory=gpu_memory.free_and_total()[1] if self._target == "cuda" else 0,
        )

    def examine(self, request: requests.Examine) -> requests.Examined:
        reference = self._loaded()
        reference.examine()
        if self.small:                     # so that it leaves a program as much as the reference itself needs
            args, kwargs = reference.inputs(seed=0)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            with torch.no_grad(), self._in_precision():
                outputs = reference.module(*args, **kwargs)
            returned = torch.cuda.memory_allocated() - before  # a program holds those of two calls, and copies them
            del outputs
            self.blocks.call_bytes = torch.cuda.max_memory_allocated() - before + 2 * returned
            self.blocks.state_bytes = self._state.size
            self._state.reset()
        return requests.Examined(reference.draws, reference.lent)

    def capture(self, request: requests.CaptureReference) -> ReferenceFacts:
        from stitchcuda.compiler.capture import capture

        reference = self._loaded()
        args, kwargs = reference.inputs(request.seed)
        traced = capture.trace(reference.module, args, kwargs, observe=True)  # fake strides are not always the real ones
        constants = None
        if traced.constants:
            constants = request.constants
            save_file({key: value.detach().cpu().contiguous().clone() for key, value in traced.constants.items()}, constants)
        on_gpu = self._target == "cuda"
        return ReferenceFacts(
            capture=traced.graph.model_dump_json(), constants=constants, torch=torch.__version__, sha=reference.sha,
            device=torch.cuda.get_device_name() if on_gpu else self._device,
            eager_ms=self._eager_ms(args, kwargs) if on_gpu else None,
        )  # fmt: skip

    def renew(self, request: requests.Renew) -> requests.Renewed:
        """Parameters and buffers get generic values, as far as the reference stands them; notes of the answer say where not."""
        reference = self._loaded()
        seed = request.seed if request.wide_for is None else request.wide_for
        args, kwargs = reference.inputs(seed)
        self._state.reset()

        def call() -> dict[str, variants.OutputSummary] | str:
            try:
                return variants.summarise(run(reference.module, args, kwargs))
            except Exception as error:
                problem = f"raises {type(error).__name__}"
                self._check_alive(problem)
                if out_of_memory.is_out_of_memory(error):
                    raise
                return problem

        def call_wide() -> dict[str, variants.OutputSummary] | str:
            draw_seed = draw_seeds.seed_for_inputs(seed) if reference.draws else None
            found = self._compute_or_say((args, kwargs), request.usual, draw_seed)
            if isinstance(found, str):
                return found.removeprefix("it ").replace("its output becomes", "has an output that becomes")
            return variants.summarise(found[0])

        notes: tuple[str, ...] = ()
        if not set(request.keep) >= self._state.tensors().keys():
            with self._explained(args, kwargs):
                usual = variants.summarise(run(reference.module, args, kwargs))
            notes = tuple(self._state.renew(request, usual, call))
            if request.wide_for is not None:
                zeros = self._ranges is not None and not self._ranges.ties
                notes = (*notes, *self._state.widen(request, usual, call_wide, zeros=zeros))
        return requests.Renewed(self._state.packed(self.blocks), self._state.varied, notes)

    def expect(self, request: requests.Expect) -> requests.Expected:
        self._state.use(request.state)
        skipped: list[str] = []
        variant, arguments, expected, exact = self._draw_variant(request, skipped)
        usual = variants.relative_error(expected, exact) if variant == variants.GIVEN else 0.0
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(arguments, tensors)
        except WireError as error:
            name = self._loaded().path.name
            raise BadInput(f"get_inputs() of {name} gives {error}, which cannot be passed on.") from error
        made = self.comparisons.keep(
            structure, tensors, expected, exact, variant=variant, seed=request.seed, draw_seed=self._draw_seed(request)
        )
        skipped += self._ranges.notes if self._ranges else ()
        if self._on_cpu:
            skipped.append("limited: float64 was computed on the CPU, because the GPU's memory does not suffice")
        return requests.Expected(made, usual, tuple(skipped))

    def _draw_variant(
        self, request: requests.Expect, skipped: list[str]
    ) -> tuple[str, Any, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns (variant, inputs, outputs, float64 outputs) for the first variant that the reference can compute. Appends to
        `skipped` why those before were not taken."""
        given, draw_seed = self._loaded().inputs(request.seed), self._draw_seed(request)
        *others, last = request.variants
        if others and request.beyond and self._ranges is None:
            self._ranges = self._find_ranges(request)
        ranges = self._ranges if request.beyond and self._ranges else InputRanges()
        alike = [variant for variant in others if variant.startswith(variants.LIKE_ANOTHER)]
        wider = [variant.removesuffix(variants.BEYOND) + variants.BEYOND for variant in others]
        for variant in dict.fromkeys([*alike, *wider, *others]):
            generator = torch.Generator(self._device).manual_seed(request.seed + 1)
            arguments = variants.vary(given, variant, generator, ranges)
            if arguments is None:
                continue                   # nothing to vary this way
            made = self._compute_or_say(arguments, request.usual, draw_seed, constant=variant == variants.BLANK)
            if not isinstance(made, str) and tuple(made[0]) != request.names:
                made = "it returns or writes other tensors"
            if not isinstance(made, str):
                return variant, arguments, *made
            if not variant.endswith(variants.BEYOND):
                skipped.append(f"{variants.describe(variant)} were not tried: the reference does not stand them ({made})")
        with self._explained(*given):
            arguments = variants.resize(given, request.sizes)
            return last, arguments, *self._compute(*arguments, draw_seed=draw_seed)

    def _draw_seed(self, request: requests.Expect) -> int | None:
        if not self._loaded().draws:
            return None
        return draw_seeds.seed_for_inputs(request.seed) if request.draw_seed is None else request.draw_seed

    def _find_ranges(self, request: requests.Expect) -> InputRanges:
        """Finds out which inputs may leave the range that get_inputs() shows."""
        seeds = itertools.count(request.seed + 2)
        reference = self._loaded()

        def rerun(arguments: Any) -> dict[str, torch.Tensor]:
            (args, kwargs), draw_seed = arguments, self._draw_seed(request)
            drawn = None if draw_seed is None else RandomDraws(draw_seed)
            return run_in_precision(reference.module, args, kwargs, self._precision, self._device, drawn)

        judge = functools.partial(self._compute_or_say, usual=request.usual, draw_seed=self._draw_seed(request))
        generator = torch.Generator(self._device).manual_seed(request.seed + 1)
        return search_ranges(judge, rerun, lambda: reference.inputs(next(seeds)), generator)

    def _compute_or_say(
        self, arguments: Any, usual: float, draw_seed: int | None, *, constant: bool = False
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | str:
        """Returns the outputs for other inputs, also in float64, or why programs cannot be judged by them. `constant`: whether
        they may be constant."""
        try:
            expected, exact = self._compute(*arguments, draw_seed=draw_seed)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            problem = f"it raises {type(error).__name__}"
            self._check_alive(problem)
            return problem
        return variants.why_unsuitable(expected, exact, usual, constant=constant) or (expected, exact)

    def reweigh(self, request: requests.Reweigh) -> requests.Reweighed:
        self._state.use(request.state)
        _, args, kwargs = self._arguments(request.given)
        parameters = self._state.change_far(request.seed)
        try:
            exact = self._compute(args, kwargs, draw_seed=request.given.draw_seed)[1]
        except Exception as error:
            self._check_alive(f"it raises {type(error).__name__}")
            if out_of_memory.is_out_of_memory(error):
                raise
            return requests.Reweighed(parameters=parameters)
        return requests.Reweighed(tuple(exact), parameters, self.blocks.pack(list(exact.values())))

    def _arguments(self, given: InputSet) -> tuple[list[torch.Tensor], tuple[Any, ...], dict[str, Any]]:
        """Returns (the tensors of a set's inputs, args, kwargs)."""
        tensors = unpack(given.inputs, self._device)
        return tensors, *wire.decode(given.structure, tensors, self._device)

    def expect_turned(self, request: requests.ExpectTurned) -> requests.ExpectedTurned:
        self._state.use(request.state)
        sources, structure = unpack(request.given.inputs, self._device), request.given.structure
        tensors = timed_contents.allocate_like(sources)
        timed_contents.refresh(tensors, sources, request.turn, request.moving, scaled=request.scaled)
        inputs = timed_contents.sample(tensors, request.sample)
        args, kwargs = wire.decode(structure, tensors, self._device)
        draw_seed = draw_seeds.seed_for_turn(request.given.draw_seed, request.turn)
        try:
            expected, exact = self._compute(args, kwargs, draw_seed=draw_seed)
            finite = _finite(expected) + _finite(exact)
        except (RuntimeError, ValueError, IndexError) as error:
            self._check_alive(f"it raises {type(error).__name__}")
            raise BadInput(f"The reference raises on inputs that were moved on: {str(error)[:300]}") from error
        expected, exact = (
            dict(zip(outputs, timed_contents.sample(list(outputs.values()), request.sample), strict=True))
            for outputs in (expected, exact)
        )
        return requests.ExpectedTurned(self.comparisons.keep(structure, inputs, expected, exact), finite)

    def _compute(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, draw_seed: int | None
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns the reference's outputs for these inputs in its own precision and in float64, under the same names. With a
        `draw_seed` both get the random numbers that are drawn after it in the reference's own precision."""
        reference = self._loaded()
        drawn = None if draw_seed is None else RandomDraws(draw_seed)
        expected = run_in_precision(reference.module, args, kwargs, self._precision, self._device, drawn)
        exact = self._compute64(args, kwargs, drawn)
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

    def _compute64(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], drawn: RandomDraws | None
    ) -> dict[str, torch.Tensor]:
        """Returns the reference's outputs in float64, which the CPU computes if the GPU's memory does not suffice."""
        module = self._loaded().module
        try:
            return run64(module, args, kwargs, drawn=drawn)
        except RuntimeError as error:
            if self._device == "cpu" or not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()           # outside of the handler, whose traceback holds the tensors
        self._on_cpu = True
        return run64(module, args, kwargs, on_cpu=True, drawn=drawn)

    def give_memory_back(self) -> None:
        """Gives the GPU's memory that torch keeps unused back to the driver, if it is much: programs need some. On a small GPU
        it keeps as much as comparing takes, since a program may take all the rest."""
        if self._device == "cuda" and gpu_memory.unused() > _MOST_UNUSED:
            torch.cuda.empty_cache()
        if self.small and gpu_memory.unused() < _MOST_UNUSED:
            try:
                torch.empty(_MOST_UNUSED, dtype=torch.uint8, device=self._device)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise

    def alive(self) -> bool:
        """Whether anything can still be computed here: after an index out of range on a GPU, the CUDA context is lost."""
        try:
            if self._device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

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

    def record_work(self, request: requests.RecordWork) -> requests.ReferenceWork:
        reference = self._loaded()
        args, kwargs = reference.inputs(request.seed)
        if self._target == "cuda":
            with torch.no_grad(), self._in_precision():
                rows = device_time.record(
                    lambda: reference.module(*args, **kwargs), restore=self._state.reset
                ).rows
            self._state.reset()
            return requests.ReferenceWork(sum(took for _, _, took, _ in rows), rows)
        moved: list[int] = []
        traffic = ByteTraffic(note=lambda kind, size, _: moved.append(0 if kind == "read" else size))
        with self._explained(args, kwargs), private_state(reference.module), torch.no_grad(), traffic:
            reference.module(*args, **kwargs)
        return requests.ReferenceWork(sum(moved))

    def read_memory_needs(self, request: requests.ReadMemoryNeeds) -> requests.MemoryNeeds:
        host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self._target != "cuda":
            return requests.MemoryNeeds(host)
        return requests.MemoryNeeds(host, torch.cuda.max_memory_reserved(), gpu_memory.free_and_total()[0])

    def time(self, request: TimingRequest) -> Answer:
        def prepare(request: PrepareTiming) -> TimedCalls:
            assert request.state is not None
            self._state.use(request.state)
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

    def read_ceiling(self, request: requests.ReadCeiling) -> requests.MemoryCeiling:
        clock = self._get_clock()
        return requests.MemoryCeiling(clock.peak_bandwidth(), clock.l2_bytes())

    def find_mattering(self, request: requests.FindMattering) -> requests.Mattering:
        self._state.use(request.state)
        tensors, args, kwargs = self._arguments(request.given)
        module = self._loaded().module

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
            draw_seeds.seed_generators(request.given.draw_seed)
            return run(module, args, kwargs)

        with self._in_precision():
            found = ceiling.find_mattering(call, args, kwargs, tensors)
        return requests.Mattering(tuple(found))

    def _eager_ms(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        module = self._loaded().module
        with torch.no_grad(), self._in_precision():
            for _ in range(3):
                module(*args, **kwargs)
            took = median_ms(self._get_clock(), lambda: module(*args, **kwargs), _EAGER_CALLS)
        self._state.reset()
        return took

    def _get_clock(self) -> DeviceClock:
        if self._clock is None:
            self._clock = DeviceClock()
        return self._clock

    def _loaded(self) -> Reference:
        if self._reference is None:
            raise RuntimeError("no reference is loaded")
        return self._reference

    def _in_precision(self) -> contextlib.AbstractContextManager[Any]:
        return in_precision(self._precision, self._device)


class LostContext(Exception):
    """The process has lost its CUDA context: only a new process can use the GPU again."""


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answers the judge's messages until it closes the channel.

    Kinds of errors: "bad_input" (the user's reference), "memory", "crash" (this process is of no use any more), "error".
    """
    host_memory.keep_freed()
    worker = ReferenceWorker(target)
    kinds = {kind.__name__: kind for kind in worker.handlers}
    while True:
        message = channel.receive()
        do, token = message.pop("do"), message.pop("id")
        gpu_memory.leave_to_others()
        try:
            answer = vars(worker.answer(read(kinds[do], message)))
        except BadInput as error:
            answer = vars(Failed(str(error), "bad_input"))
        except (LostContext, AnswerLost) as error:
            answer = vars(Failed(str(error), "crash"))
        except Exception as error:
            answer = vars(Failed(traceback.format_exc(), "error" if worker.alive() else "crash"))
            if lack := out_of_memory.describe_request(error):  # while it was examined: its own forward had enough memory
                answer = vars(Failed(f"The reference takes too much memory to be judged: {lack}.", "bad_input"))
        timed = kinds[do] in TIMING_REQUESTS
        if worker.small and not timed:     # before the answer: what is free when a program's call begins limits it
            worker.give_memory_back()
        channel.send(answer | {"id": token})
        if not worker.small and not timed:
            worker.give_memory_back()
        del message, answer                # with the blocks that they hold


def _finite(outputs: dict[str, torch.Tensor]) -> int:
    return sum(map(variants.count_finite, outputs.values()))
