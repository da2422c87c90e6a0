"""Interleaved timing on a GPU: reference, previous program and program take turns in blocks, each in its own process.

Only one is active at a time. Each block is a fixed number of single calls on a cold L2 with the device idle before, on contents
that never repeat, in memory taken anew; a saving is the median over rounds of the difference of the block medians, a ratio
that of their quotient, so that a drift of clocks hits all alike. 95 % intervals come from order statistics of the rounds.
The judge's clock runs around every block, some blocks leave the calls out, and after secret ones the outputs are compared. It
also runs around rows: many calls of the program with nothing between them, whose number makes a short call measurable.
What does not fit together is a reason to refuse. Where to look next: `verify/timing/timed_calls.py` (inside),
`verify/timing/clock_agreement.py` (clocks), `verify/inputs/timed_inputs.py` (contents).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from statistics import median

from stitchcuda.counts import counted
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import TimingResult
from stitchcuda.tools.device.interval import median_of
from stitchcuda.verify.inputs.timed_inputs import QuestionedWorker, TimedCall, TimedInputs
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.timing import clock_agreement
from stitchcuda.verify.timing.clock_agreement import ClockFigures

ROUNDS = 25
CALLS = 8
_EMPTY_ROUNDS = 9
_ROW_ROUNDS = 9
_ROW_DELIVERIES = 2                        # rows whose last outputs are compared, so that none may be left out
_ROW_MS, _LONGEST_ROW = 8.0, 128           # a row of short calls takes so long, or has so many
_SHORTEST_ROW = 2
_ROW_BYTES = 2**30                         # of inputs and outputs that a row may need
_WARM_CALLS = 10
_BLOCK_MS = 16.0                           # a block of long calls has fewer of them, but no fewer than
_FEWEST_CALLS = 2
_FRESH = 3                                 # one in so many calls gets new addresses
_SPACER_STEP, _SPACER_STEPS = 2**21, 32    # bytes, a page of the driver's; how many at most lie before a block's memory
_SHORTEST_MS = 1e-4                       # the resolution of nothing: a clock that says less lies
_HELD_BYTES = 512 * 2**20                  # of deliveries that may wait in memory until the rounds are over
_SPIN_S = 0.003
_CONFIRMED = 1.25                          # two timings in two pairs of processes agree up to this factor

Now = Callable[[], float]
"""Seconds by the judge's clock."""
Hold = Callable[[str], contextlib.AbstractContextManager[None]]
"""Inside nobody works but the worker of this name, and the reference's."""


class ReferenceUnfit(WorkerFailed):
    """The reference itself fails in timed calls: their contents are to blame, or it is."""


