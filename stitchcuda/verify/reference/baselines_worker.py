"""Times the reference in each mode in this process: eager, as a CUDA graph, and compiled in three ways.

Command line:

    python -m stitchcuda.verify.reference.baselines_worker ORDER      (ORDER: a `BaselineOrder` as JSON)

Each mode's outputs are compared with the reference within the judge's error bound. Then blocks of its calls are timed in turns
with blocks of eager calls, each call on an idle device with a cold L2. Unlike in the judge's timing, inputs keep their values
and addresses. It prints one line of JSON for each mode and ends after the first failure, because a failure may leave a CUDA
context unusable. It caches nothing.
Where to look next: `verify/reference/baselines.py` (who asks), `verify/reference/trusted_reference.py` (the comparison),
`verify/timing/stopwatch.py` (the clock), `verify/timing/timed_calls.py` (how programs are timed).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.limits import die_with_parent
from stitchcuda.tools.device import gpu_lock
from stitchcuda.tools.device.interval import Median, median_of
from stitchcuda.verify.reference.baseline_times import BaselineLine, BaselineOrder, BaselineTime, Mode
from stitchcuda.verify.reference.float64_truth import copy_arguments
from stitchcuda.verify.reference.trusted_reference import TrustedReference
from stitchcuda.verify.timing.stopwatch import DeviceClock

ROUNDS, FEWEST_ROUNDS, CALLS, FEWEST_CALLS = 25, 6, 8, 2  # rounds of blocks; calls in a block
_BLOCK_MS, _BUDGET_MS = 16.0, 20e3         # time that one block, and all rounds together, should take
_WARM_CALLS = 5

Call = Callable[..., Any]
Turn = Callable[[], contextlib.AbstractContextManager[None]]
"""A context in which no other process of ours times on the device."""


class HostClock:
    """Times calls on a CPU, which have ended when they return. Has the methods of a `DeviceClock` that are used here."""

    def settle(self) -> None:
        self._began = self._ended = 0

    def start(self) -> None:
        self._began = time.perf_counter_ns()

    def returned(self) -> None:
        self._ended = time.perf_counter_ns()

    def stop(self) -> tuple[float, float]:
        return 1e-6 * (self._ended - self._began), 0.0


class Graphed:
    """The reference captured as a CUDA graph. A call copies the inputs in, replays, and copies outputs out, as a user would.

    `written`: positions of the input tensors that the reference writes to; they are copied back to the caller's.
    """

    def __init__(self, module: torch.nn.Module, given: tuple[Any, Any], written: list[int]) -> None:
        args, kwargs = copy_arguments(given)
        self._inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self._written = written
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = module(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for place, value in zip(self._inputs, given, strict=True):
            place.copy_(value)
        self._graph.replay()
        for number in self._written:
            given[number].copy_(self._inputs[number])
        return pytree.tree_map_only(Tensor, torch.clone, self._result)


def prepare_call(mode: Mode, subject: TrustedReference) -> tuple[Call, float]:
    """Returns (a callable in this mode, seconds that compiling or capturing and the first call took). Buffers are as before."""
    if mode == "eager":
        return subject.module, 0.0
    if mode != "graph":
        importlib.import_module("torch._inductor.compile_fx")
        config: Any = importlib.import_module("torch._inductor.config")
        config.fallback_random = True      # draw as eager does, so that outputs can be compared
    began = time.perf_counter()
    call: Call
    with subject.in_precision():
        if mode == "graph":
            if subject.device != "cuda":
                raise RuntimeError("CUDA graphs need a GPU")
            call = Graphed(subject.module, subject.inputs[0], subject.written)
        else:
            call = torch.compile(subject.module, mode="max-autotune" if mode == "max-autotune" else "default")
            args, kwargs = copy_arguments(subject.inputs[0])
            call(*args, **kwargs)
        _wait(subject.device)
    took = time.perf_counter() - began
    subject.restore()
    return call, took


def time_in_turns(
    clock: DeviceClock | HostClock, calls: list[Call], ready: Callable[[], tuple[Any, Any]], budget_ms: float = _BUDGET_MS
) -> list[Median]:
    """Returns for each of `calls` the median milliseconds of a call with its interval.

    In each round a block of each is timed, in alternating order; a sample is the median of a block. `ready` returns the
    arguments (args, kwargs) and is called before each call, outside of the time. Rounds are fewer where they would take longer
    than `budget_ms` in all.
    """

    def block(call: Call, count: int) -> float:
        times = []
        for _ in range(count):
            args, kwargs = ready()
            clock.settle()
            clock.start()
            result = call(*args, **kwargs)
            clock.returned()
            times.append(clock.stop()[0])
            del result
        return median_of(times).value

    warm = [block(call, _WARM_CALLS) for call in calls]
    count = max(FEWEST_CALLS, min(CALLS, int(_BLOCK_MS / max(*warm, 1e-3))))
    rounds = max(FEWEST_ROUNDS, min(ROUNDS, int(budget_ms / (count * max(sum(warm), 1e-3)))))
    found: list[list[float]] = [[] for _ in calls]
    gc.disable()
    try:
        for number in range(rounds):
            order = list(range(len(calls)))
            for which in order if number % 2 else reversed(order):
                found[which].append(block(calls[which], count))
    finally:
        gc.enable()
    return [median_of(times) for times in found]


def time_mode(mode: Mode, subject: TrustedReference, clock: DeviceClock | HostClock, alone: Turn) -> BaselineTime:
    """Compares and times one mode. An exception of the mode becomes the record's `failed`; `BadInput` is raised on. Channels
    last is not timed for a reference without 4-d convolutions.

    `alone`: entered while it is timed, not while it compiles.
    """
    if mode not in ("eager", "graph"):
        importlib.import_module("torch._dynamo.utils").counters.clear()
    try:
        if mode == "channels-last" and not subject.convolves_images():
            return BaselineTime(mode=mode, note="the reference has no 4-d convolution")
        judged = subject.in_channels_last() if mode == "channels-last" else subject
        call, compile_s = prepare_call(mode, judged)
        wrong = judged.disagreement(call)

        def ready() -> tuple[Any, Any]:
            subject.restore()
            judged.restore()
            return copy_arguments(subject.inputs[0]) if subject.written else subject.inputs[0]

        with alone(), subject.in_precision():
            own, *others = time_in_turns(clock, [call] if mode == "eager" else [call, subject.module], ready)
    except BadInput:
        raise
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        return BaselineTime(mode=mode, failed=f"{type(error).__name__}: {first[:300]}".rstrip(": "), passing=memory)
    eager = others[0] if others else own
    return BaselineTime(
        mode=mode, ms=own.value, low_ms=own.low, high_ms=own.high, samples=own.samples, eager_ms=eager.value,
        compile_s=compile_s, agrees=not wrong, precision=subject.precision(),
        note="; ".join(filter(None, [wrong, _notes(mode)])),
    )  # fmt: skip


def _notes(mode: Mode) -> str:
    """Returns how the mode differs from a plain call, such as graph breaks; counted since the compiler was last reset."""
    if mode in ("eager", "graph"):
        return "inputs copied in, outputs copied out" if mode == "graph" else ""
    counters = importlib.import_module("torch._dynamo.utils").counters
    breaks, skips = sum(counters["graph_break"].values()), counters["inductor"]["cudagraph_skips"]
    notes = [f"{breaks} graph breaks" if breaks else "", "without CUDA graphs" if skips else ""]
    return ", ".join(filter(None, notes))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Carries out the `BaselineOrder` in the command line."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                          # what the reference and compilers print must not mix with the answers

    def say(line: BaselineLine) -> None:
        answers.write(line.model_dump_json() + "\n")
        answers.flush()

    order = BaselineOrder.model_validate_json(sys.argv[1])
    device = order.device
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no GPU: it is a CPU build, or the driver is too old for it")
    gpu = str(torch.cuda.get_device_properties(0).uuid) if device == "cuda" else ""

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        """Waits until no other process times on the GPU; the answers say when, so that the wait does not count."""
        say(BaselineLine(waiting=True))
        with gpu_lock.exclusive(gpu) if gpu else contextlib.nullcontext():
            say(BaselineLine(waiting=False))
            yield

    try:
        subject = TrustedReference(order.reference, device, order.precision)
    except BadInput as error:
        say(BaselineLine(bad_input=str(error)))
        return
    clock = DeviceClock() if device == "cuda" else HostClock()
    say(BaselineLine())
    for mode in order.modes:
        found = time_mode(mode, subject, clock, alone)
        say(BaselineLine(time=found))
        if found.failed:
            return
        importlib.import_module("torch._dynamo").reset()
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
