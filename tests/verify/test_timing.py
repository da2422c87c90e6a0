"""Timing as a program meets it, on virtual time: honest ones get their ratio, and what does not fit together is refused."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import TimingResult
from stitchcuda.verify.inputs import timed_inputs
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.messages.timing_requests import (
    CallRow,
    LayRow,
    MoveTensors,
    PrepareTiming,
    ReleaseTiming,
    TimeBlock,
    TimingReleased,
)
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.timing import rounds
from tests.verify import programs
from tests.verify.judge_parts import Bench
from tests.verify.timing_stage import Local, Stage, VirtualClock


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def timed_result(ms: float) -> TimingResult:
    """A program of `ms` where the reference takes one."""
    return TimingResult(
        reference_ms=1, previous_ms=1, program_ms=ms, saving_ms=0, saving_low_ms=0, saving_high_ms=0, samples=200,
        ratio=1 / ms, ratio_low=1 / ms, ratio_high=1 / ms,
    )  # fmt: skip


def test_an_honest_program_gets_its_ratio(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    result = stage.timed(stage.honest(clock, 0.5), clock)
    assert result.refused == ()
    assert result.ratio == pytest.approx(4.0)
    assert result.ratio_low <= result.ratio <= result.ratio_high
    assert result.speedup == result.ratio
    assert result.saving_ms == 0.0         # against itself
    assert result.outside_ms == pytest.approx(0.5, rel=0.05)
    assert result.deliveries >= 4
    assert result.interleaved


def test_the_gpu_is_used_alone_for_the_rounds_only(stage: Stage) -> None:
    turns: list[tuple[bool, set[type]]] = []

    @contextlib.contextmanager
    def turn(*, alone: bool) -> Iterator[None]:
        assert stage.reference is not None
        before = len(stage.reference.asked)
        yield
        turns.append((alone, set(stage.reference.asked[before:])))

    clock = VirtualClock(stage.time)
    stage.timed(stage.honest(clock, 0.5), clock, turn=turn)
    assert turns == [(False, {PrepareTiming, MoveTensors, TimeBlock}), (True, {MoveTensors, TimeBlock})]


def test_jitter_is_no_reason(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    dice = random.Random(7)

    def call(*args: Any) -> Any:
        clock.spend(0.02 * dice.uniform(0.8, 1.6))
        stage.time.ms += dice.choice((0.0, 0.0, 0.0, 0.01))
        return stage.module(*args)

    assert stage.timed(call, clock, reference_ms=0.05).refused == ()


def test_a_busy_machine_is_no_reason(stage: Stage) -> None:
    """Four of five blocks lose a slice of time to somebody else; the judge's clock must not read that as work. Where all empty
    blocks lose one, which is drawn here not to be, the timing is disputed and made again."""
    clock = VirtualClock(stage.time)
    dice, calls, settle = random.Random(2), [0], clock.settle

    def settle_late() -> None:
        settle()
        calls[0] += 1
        if calls[0] % 8 == 0 and dice.random() < 0.8:
            stage.time.ms += 3.0

    clock.settle = settle_late  # type: ignore[method-assign]
    result = stage.timed(stage.honest(clock, 0.03), clock, reference_ms=0.06, draw=random.Random(2))
    assert result.refused == ()
    assert not result.disputed


def test_the_previous_program_takes_turns(stage: Stage) -> None:
    clock, other = VirtualClock(stage.time), VirtualClock(stage.time)
    previous = stage.local("previous", stage.honest(other, 0.9), other)
    result = stage.timed(stage.honest(clock, 0.5), clock, previous=previous)
    assert result.saving_ms == pytest.approx(0.4)
    assert result.saving_low_ms == pytest.approx(0.4)


def test_work_that_is_not_joined_is_refused(stage: Stage) -> None:
    clock = VirtualClock(stage.time)

    def call(*args: Any) -> Any:
        clock.spend(0.01)
        clock.later(0.5)
        return stage.module(*args)

    result = stage.timed(call, clock)
    assert any("work goes on after the call" in reason for reason in result.refused)
    assert result.program_ms == pytest.approx(0.51, rel=0.01)  # and it is counted


def test_a_clock_that_lies_is_refused(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    clock.factor = 0.1
    result = stage.timed(stage.honest(clock, 0.5), clock)
    assert any("the judge's own says" in reason for reason in result.refused)
    assert result.disputed
    assert not rounds.refused_timing("it fell over").disputed


@pytest.mark.parametrize("ms", [0.01, 0.03, 0.1, 1.0])
def test_no_call_is_too_short_for_the_judges_clock(stage: Stage, ms: float) -> None:
    """A lie about a call of 0.01 ms is worth little against what surrounds it; in a row it is not."""
    clock = VirtualClock(stage.time)
    clock.factor = 0.4
    result = stage.timed(stage.honest(clock, ms), clock, reference_ms=2 * ms)
    assert any("each of many in a row" in reason for reason in result.refused)
    clock.factor = 1.0
    assert stage.timed(stage.honest(clock, ms), clock, reference_ms=2 * ms).refused == ()


def test_what_new_addresses_cost_is_what_counts(stage: Stage) -> None:
    """As where a CUDA graph is recorded anew for each: the clocks agree, and a quick replay is no measure of it."""
    clock, last = VirtualClock(stage.time), [0]

    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        clock.spend(0.1 if x.data_ptr() == last[0] else 1.0)
        last[0] = x.data_ptr()
        return stage.module(x, y)

    result = stage.timed(call, clock)
    assert result.refused == ()
    assert result.program_ms == pytest.approx(1.0, rel=0.05)
    assert any(note.startswith("limited: with inputs at new addresses") for note in result.notes)


def test_calls_in_a_row_cannot_be_left_out(stage: Stage) -> None:
    clock, settled = VirtualClock(stage.time), [False]
    clock.factor = 0.4
    honest, settle = stage.honest(clock, 0.03), clock.settle

    def settled_now() -> None:
        settled[0] = True
        settle()

    def call(*args: Any) -> Any:
        between, settled[0] = settled[0], False
        return honest(*args) if between else torch.zeros(16, 32)

    clock.settle = settled_now  # type: ignore[method-assign]
    assert any("in a timed call output is wrong" in reason for reason in stage.timed(call, clock).refused)


@pytest.mark.parametrize(("fails", "noted"), [(3, False), (100, True)])
def test_rows_are_as_long_as_memory_allows(stage: Stage, fails: int, noted: bool) -> None:
    ours, theirs = VirtualClock(stage.time), VirtualClock(stage.time)
    program = stage.local("program", stage.honest(ours, 0.5), ours)
    program.fails = [LayRow] * fails
    reference = stage.local("reference", stage.honest(theirs, 1.0), theirs)
    result = rounds.time_interleaved(reference, program, program, stage.timed_inputs(), Limits(), now=stage.time)
    assert result.refused == ()
    assert any("memory does not hold the inputs of calls in a row" in note for note in result.notes) == noted
    assert (CallRow in program.asked) == (not noted)


def test_slow_empty_blocks_hide_nothing(stage: Stage) -> None:
    """Outside, a call takes what a block takes longer than an empty one: whoever slows the empty ones is seen."""
    clock = VirtualClock(stage.time)
    clock.factor = 0.1
    honest, busy = stage.honest(clock, 0.5), [False]

    def call(*args: Any) -> Any:
        busy[0] = True
        return honest(*args)

    def settle() -> None:
        clock.spend(0.2 if busy[0] else 0.65)
        busy[0] = False

    clock.settle = settle  # type: ignore[method-assign]
    result = stage.timed(call, clock)
    assert any("without its calls" in reason for reason in result.refused)


@pytest.mark.parametrize("key", ["pointer", "version", "identity", "shape", "first", "sum"])
def test_nothing_is_worth_caching(stage: Stage, key: str) -> None:
    clock = VirtualClock(stage.time)
    seen: dict[Any, Any] = {}

    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        known = {
            "pointer": (x.data_ptr(), y.data_ptr()), "version": (x.data_ptr(), x._version, y._version),
            "identity": (id(x), id(y)), "shape": x.shape,
            "first": round(float(x.flatten()[0]), 1), "sum": round(float(x.sum().abs()) / 50),
        }[key]  # fmt: skip
        clock.spend(0.01)
        if known not in seen:
            clock.spend(0.5)
            seen[known] = stage.module(x, y)
        return seen[known]

    assert any("in a timed call output is wrong" in reason for reason in stage.timed(call, clock).refused)


def test_a_cache_by_content_is_never_hit(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    seen: dict[bytes, Any] = {}

    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        known = x.numpy().tobytes() + y.numpy().tobytes()
        clock.spend(0.01)
        if known not in seen:
            clock.spend(0.5)
            seen[known] = stage.module(x, y)
        return seen[known]

    result = stage.timed(call, clock)
    assert result.refused == ()            # right, and as slow as without it
    assert result.program_ms == pytest.approx(0.51)


def test_right_until_it_is_timed_is_refused(stage: Stage) -> None:
    clock, calls = VirtualClock(stage.time), [0]

    def call(*args: Any) -> Any:
        calls[0] += 1
        clock.spend(0.5 if calls[0] < 30 else 0.01)
        right = stage.module(*args)
        return right if calls[0] < 30 else torch.empty_like(right)

    assert any("in a timed call" in reason for reason in stage.timed(call, clock).refused)


def test_inputs_that_are_written_are_refused(stage: Stage) -> None:
    clock = VirtualClock(stage.time)

    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        clock.spend(0.5)
        result = stage.module(x, y)
        x.zero_()
        return result

    assert any("writes into its input 0" in reason for reason in stage.timed(call, clock).refused)


def test_a_lazy_result_is_an_error(stage: Stage) -> None:
    class Lazy(torch.Tensor):
        pass

    clock = VirtualClock(stage.time)
    with pytest.raises(Exception, match="a Lazy, not a plain tensor"):
        stage.timed(lambda *args: stage.module(*args).as_subclass(Lazy), clock)


def test_what_was_replaced_while_it_was_timed_is_refused(stage: Stage) -> None:
    class Admitting(Local):
        def ask(self, request: Request[Any], *, seconds: float, doing: str) -> Any:
            said = super().ask(request, seconds=seconds, doing=doing)
            released = isinstance(request, ReleaseTiming)
            return TimingReleased(tampered=["torch.Tensor.copy_ was replaced"]) if released else said

    ours, theirs = VirtualClock(stage.time), VirtualClock(stage.time)
    local = stage.local("program", stage.honest(ours, 0.5), ours)
    program = Admitting(local.scratch, local.clock, local.program)
    reference = stage.local("reference", stage.honest(theirs, 1.0), theirs)
    result = rounds.time_interleaved(reference, program, program, stage.timed_inputs(), Limits(), now=stage.time)
    assert any("tampers with the process it runs in" in reason for reason in result.refused)


def test_new_threads_are_refused(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    counts = iter((4, 5))
    result = stage.timed(stage.honest(clock, 0.5), clock, threads=lambda: next(counts))
    assert result.refused == ("the program's process has 5 threads after the timed calls and had 4 before them",)


def test_a_thread_that_keeps_the_device_busy_between_calls_gains_nothing(stage: Stage) -> None:
    """Each turn of the device is slower while the program may work and is not called; it may not."""
    clock, free = VirtualClock(stage.time), [True]
    theirs = stage.honest(clock, 1.0)

    def reference(*args: Any) -> Any:
        stage.time.ms += 0.5 * free[0]
        return theirs(*args)

    @contextlib.contextmanager
    def hold(name: str) -> Iterator[None]:
        free[0] = name == "program"
        yield
        free[0] = True

    stage.honest = lambda clock, ms: reference  # type: ignore[method-assign]
    assert stage.timed(theirs, clock, hold=hold).speedup == pytest.approx(1.0, rel=0.02)
    assert stage.timed(theirs, clock).speedup == pytest.approx(1.5, rel=0.02)

def test_rows_are_called_while_the_others_stand_still_too(stage: Stage) -> None:
    """Else a busy previous program would slow rows alone, and the two clocks would part."""
    clock, free = VirtualClock(stage.time), [True]
    theirs = stage.honest(clock, 0.5)

    def program(*args: Any) -> Any:
        stage.time.ms += 1.0 * free[0]
        return theirs(*args)

    @contextlib.contextmanager
    def hold(name: str) -> Iterator[None]:
        free[0] = False
        yield
        free[0] = True

    result = stage.timed(program, clock, hold=hold)
    assert result.refused == ()
    assert result.ratio == pytest.approx(4.0)


def test_one_after_another_where_memory_is_short(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    theirs = VirtualClock(stage.time)
    previous = stage.local("previous", stage.honest(theirs, 0.9), theirs)
    previous.fails = [PrepareTiming]
    result = stage.timed(stage.honest(clock, 0.5), clock, previous=previous)
    assert not result.interleaved
    assert any("one after another" in note for note in result.notes)
    assert result.refused == ()
    assert result.saving_ms == pytest.approx(0.4)
    assert previous.asked[-1] is ReleaseTiming


def test_other_failures_are_raised(stage: Stage) -> None:
    clock = VirtualClock(stage.time)

    def call(*args: Any) -> Any:
        raise WorkerFailed("crash", "the program crashed")

    with pytest.raises(WorkerFailed, match="crashed"):
        stage.timed(call, clock)
    assert stage.reference is not None
    assert stage.reference.asked[-1] is ReleaseTiming  # it lives on, and must not keep what it held


def test_contents_that_the_reference_does_not_stand_are_not_the_programs_fault(stage: Stage) -> None:
    """Whoever meets them first: then integers, which may be indices, are left as they are."""
    ours, theirs = VirtualClock(stage.time), VirtualClock(stage.time)
    met = False

    def worker(name: str, clock: VirtualClock, *, stands: bool) -> Local:
        honest = stage.honest(clock, 1.0)
        calls = 0

        def call(*args: Any) -> Any:
            nonlocal calls, met
            calls += 1
            if not stands and (met or calls > 12):
                met = name == "program"    # contents that the reference is asked for next
                raise WorkerFailed("error", f"the {name} raised IndexError")
            return honest(*args)

        return stage.local(name, call, clock)

    for program, reference in ((False, True), (False, False), (True, False)):
        met = False
        theirs_one, ours_one = worker("reference", theirs, stands=reference), worker("program", ours, stands=program)
        with pytest.raises(WorkerFailed, match="IndexError") as caught:
            rounds.time_interleaved(theirs_one, ours_one, ours_one, stage.timed_inputs(), Limits(), now=stage.time)
        assert (type(caught.value) is rounds.ReferenceUnfit) == (not reference)


INDEXED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, ids, edges):
        return x[ids] + torch.bucketize(x[ids], edges)

def get_inputs():
    return [torch.randn(64, 8), torch.randint(64, (128,)), torch.linspace(-1, 1, 16)]
"""