class TimingRounds:
    """The turns of one timing. `draw` makes every choice that a program must not foresee."""

    def __init__(
        self,
        workers: dict[str, QuestionedWorker],
        deliveries: TimedInputs,
        bounds: Limits,
        now: Now,
        draw: random.Random,
        core: int | None,
        hold: Hold,
    ) -> None:
        self.workers = workers
        self.figures = {name: ClockFigures() for name in workers}
        self.core = core                   # where the workers' main threads run: one is as fast as the other
        self.notes: list[str] = []
        self.wrong: list[str] = []
        self.tampered: list[str] = []
        self.delivered = 0
        self._deliveries = deliveries
        self._bounds = bounds
        self._now = now
        self._draw = draw
        self._hold = hold
        self._waiting: list[TimedCall] = []
        self._prepared: set[str] = set()

    def warm(self, name: str) -> float:
        """Prepare a worker and call it until nothing is new to it; milliseconds of a call. The program delivers at once."""
        with self._hold(name):
            return self._warmed(name)

    def _warmed(self, name: str) -> float:
        with self._deliveries.message(self.workers[name].grants) as message:
            prepared = self._ask(name, mode="prepare", core=self.core, **message)
        self._prepared.add(name)
        if self.core is not None and not prepared.get("pinned"):
            self.notes.append(f"the worker of the {name} could not be kept on one core")
        first, turn = self._deliveries.planned[0]
        calls = [*self._calls(_WARM_CALLS - 1), [first, turn, 0]]
        self._move(name, calls)
        said = self._times(name, calls, run=True)[0]
        if name == "program":
            self._receive(first, turn)
        self._times(name, calls, run=False)
        return median(said)

    def rounds(self, names: list[str], calls: int, row: int) -> None:
        """All rounds of these workers, in an order that is drawn anew for each. The program's rows have up to `row` calls."""
        empty = set(self._draw.sample(range(ROUNDS), _EMPTY_ROUNDS))
        planned = self._deliveries.planned[1:]
        rows = self._draw.sample(range(ROUNDS), _ROW_ROUNDS) if "program" in names and row >= _SHORTEST_ROW else []
        last_in_row = dict(zip(rows, self._delivered_by_rows(planned), strict=False))
        planned = planned[len(last_in_row):]
        delivered = dict(zip(self._draw.sample(range(ROUNDS), len(planned)), planned, strict=True))
        for number in range(ROUNDS):
            turns = [(name, run) for name in names for run in ((True, False) if number in empty else (True,))]
            self._draw.shuffle(turns)
            for name, run in turns:
                last = delivered.get(number) if run and name == "program" else None
                self._block(name, calls, run=run, deliver=last)
                if number in rows and run and name == "program":
                    row = self._row(row, last_in_row.get(number))

    def release(self, name: str) -> None:
        self._prepared.discard(name)
        said = self._ask(name, mode="release").get("tampered")
        if said and name != "reference":
            self.tampered.append(f"the program tampers with the process it runs in: {str(said)[:500]}")

    def judge(self) -> None:
        """Compare what was delivered."""
        if self._waiting and not self.wrong:
            self.wrong += [f"in a timed call {reason}" for reason in self._deliveries.wrong(self._waiting)]
        self.delivered += len(self._waiting)
        self._waiting.clear()

    def _block(self, name: str, count: int, *, run: bool, deliver: tuple[int, int] | None) -> None:
        calls = self._calls(count)
        if deliver:
            calls[-1][:2] = deliver
        with self._hold(name):
            self._move(name, calls)        # also pays for the switch between the processes' contexts, 0.13 ms on an H200
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
        if deliver:
            self._receive(*deliver)

    def _row(self, longest: int, deliver: tuple[int, int] | None) -> int:
        """Two rows, of which the first lets the program's allocators take what the second then finds.

        Returns how long the next may be.
        """
        with self._hold("program"):
            return self._rows(longest, deliver)

    def _rows(self, longest: int, deliver: tuple[int, int] | None) -> int:
        for measured in (False, True) if longest >= _SHORTEST_ROW else ():
            calls = self._calls(self._draw.randint((3 * longest + 3) // 4, longest))
            if deliver and measured:
                calls[-1][:2] = deliver
            try:
                self._ask("program", mode="lay", calls=calls)
            except WorkerFailed as failure:
                if failure.kind != "memory":
                    raise
                if longest < 2 * _SHORTEST_ROW:
                    self.notes.append("limited: memory does not hold the inputs of calls in a row: short ones are timed alone")
                return longest // 2
            before = self._now()
            self._run("program", calls, mode="row")
            span = 1e3 * (self._now() - before)
            if measured:
                self.figures["program"].rows.append((span, len(calls)))
                if deliver:
                    self._receive(*deliver)
        return longest

    def _delivered_by_rows(self, planned: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """State that calls change is put back between blocks, not within a row: then its outputs are its own."""
        changing = any(name.startswith("buffer:") for name in self._deliveries.sets[0].names)
        return [] if changing else planned[:_ROW_DELIVERIES]

    def _move(self, name: str, block: list[list[int]]) -> None:
        """To other memory, with room for this block."""
        spacer = _SPACER_STEP * self._draw.randrange(_SPACER_STEPS)
        calls = self._calls(1)
        fresh = sum(new for *_, new in block)
        self._run(name, calls, mode="move", spacer=spacer, call=calls[0], fresh=fresh)

    def _receive(self, number: int, turn: int) -> None:
        try:
            delivery = self._deliveries.receive(self.workers["program"], number, turn, seconds=self._bounds.call_s)
        except (WireError, OSError) as error:
            self.wrong.append(f"the outputs of a timed call cannot be read: {error}")
            return
        self._waiting.append(delivery)
        if sum(tensor.numel() * tensor.element_size() for call in self._waiting for tensor in call.outputs) > _HELD_BYTES:
            self.judge()

    def _calls(self, count: int) -> list[list[int]]:
        """(set, turn, fresh addresses) of each call; every block has as many fresh ones, wherever they fall."""
        fresh = set(self._draw.sample(range(count), count // _FRESH))
        sets = len(self._deliveries.sets)
        return [[self._draw.randrange(sets), self._draw.getrandbits(31), int(place in fresh)] for place in range(count)]

    def _times(self, name: str, calls: list[list[int]], *, run: bool) -> tuple[list[float], list[float]]:
        said = self._run(name, calls, mode="block", calls=calls, run=run)
        device, rest = said.get("device_ms"), said.get("rest_ms")
        for times in (device, rest):
            if not isinstance(times, list) or len(times) != len(calls) or not all(_is_time(span) for span in times):
                raise WorkerFailed("error", "the worker's times are no times")
        return device, rest  # type: ignore[return-value]

    def _run(self, name: str, these: list[list[int]], **fields: object) -> dict[str, object]:
        """Ask for something that makes these calls. Where a program fails, the reference must stand the same contents."""
        try:
            return self._ask(name, **fields)
        except WorkerFailed as failure:
            if name != "reference" and failure.kind != "memory" and "reference" in self._prepared:
                self._ask("reference", mode="block", calls=these, run=True)
            raise

    def _ask(self, name: str, **fields: object) -> dict[str, object]:
        try:
            return self.workers[name].ask("time", seconds=self._bounds.call_s, doing="being timed", **fields)
        except WorkerFailed as failure:
            if name == "reference" and failure.kind != "memory":
                raise ReferenceUnfit(failure.kind, str(failure)) from failure
            raise


def interleaved(
    reference: QuestionedWorker,
    previous: QuestionedWorker,
    program: QuestionedWorker,
    deliveries: TimedInputs,
    bounds: Limits,
    *,
    now: Now = time.perf_counter,
    draw: random.Random | None = None,
    threads: Callable[[], int | None] = lambda: None,
    core: int | None = None,
    hold: Hold = lambda name: contextlib.nullcontext(),
) -> TimingResult:
    """Time three workers; `previous` may be the program's own worker. `threads` counts those of the program's process, `core`
    is where all workers' main threads shall run, and while one is timed the other programs stand still: `hold`.

    What must not be believed stands in `refused`. Where memory does not hold all at once they go one after another, and a
    note says so. Raises `WorkerFailed`.
    """
    workers = {"reference": reference, "previous": previous, "program": program}
    if previous is program:
        del workers["previous"]
    notes = list(deliveries.notes)
    draw = draw or random.SystemRandom()
    turns = TimingRounds(workers, deliveries, bounds, now, draw, core, hold)
    groups = [list(workers)]
    try:
        try:
            warm = {name: turns.warm(name) for name in workers}
        except WorkerFailed as failure:
            if failure.kind != "memory":
                raise
            for name in workers:
                turns.release(name)
            notes.append("timed one after another: memory does not hold them at once")
            turns = TimingRounds(workers, deliveries, bounds, now, draw, core, hold)
            groups, warm = [[name] for name in workers], {}
        calls = 0
        before = after = None
        for group in groups:
            for name in group:
                warm[name] = warm.get(name) or turns.warm(name)
            calls = calls or max(_FEWEST_CALLS, min(CALLS, int(_BLOCK_MS / max(warm["reference"], 1e-3))))
            row = _longest_row(min(warm["reference"], warm.get("program", warm["reference"])), deliveries.at_most_bytes())
            before = threads() if "program" in group else before
            turns.rounds(group, calls, row)
            after = threads() if "program" in group else after
            for name in group:
                turns.release(name)
    except WorkerFailed:
        with contextlib.suppress(WorkerFailed):  # if it is the one that failed, it holds nothing any more
            turns.release("reference")
        raise
    turns.judge()
    return _result(turns, calls, len(groups) == 1, [*notes, *turns.notes], _grown(before, after))


def refused(reason: str) -> TimingResult:
    """A timing that came to no figures because of what the program did."""
    return TimingResult(
        reference_ms=0.0, previous_ms=0.0, program_ms=0.0, saving_ms=0.0, saving_low_ms=0.0, saving_high_ms=0.0, samples=0,
        refused=(reason,),
    )  # fmt: skip


def parted(timings: Sequence[TimingResult]) -> bool:
    """Whether a winner's two timings in new processes say so different things that a third has to decide."""
    return len(timings) == 2 and _apart(timings)


def _apart(timings: Sequence[TimingResult]) -> bool:
    ratios = [timing.ratio for timing in timings]
    return max(ratios) > _CONFIRMED * min(ratios)


def confirmed(timings: Sequence[TimingResult]) -> TimingResult:
    """Timings of one program, each in new processes: of two the slower figures count, of three the middle ones; a note says so.

    Machines are busy at times, so that they differ is no reason to refuse; nobody gains by being quick in one of them alone.
    """
    if len(timings) == 1:
        return timings[0]
    middle = sorted(timings, key=lambda timing: timing.ratio)[(len(timings) - 1) // 2]
    ratios = ", then ".join(f"{timing.ratio:.3f}" for timing in timings)
    told = f"timed {'twice' if len(timings) == 2 else '3 times'}: ratio {ratios}"
    if _apart(timings):
        why = "the machine is busy, or the program's time varies from process to process"
        told = f"limited: {told}; the {'slower' if len(timings) == 2 else 'middle one'} counts: {why}"
    reasons = tuple(dict.fromkeys(reason for timing in timings for reason in timing.refused))
    notes = tuple(dict.fromkeys((*(note for timing in timings for note in timing.notes), told)))
    return middle.model_copy(update={"refused": reasons, "notes": notes})


def quick_core() -> int:
    """Of the cores that this process may use, the one that counts fastest at this moment: others may be shared or asleep."""
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
    parted = clock_agreement.reasons(program, reference)
    others = (*turns.wrong, *turns.tampered, *grown)
    fresh = any(clock.varies() for clock in (reference, previous, program))  # then theirs are compared with theirs
    now = [inside + hidden for inside in program.counted(fresh=fresh)]
    before = now if previous is program else previous.counted(fresh=fresh)
    if program.varies():
        notes.append(
            f"limited: with inputs at new addresses a call takes {median(program.fresh):.4f} ms, and this counts; at known "
            f"ones {median(program.inside):.4f} ms"
        )
    if hidden:
        notes.append(f"{hidden:.4f} ms of device work outlast the call on its stream and are counted")
    saving = median_of([was - takes for was, takes in zip(before, now, strict=True)])
    ratio = median_of([was / takes for was, takes in zip(reference.counted(fresh=fresh), now, strict=True)])
    return TimingResult(
        reference_ms=median(reference.counted(fresh=fresh)),
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
        deliveries=turns.delivered,
        interleaved=together,
        refused=(*others, *parted),
        disputed=bool(parted) and not others,
        notes=tuple(notes),
    )


def _longest_row(call_ms: float, size: int) -> int:
    """Calls in a row: enough of them to measure from outside, within a time and the memory of the device."""
    return min(_LONGEST_ROW, int(_ROW_BYTES / max(size, 1)), max(_SHORTEST_ROW, int(_ROW_MS / max(call_ms, 1e-3))))


def _grown(before: int | None, after: int | None) -> list[str]:
    if before is None or after is None or after <= before:
        return []
    return [f"the program's process has {counted(after, 'thread')} after the timed calls and had {before} before them"]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0.0 <= value < 1e9


