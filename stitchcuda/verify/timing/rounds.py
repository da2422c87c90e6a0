"""Times reference, previous program and program on a GPU in interleaved rounds, from the judge's side.

Each has its own process, and only one works at a time. In each of `ROUNDS` rounds each gets a block of calls: before a call
L2 is cold and the device idle, contents never repeat, and memory is new in each block. A saving is the median over rounds of
the difference of block medians, a ratio that of their quotient, so that a drift of clocks hits all alike; 95 % intervals are
order statistics. The judge's clock runs around each block, around blocks without their calls, and around rows: many calls of
the program with nothing between them. After secret calls the outputs are compared. A contradiction is a reason to refuse.
Where to look next: `verify/timing/timed_calls.py` (the worker's side), `verify/timing/clock_agreement.py` (do the clocks
agree?), `verify/inputs/timed_inputs.py` (contents).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol, TypeVar

from stitchcuda.counts import counted
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import TimingResult
from stitchcuda.tools.device.interval import median_of
from stitchcuda.verify.inputs.timed_inputs import QuestionedWorker, TimedCall, TimedInputs
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.messages.timing_requests import CallRow, LayRow, MoveTensors, ReleaseTiming, TimeBlock
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.timing import clock_agreement
from stitchcuda.verify.timing.clock_agreement import ClockFigures

ROUNDS = 25
CALLS = 8                                  # in a block
_EMPTY_ROUNDS = 9
_ROW_ROUNDS = 9
_COMPARED_ROWS = 2                        # rows whose last outputs are compared, so that none may be left out
_ROW_MS, _LONGEST_ROW = 8.0, 128           # a row has as many calls as take so long, at most so many
_SHORTEST_ROW = 2
_ROW_BYTES = 2**30                         # memory for inputs and outputs of a row
_WARM_CALLS = 10
_BLOCK_MS = 16.0                           # a block of long calls takes about so long, but has at least
_FEWEST_CALLS = 2                          # so many
_FRESH = 3                                 # one call in so many gets its inputs at new addresses
_SPACER_STEP, _SPACER_STEPS = 2**21, 32    # a driver's page in bytes; fewer than so many lie before a block's memory
_SHORTEST_MS = 1e-4                       # below any clock's resolution: shorter times are false
_HELD_BYTES = 512 * 2**20                  # outputs that may wait in memory to be compared after the rounds
_SPIN_S = 0.003                            # for which each core counts to find the fastest
_CONFIRMED = 1.25                          # two timings in new processes agree up to this factor

_Answer = TypeVar("_Answer")
Now = Callable[[], float]
"""Seconds by the judge's clock."""
Hold = Callable[[str], contextlib.AbstractContextManager[None]]
"""Returns a context in which only the worker of this name, and the reference's, may run."""


class Turn(Protocol):
    """Returns a context in which the GPU may be used: alone, or beside others that time nothing."""

    def __call__(self, *, alone: bool) -> contextlib.AbstractContextManager[None]: ...


class ReferenceUnfit(WorkerFailed):
    """The reference itself failed in timed calls: it cannot be timed, or not on these contents."""


