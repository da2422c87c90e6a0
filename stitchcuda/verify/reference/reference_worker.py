"""Runs the reference for the judge: captures it, draws parameters, times it, and hands other questions to who answers them.

This is the process of the trusted code. It answers requests of the judge (`verify/inputs/reference_requests.py`) and puts
tensors into blocks (`verify/messages/tensor_block.py`). It decides no verdict and runs no generated program.
Where to look next: `verify/reference/reference.py` (what a reference is), `verify/reference/expected_outputs.py` and
`verify/reference/comparisons.py` (most answers), `verify/reference/reference_state.py` (its parameters),
`verify/judge/judge_resources.py` (who starts this process).
"""

from __future__ import annotations

import contextlib
import resource
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision, Target
from stitchcuda.verify.inputs import draw_seeds, variants
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs.call_requests import ExpectRow, ExpectShared
from stitchcuda.verify.inputs.far_state import KINDS
from stitchcuda.verify.inputs.reference_requests import Construction
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity import speed_of_light as ceiling
from stitchcuda.verify.integrity.byte_traffic import ByteTraffic
from stitchcuda.verify.messages import gpu_memory, host_memory, out_of_memory, wire
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Answer, Failed, Request, read
from stitchcuda.verify.messages.timing_requests import TIMING_REQUESTS, PrepareTiming, TimingRequest
from stitchcuda.verify.messages.wire import Channel, WireError
from stitchcuda.verify.reference.blocks import Blocks
from stitchcuda.verify.reference.comparisons import AnswerLost, Comparisons
from stitchcuda.verify.reference.expected_outputs import ExpectedOutputs, LostContext, alive
from stitchcuda.verify.reference.float64_truth import allow_tf32, in_precision, private_state, run
from stitchcuda.verify.reference.reference import WEIGHT_SEED, Reference, load_reference
from stitchcuda.verify.reference.reference_state import ReferenceState
from stitchcuda.verify.reference.significands import Significands
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
        self._outputs: ExpectedOutputs     # likewise
        self._precision: Precision = "reference"
        self.small = False                 # whether programs may need nearly all of the GPU's memory
        self._clock: DeviceClock | None = None
        self._timed: TimedCalls | None = None
        self.blocks = Blocks(self._device)
        self.comparisons = compare = Comparisons(
            self._device, lambda block: self._state.use(block), lambda given: self._outputs.compute(given), self.blocks
        )
        self.handlers: dict[type[Request[Any]], Callable[[Any], Answer]] = {
            requests.LoadReference: self.load,
            requests.Examine: self.examine,
            requests.CaptureReference: self.capture,
            requests.Renew: self.renew,
            requests.Expect: lambda request: self._outputs.expect(request),
            requests.FindRareKinds: lambda request: self._outputs.find_rare_kinds(request),
            requests.WatchConditions: lambda request: self._outputs.watch_conditions(request),
            requests.FindUnmet: lambda request: self._outputs.find_unmet(request),
            requests.FindMovable: lambda request: self._outputs.find_movable(request),
            requests.FindRareSeeds: lambda request: self._outputs.find_rare_seeds(request),
            requests.Reweigh: lambda request: self._outputs.reweigh(request),
            requests.ExpectTurned: lambda request: self._outputs.expect_turned(request),
            ExpectRow: lambda request: self._outputs.expect_row(request),
            ExpectShared: lambda request: self._outputs.expect_shared(request),
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
        self._outputs = ExpectedOutputs(
            reference, self._state, self._precision, self._device, self.blocks, self.comparisons
        )
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
        return requests.Examined(reference.draws, reference.habits)

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
                self._outputs.check_alive(problem)
                if out_of_memory.is_out_of_memory(error):
                    raise
                return problem

        def call_wide() -> dict[str, variants.OutputSummary] | str:
            draw_seed = draw_seeds.seed_for_inputs(seed) if reference.draws else None
            found = self._outputs.compute_or_say((args, kwargs), request.usual, draw_seed)
            if request.far and not isinstance(found, str) and self._outputs.rounding_decides((args, kwargs), found, draw_seed):
                found = "it is decided by rounding"
            if isinstance(found, str):
                found = found.removeprefix("it ").replace("its output becomes", "has an output that becomes")
                return found.replace("all of its outputs", "has outputs that all")
            return variants.summarise(found[0])

        notes: tuple[str, ...] = ()
        if not set(request.keep) >= self._state.tensors().keys():
            with self._outputs.explained(args, kwargs):
                outputs = run(reference.module, args, kwargs)
            usual = variants.summarise(outputs)
            ranges = self._outputs.ranges
            uses = ranges.uses if ranges else None
            facts = self._state.buffer_facts(outputs, uses) if request.far else {}
            del outputs
            notes = tuple(self._state.renew(request, usual, call))
            if request.far:
                if KINDS[request.far].ties and (ranges is None or ranges.open_ties):
                    return requests.Renewed(self._state.packed(self.blocks), varied=False)
                varied = self._state.go_far(request, usual, call_wide, facts)
                notes = tuple(self._state.describe_fixed(set(request.keep) | varied, varied))
                return requests.Renewed(self._state.packed(self.blocks), bool(varied), notes)
            if request.wide_for is not None:
                ranges = self._outputs.ranges
                zeros, compared = ranges is not None and not ranges.ties, ranges.compared_state if ranges else {}
                notes = (*notes, *self._state.widen(request, usual, call_wide, zeros=zeros, compared=compared))
        return requests.Renewed(self._state.packed(self.blocks), self._state.varied, notes)

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

    def record_work(self, request: requests.RecordWork) -> requests.ReferenceWork:
        reference = self._loaded()
        args, kwargs = reference.inputs(request.seed)
        carried = Significands()
        with (
            self._outputs.explained(args, kwargs), private_state(reference.module), torch.no_grad(), self._in_precision(),
            carried,
        ):  # fmt: skip
            reference.module(*args, **kwargs)
        if self._target == "cuda":
            with torch.no_grad(), self._in_precision():
                rows = device_time.record(
                    lambda: reference.module(*args, **kwargs), restore=self._state.reset
                ).rows
            self._state.reset()
            return requests.ReferenceWork(sum(took for _, _, took, _ in rows), rows, carried.bits)
        moved: list[int] = []
        traffic = ByteTraffic(note=lambda kind, size, _: moved.append(0 if kind == "read" else size))
        with self._outputs.explained(args, kwargs), private_state(reference.module), torch.no_grad(), traffic:
            reference.module(*args, **kwargs)
        return requests.ReferenceWork(sum(moved), significands=carried.bits)

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
        tensors, args, kwargs = self._outputs.arguments(request.given)
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
            answer = vars(Failed(traceback.format_exc(), "error" if alive(target) else "crash"))
            if lack := out_of_memory.describe_request(error):  # while it was examined: its own forward had enough memory
                answer = vars(Failed(f"The reference takes too much memory to be judged: {lack}.", "bad_input"))
        timed = kinds[do] in TIMING_REQUESTS
        if worker.small and not timed:     # before the answer: what is free when a program's call begins limits it
            worker.give_memory_back()
        channel.send(answer | {"id": token})
        if not worker.small and not timed:
            worker.give_memory_back()
        del message, answer                # with the blocks that they hold