def test_what_stays_as_drawn_is_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path, INDEXED)
    drawn = stage.timed_inputs()
    assert drawn.moving == [[0, 0, 1], [1, 0]]
    assert drawn.notes == ["inputs that timed calls get as drawn, in order or integers: 2"]
    plain = timed_inputs.draw(stage.ask, stage.secret_inputs, stage.compare, integers=False)
    assert plain.moving == [[0, 0, 1]]
    assert plain.notes == ["inputs that timed calls get as drawn, in order or integers: 1, 2"]


def test_a_worker_learns_which_elements_are_compared_after_its_call_only(stage: Stage) -> None:
    class Recorder:
        samples: ClassVar[list[int]] = []

        def ask(self, request: Any, *, seconds: float, doing: str) -> Any:
            self.samples.append(request.sample)

    drawn = stage.timed_inputs()
    for number, turn in drawn.planned:
        drawn.receive(Recorder(), number, turn, seconds=1.0)
    assert len(set(Recorder.samples)) == len(drawn.planned) == 5


AVERAGED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.tanh(self.norm(x))

def get_inputs():
    return [torch.randn(64, 8)]
"""


def test_what_calls_update_is_not_asked_for_after_timed_ones(tmp_path: Path) -> None:
    """They give back outputs and inputs; buffers are compared where there is time."""
    stage = Stage(tmp_path, AVERAGED)
    assert any(name.startswith("buffer:") for name in stage.secret_inputs.sets[0].names)
    clock = VirtualClock(stage.time)
    result = stage.timed(stage.honest(clock, 1.0), clock)
    assert not any("buffer" in reason for reason in result.refused)


def test_long_calls_are_called_less(stage: Stage) -> None:
    clock = VirtualClock(stage.time)
    assert stage.timed(stage.honest(clock, 40.0), clock, reference_ms=50.0).samples == rounds.ROUNDS * 2


PICKY = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.log(FORWARD)

def get_inputs():
    x = torch.rand(16, 16) + 1
    x[0] += 9
    return [x]
"""