class TimingRounds:
    """The rounds of one timing. `draw`: a random generator for all choices that a program must not foresee.

    `figures`: times by worker. `wrong`, `tampered`: reasons to refuse. `compared`: how many outputs.
    """

    def __init__(
        self,
        workers: dict[str, QuestionedWorker], timed_inputs: TimedInputs, bounds: Limits, now: Now, draw: random.Random,
        core: int | None, hold: Hold,
    ) -> None:  # fmt: skip
        self.workers = workers
        self.figures = {name: ClockFigures() for name in workers}
        self.core = core                   # the core for all workers' main threads, so that none has a faster one
        self.notes: list[str] = []
        self.wrong: list[str] = []
        self.tampered: list[str] = []
        self.compared = 0
        self._timed_inputs = timed_inputs
        self._bounds = bounds
        self._now = now
        self._draw = draw
        self._hold = hold
        self._waiting: list[TimedCall] = []
        self._prepared: set[str] = set()

    def warm_up(self, name: str) -> float:
        """Prepares a worker and makes its first calls. Returns the milliseconds of a call; reads a program's last outputs."""
        with self._hold(name):
            prepared = self._ask(name, self._timed_inputs.preparation(trusted=name == "reference", core=self.core))
            self._prepared.add(name)
            if self.core is not None and not prepared.pinned:
                self.notes.append(f"the worker of the {name} could not be kept on one core")
            first, turn = self._timed_inputs.planned[0]
            calls = [*self._calls(_WARM_CALLS - 1), [first, turn, 0]]
            self._move(name, calls)
            times, _ = self._times(name, calls, run=True)
            if name == "program":
                self._receive(first, turn)
            self._times(name, calls, run=False)
            return median(times)

    def rounds(self, names: list[str], calls: int, row: int) -> None:
        """Runs all rounds of these workers, each in a random order. Rows of the program have up to `row` calls."""
        empty = set(self._draw.sample(range(ROUNDS), _EMPTY_ROUNDS))
        planned = self._timed_inputs.planned[1:]
        rows = self._draw.sample(range(ROUNDS), _ROW_ROUNDS) if "program" in names and row >= _SHORTEST_ROW else []
        last_in_row = dict(zip(rows, self._compared_after_rows(planned), strict=False))
        planned = planned[len(last_in_row):]
        compared = dict(zip(self._draw.sample(range(ROUNDS), len(planned)), planned, strict=True))
        for number in range(ROUNDS):
            turns = [(name, run) for name in names for run in ((True, False) if number in empty else (True,))]
            self._draw.shuffle(turns)
            for name, run in turns:
                last = compared.get(number) if run and name == "program" else None
                self._block(name, calls, run=run, compared=last)
                if number in rows and run and name == "program":
                    with self._hold(name):
                        row = self._row(row, last_in_row.get(number))

    def release(self, name: str) -> None:
        """Ends the timed calls of a worker; what it says of tampering is recorded."""
        self._prepared.discard(name)
        found = self._ask(name, ReleaseTiming()).tampered
        if found and name != "reference":
            self.tampered.append(f"the program tampers with the process it runs in: {'; '.join(found)[:500]}")

    def judge(self) -> None:
        """Compares the outputs that wait for it."""
        if self._waiting and not self.wrong:
            self.wrong += [f"in a timed call {reason}" for reason in self._timed_inputs.wrong(self._waiting)]
        self.compared += len(self._waiting)
        self._waiting.clear()

    def _block(self, name: str, count: int, *, run: bool, compared: tuple[int, int] | None) -> None:
        calls = self._calls(count)
        if compared:
            calls[-1][:2] = compared
        with self._hold(name):
            self._move(name, calls)        # this also pays for the GPU's switch to another process, 0.13 ms on an H200
            before = self._now()
            device, rest = self._times(name, calls, run=run)
            span = 1e3 * (self._now() - before)
        figures = self.figures[name]
        figures.calls = count
        if not run:
            figures.empty_spans.append(span)
            return
        figures.spans.append(span)
        figures.inside.append(max(_SHORTEST_MS, median(device)))
        if fresh := [took for took, (*_, new) in zip(device, calls, strict=True) if new]:
            figures.fresh.append(max(_SHORTEST_MS, median(fresh)))
        figures.rest.append(median(rest))
        if compared:
            self._receive(*compared)

    def _row(self, longest: int, compared: tuple[int, int] | None) -> int:
        """Runs two rows; in the first one the program's allocators take the memory for the second, which is measured.

        Returns how many calls the next row may have.
        """
        for measured in (False, True) if longest >= _SHORTEST_ROW else ():
            calls = self._calls(self._draw.randint((3 * longest + 3) // 4, longest))
            if compared and measured:
                calls[-1][:2] = compared
            try:
                self._ask("program", LayRow(calls=calls))
            except WorkerFailed as failure:
                if failure.kind != "memory":
                    raise
                if longest < 2 * _SHORTEST_ROW:
                    self.notes.append("limited: memory does not hold the inputs of calls in a row: short ones are timed alone")
                return longest // 2
            before = self._now()
            self._run("program", calls, CallRow())
            span = 1e3 * (self._now() - before)
            if measured:
                self.figures["program"].rows.append((span, len(calls)))
                if compared:
                    self._receive(*compared)
        return longest

    def _compared_after_rows(self, planned: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns the contents that are compared after a row: none if calls change state, which is not put back in a row."""
        changing = any(name.startswith("buffer:") for name in self._timed_inputs.sets[0].names)
        return [] if changing else planned[:_COMPARED_ROWS]

    def _move(self, name: str, block: list[list[int]]) -> None:
        """Moves a worker's tensors to other memory, with room for this block."""
        spacer = _SPACER_STEP * self._draw.randrange(_SPACER_STEPS)
        (call,) = self._calls(1)
        self._run(name, [call], MoveTensors(spacer=spacer, call=call, fresh=sum(new for *_, new in block)))

    def _receive(self, number: int, turn: int) -> None:
        """Reads what the program's last call returned, to be compared."""
        try:
            call = self._timed_inputs.receive(self.workers["program"], number, turn, seconds=self._bounds.call_s)
        except OSError as error:
            self.wrong.append(f"the outputs of a timed call cannot be read: {error}")
            return
        self._waiting.append(call)
        if sum(block.size for call in self._waiting for block in call.blocks.values()) > _HELD_BYTES:
            self.judge()

    def _calls(self, count: int) -> list[list[int]]:
        """Returns [set, turn, 1 if at new addresses] for each call; every block has as many of these, in random places."""
        fresh = set(self._draw.sample(range(count), count // _FRESH))
        sets = len(self._timed_inputs.sets)
        return [[self._draw.randrange(sets), self._draw.getrandbits(31), int(place in fresh)] for place in range(count)]

    def _times(self, name: str, calls: list[list[int]], *, run: bool) -> tuple[list[float], list[float]]:
        times = self._run(name, calls, TimeBlock(calls=calls, run=run))
        if not len(times.device_ms) == len(times.rest_ms) == len(calls):
            raise WorkerFailed("error", "the worker gives other times than those of the calls")
        return times.device_ms, times.rest_ms

    def _run(self, name: str, these: list[list[int]], request: Request[_Answer]) -> _Answer:
        """Asks for something that makes the calls `these`. If a program fails, the reference has to make them too."""
        try:
            return self._ask(name, request)
        except WorkerFailed as failure:
            if name != "reference" and failure.kind != "memory" and "reference" in self._prepared:
                self._ask("reference", TimeBlock(calls=these, run=True))
            raise

    def _ask(self, name: str, request: Request[_Answer]) -> _Answer:
        try:
            return self.workers[name].ask(request, seconds=self._bounds.call_s, doing="being timed")
        except WorkerFailed as failure:
            if name == "reference" and failure.kind != "memory":
                raise ReferenceUnfit(failure.kind, str(failure)) from failure
            raise


def time_interleaved(
    reference: QuestionedWorker,
    previous: QuestionedWorker,
    program: QuestionedWorker,
    timed_inputs: TimedInputs,
    bounds: Limits,
    *,
    now: Now = time.perf_counter,
    draw: random.Random | None = None,
    threads: Callable[[], int | None] = lambda: None,
    core: int | None = None,
    hold: Hold = lambda name: contextlib.nullcontext(),
    turn: Turn = lambda *, alone: contextlib.nullcontext(),
) -> TimingResult:
    """Times three workers; `previous` may be the program's own worker.

    `now`: the judge's clock, in seconds. `threads`: counts the threads of the program's process. `core`: for all workers' main
    threads. `hold`: stops the other program while one is timed. `turn`: waits for the GPU, which is used alone only for the
    rounds. Reasons not to believe the times stand in `refused` of the result. If memory does not hold all workers at once, they
    are timed one after another, and a note says so. Raises `WorkerFailed`, and `ReferenceUnfit` if it is the reference that
    failed.
    """
    workers = {"reference": reference, "previous": previous, "program": program}
    if previous is program:
        del workers["previous"]
    notes = list(timed_inputs.notes)
    draw = draw or random.SystemRandom()
    turns = TimingRounds(workers, timed_inputs, bounds, now, draw, core, hold)
    groups = [list(workers)]
    try:
        try:
            with turn(alone=False):
                warm = {name: turns.warm_up(name) for name in workers}
        except WorkerFailed as failure:
            if failure.kind != "memory":
                raise
            for name in workers:
                turns.release(name)
            notes.append("timed one after another: memory does not hold them at once")
            turns = TimingRounds(workers, timed_inputs, bounds, now, draw, core, hold)
            groups, warm = [[name] for name in workers], {}
        calls = 0
        before = after = None
        for group in groups:
            if cold := [name for name in group if name not in warm]:
                with turn(alone=False):
                    warm |= {name: turns.warm_up(name) for name in cold}
            calls = calls or max(_FEWEST_CALLS, min(CALLS, int(_BLOCK_MS / max(warm["reference"], 1e-3))))
            row = _longest_row(min(warm["reference"], warm.get("program", warm["reference"])), timed_inputs.at_most_bytes())
            with turn(alone=True):
                before = threads() if "program" in group else before
                turns.rounds(group, calls, row)
                after = threads() if "program" in group else after
            for name in group:
                turns.release(name)
    except WorkerFailed:
        with contextlib.suppress(WorkerFailed):  # it may be the one that failed
            turns.release("reference")
        raise
    turns.judge()
    return _result(turns, calls, len(groups) == 1, [*notes, *turns.notes], _grown(before, after))


def refused_timing(reason: str) -> TimingResult:
    """Returns a timing without figures, refused for this reason."""
    return TimingResult(
        reference_ms=0.0, previous_ms=0.0, program_ms=0.0, saving_ms=0.0, saving_low_ms=0.0, saving_high_ms=0.0, samples=0,
        refused=(reason,),
    )  # fmt: skip


def needs_third_timing(timings: Sequence[TimingResult]) -> bool:
    """Whether two timings in new processes differ by more than `_CONFIRMED`, so that a third has to decide."""
    return len(timings) == 2 and _apart(timings)


def _apart(timings: Sequence[TimingResult]) -> bool:
    ratios = [timing.ratio for timing in timings]
    return max(ratios) > _CONFIRMED * min(ratios)


def combine_timings(timings: Sequence[TimingResult]) -> TimingResult:
    """Combines timings of one program in new processes: the slower of two counts, or the middle one of three; a note says so.

    A difference is no reason to refuse, since machines are busy at times; being fast in only one of them gains nothing.
    """
    if len(timings) == 1:
        return timings[0]
    middle = sorted(timings, key=lambda timing: timing.ratio)[(len(timings) - 1) // 2]
    ratios = ", then ".join(f"{timing.ratio:.3f}" for timing in timings)
    summary = f"timed {'twice' if len(timings) == 2 else '3 times'}: ratio {ratios}"
    if _apart(timings):
        why = "the machine is busy, or the program's time varies from process to process"
        summary = f"limited: {summary}; the {'slower' if len(timings) == 2 else 'middle one'} counts: {why}"
    reasons = tuple(dict.fromkeys(reason for timing in timings for reason in timing.refused))
    notes = tuple(dict.fromkeys((*(note for timing in timings for note in timing.notes), summary)))
    certain = min(timing.ratio_low for timing in timings)
    return middle.model_copy(update={"refused": reasons, "notes": notes, "certain_ratio": certain})


def fastest_core() -> int:
    """Returns the core, of those this process may use, that counts fastest now: others may be shared or asleep."""
    def speed(core: int) -> int:
        os.sched_setaffinity(0, {core})
        count, until = 0, time.perf_counter() + _SPIN_S
        while time.perf_counter() < until:
            count += 1
        return count

    allowed = os.sched_getaffinity(0)
    try:
        return max(sorted(allowed), key=speed)
    finally:
        os.sched_setaffinity(0, allowed)


def _result(turns: TimingRounds, calls: int, together: bool, notes: list[str], grown: list[str]) -> TimingResult:
    reference, program = turns.figures["reference"], turns.figures["program"]
    previous = turns.figures.get("previous", program)
    hidden = clock_agreement.hidden_ms(program, reference)
    contradictions = clock_agreement.find_contradictions(program, reference)
    others = (*turns.wrong, *turns.tampered, *grown)
    # If new addresses cost one of them much, only calls at new addresses are compared.
    fresh = any(clock.slower_at_new_addresses() for clock in (reference, previous, program))
    now = [inside + hidden for inside in program.block_medians(fresh=fresh)]
    before = now if previous is program else previous.block_medians(fresh=fresh)
    if program.slower_at_new_addresses():
        notes.append(
            f"limited: with inputs at new addresses a call takes {median(program.fresh):.4f} ms, and this counts; at known "
            f"ones {median(program.inside):.4f} ms"
        )
    if hidden:
        notes.append(f"{hidden:.4f} ms of device work outlast the call on its stream and are counted")
    saving = median_of([was - takes for was, takes in zip(before, now, strict=True)])
    ratio = median_of([was / takes for was, takes in zip(reference.block_medians(fresh=fresh), now, strict=True)])
    return TimingResult(
        reference_ms=median(reference.block_medians(fresh=fresh)),
        previous_ms=median(before),
        program_ms=median(now),
        saving_ms=saving.value,
        saving_low_ms=saving.low,
        saving_high_ms=saving.high,
        ratio=ratio.value,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        outside_ms=program.outside_ms(),
        samples=ROUNDS * calls,
        deliveries=turns.compared,
        interleaved=together,
        refused=(*others, *contradictions),
        disputed=bool(contradictions) and not others,
        notes=tuple(notes),
    )


def _longest_row(call_ms: float, size: int) -> int:
    """Returns the number of calls in a row: `_ROW_MS` of them, as far as the memory for `size` bytes each allows."""
    return min(_LONGEST_ROW, int(_ROW_BYTES / max(size, 1)), max(_SHORTEST_ROW, int(_ROW_MS / max(call_ms, 1e-3))))


def _grown(before: int | None, after: int | None) -> list[str]:
    if before is None or after is None or after <= before:
        return []
    return [f"the program's process has {counted(after, 'thread')} after the timed calls and had {before} before them"]