@pytest.mark.parametrize(
    ("forward", "moving", "scaled"), [("x", [[0, 0, 1]], True), ("x - 0.9", [[0, 0, 1]], False), ("x[0] - 5", [], False)]
)
def test_contents_move_as_far_as_the_reference_stays_finite(
    tmp_path: Path, forward: str, moving: list[list[int]], scaled: bool
) -> None:
    stage = Stage(tmp_path, PICKY.replace("FORWARD", forward))
    drawn = stage.timed_inputs()
    assert (drawn.moving, drawn.scaled) == (moving, scaled)
    assert any("repeat" in note for note in drawn.notes) == (not moving)
    clock = VirtualClock(stage.time)
    assert stage.timed(stage.honest(clock, 0.5), clock).refused == ()


def test_of_two_timings_the_slower_counts() -> None:
    def timed(ratio: float, *refused: str) -> TimingResult:
        return timed_result(1 / ratio).model_copy(update={"refused": refused})

    assert rounds.combine_timings([timed(2.0)]) == timed(2.0)
    assert not rounds.needs_third_timing([timed(2.0)])
    assert rounds.combine_timings([timed(2.0), timed(1.97)]).ratio == pytest.approx(1.97)
    assert rounds.combine_timings([timed(2.0), timed(1.97)]).refused == ()
    assert not rounds.needs_third_timing([timed(2.0), timed(1.97)])
    assert rounds.combine_timings([timed(2.0, "a"), timed(2.1, "a")]).refused == ("a",)
    for three in permutations((2.0, 0.11, 1.9)):
        results = [timed(ratio) for ratio in three]
        assert not rounds.needs_third_timing(results)
        decided = rounds.combine_timings(results)
        assert decided.ratio == pytest.approx(1.9)
        assert decided.refused == ()
        first, then, last = three
        told = f"limited: timed 3 times: ratio {first:.3f}, then {then:.3f}, then {last:.3f}; the middle one counts"
        assert decided.notes[0].startswith(told)
    assert rounds.needs_third_timing([timed(2.0), timed(1.2)])
    assert rounds.needs_third_timing([timed(1.2), timed(2.0)])


def test_a_third_timing_decides_where_two_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    (program := tmp_path / "new.py").write_text(programs.REFERENCE.replace("class Model(", "class ModelNew("))
    judge = bench._judge
    try:
        for given, twice, ratio in (
            ((0.5, 0.51), True, 1 / 0.51),
            ((0.5, 9.0, 0.52), True, 1 / 0.52),
            ((9.0, 0.5, 0.52), True, 1 / 0.52),
            ((0.5,), False, 2.0),
        ):
            answers = [timed_result(ms) for ms in given]
            monkeypatch.setattr(judge.timing, "_interleaved", lambda of, before, started, answers=answers: answers.pop(0))
            assert judge.timing.time(str(program), str(program), twice=twice).ratio == pytest.approx(ratio)
            assert answers == []
        refused = timed_result(0.5).model_copy(update={"refused": ("the clocks disagree",)})
        monkeypatch.setattr(judge.timing, "_interleaved", lambda *_: refused)
        assert judge.timing.time(str(program), str(program), twice=True).refused == ("the clocks disagree",)
    finally:
        bench.close()
