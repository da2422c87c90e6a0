"""Leaves each of a program's kernels out in turn: its outputs must then be wrong. The judge's side.

A kernel that runs and whose absence changes nothing was put there to be counted. Each is skipped in a call on inputs other than
those of the call before, so that what an earlier call left in a buffer is the wrong answer; a kernel that still seems idle is
left out of a new worker from its first call on, before it is called so. Kernels are skipped in a secret order, those that hold
most of the work before the others, and within a time that grows with their number; what is left when it is over is left out
all at once, which tells whether all of it is idle. A kernel that did not run is unused, which is no offence.
Where to look next: `verify/program/kernel_switches.py` (the worker's side), `tools/build/masks.py` (the build that a GPU
needs), `verify/program/trial.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Literal

from stitchcuda.counts import counted
from stitchcuda.state import Record
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.secret_inputs import InputSet, SecretInputs
from stitchcuda.verify.integrity.byte_traffic import HARMLESS
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Start

SECONDS = 20.0                             # for all kernels of a program together
EACH_S, MOST_S = 2.0, 120.0                # more of it for each kernel, and never more than that
_HEAVY = 0.95                              # of the work: the kernels that hold it come first

Status = Literal["needed", "unused", "idle", "undecided"]


class KernelNeed(Record):
    """What leaving one kernel out showed."""

    name: str
    status: Status
    launches: int = 0                      # in one call
    why: str = ""


class AblationResult(Record):
    """All kernels of one program."""

    kernels: tuple[KernelNeed, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()  # launches in one call by switch, for `origin.borrowed`
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    died: str = ""                         # what was wrong before any kernel was left out: a reason to refuse

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the program is refused."""
        return (*((self.died,) if self.died else ()), *(
            f"the kernel {kernel.name} changes nothing: it is launched {counted(kernel.launches, 'time')} in a call and the "
            "outputs "
            "are right without it; remove it, or let it do work that the program needs"
            for kernel in self.kernels
            if kernel.status == "idle"
        ))


def examine(
    start: Start,
    exam: SecretInputs,
    count: int,
    *,
    known: Iterable[str] = (),
    work: Mapping[str, int] | None = None,
    seconds: float | None = None,
    call_s: float = 10.0,
) -> AblationResult:
    """Skip every kernel that a call launches, on the first `count` input sets of the exam (two at least, better three).

    `known` are kernels that the builder made, by switch; those never launched are reported as unused. `work` says how much
    each does, by full name in a trace; else launches do. `seconds`: other than a program's kernels get. Never raises for what a
    program does: a failure of the unskipped program becomes a note, one of a skipped program says that the kernel was needed.
    """
    started = time.monotonic()
    sets = [inputs for inputs in exam.sets[:count] if not inputs.lenient]  # a lenient set allows errors
    if len(sets) < 2:
        return AblationResult(notes=("kernels were not left out in turn: that takes two input sets",))
    with ExitStack() as stack:
        run = _Run(start, stack, sets, exam.bounds(count), call_s)
        try:
            counted, wrong = run.warm()
        except WorkerFailed as failure:
            if failure.kind != "error" or run.simulated:  # it ran before: a failure here is the program's doing
                died = f"built so that kernels can be left out, {failure}"
                return AblationResult(seconds=time.monotonic() - started, died=died)
            return AblationResult(seconds=time.monotonic() - started, notes=(f"kernels were not left out in turn: {failure}",))
        if wrong and run.simulated:        # there the build is the same, and only the order of blocks and threads is not
            died = f"with blocks and threads in another order, {wrong[0]}"
            return AblationResult(seconds=time.monotonic() - started, died=died)
        if wrong:
            note = f"kernels were not left out in turn: the build with switches answers differently ({wrong[0]})"
            return AblationResult(counted=tuple(counted.items()), seconds=time.monotonic() - started, notes=(note,))
        since = time.monotonic()           # loading and building are not the kernels' fault
        launched = [name for name, times in counted.items() if times]
        unused = [name for name in dict.fromkeys((*counted, *known)) if not counted.get(name)]
        found: dict[str, tuple[Status, str]] = dict.fromkeys(unused, ("unused", "not launched for these inputs"))
        suspects: list[str] = []
        late: list[str] = []
        given = min(MOST_S, SECONDS + EACH_S * len(launched)) if seconds is None else seconds
        for name in _ordered({name: _work(name, work) if work else counted[name] for name in launched}):
            if time.monotonic() - since > given:
                late.append(name)
                continue
            try:
                right = run.right_without([name], cold=False)
            except WorkerFailed as failure:
                found[name] = ("undecided", str(failure))
                continue
            if right:
                suspects.append(name)
            else:
                found[name] = ("needed", "")
        found |= run.confirm(suspects)
        found |= run.together(late, f"{len(launched)} kernels take more than {given:.0f} s to leave out in turn")
    return AblationResult(
        kernels=tuple(
            KernelNeed(name=_plain(name), status=status, launches=counted.get(name, 0), why=why)
            for name, (status, why) in sorted(found.items())
        ),
        counted=tuple(counted.items()),
        seconds=time.monotonic() - started,
        notes=_notes(found),
    )


class _Run:
    """The worker that is asked now, and which input sets it saw last."""

    def __init__(
        self, start: Start, stack: ExitStack, sets: list[InputSet], bounds: dict[str, Bound], call_s: float
    ) -> None:
        self._start = start
        self._stack = stack
        self._sets = sets
        self._bounds = bounds
        self._call_s = call_s
        self._seat: LoadedProgram | None = None
        self._last: InputSet | None = None

    def warm(self) -> tuple[dict[str, int], list[str]]:
        """(launches by kernel of a second call, what is wrong with its outputs): a first call may build, warm up or record."""
        self._open()
        self._skip([])
        self._right()
        self._skip([])
        wrong = self._reasons(self._next())
        return self._skip([]), wrong

    @property
    def simulated(self) -> bool:
        return self._seat is not None and self._seat.trial.tier == "simulated"

    def right_without(self, kernels: list[str], *, cold: bool) -> bool:
        """Whether the outputs stay right. A worker that dies of it is replaced; only the replacement's failure is raised."""
        if self._seat is None or cold:
            self._open()
        if cold:
            cold = self._can_skip(kernels)
        if not cold and self._last is None:
            self._skip([])
            self._right()
        self._skip(kernels)
        try:
            if not all(self._right() for _ in HARMLESS):   # each time on other inputs, in memory that holds other things
                return False
        except WorkerFailed:
            self._close()
            return False
        return True

    def confirm(self, suspects: list[str]) -> dict[str, tuple[Status, str]]:
        """New workers that never ran the suspects: all of them left out at once, then one by one where that matters."""
        idle: tuple[Status, str] = ("idle", "the outputs are right without it")
        needed: tuple[Status, str] = ("needed", "only from the first call on")
        if not suspects:
            return {}
        try:
            if self.right_without(suspects, cold=True):
                return dict.fromkeys(suspects, idle)
            if len(suspects) == 1:
                return {suspects[0]: needed}
            return {name: idle if self.right_without([name], cold=True) else needed for name in suspects}
        except WorkerFailed as failure:
            return dict.fromkeys(suspects, ("undecided", str(failure)))

    def together(self, late: list[str], why: str) -> dict[str, tuple[Status, str]]:
        """Kernels for which no time is left, all of them out at once: they are idle, or some of them are needed."""
        undecided: tuple[Status, str] = ("undecided", why)
        try:
            idle = bool(late) and self.right_without(late, cold=False) and self.right_without(late, cold=True)
        except WorkerFailed:
            idle = False
        return dict.fromkeys(late, ("idle", "the outputs are right without it") if idle else undecided)

    def _right(self) -> bool:
        return not self._reasons(self._next())

    def _reasons(self, given: InputSet) -> list[str]:
        assert self._seat is not None
        self._last = given
        trial = self._seat.trial
        return trial.compare(given, trial.call(given, same_addresses=False), self._bounds)[1]

    def _next(self) -> InputSet:
        """Another set than the last one, unforeseeable where there are more than two."""
        return random.SystemRandom().choice([inputs for inputs in self._sets if inputs is not self._last])

    def _skip(self, kernels: list[str]) -> dict[str, int]:
        assert self._seat is not None
        said = self._seat.worker.ask("skip", seconds=self._call_s, doing="switching kernels", kernels=kernels)
        launches = said.get("launches")
        told = launches.items() if isinstance(launches, dict) else ()
        return {name: times for name, times in told if type(times) is int and times >= 0}

    def _can_skip(self, kernels: list[str]) -> bool:
        """False where the program loads its kernels in its first call only."""
        try:
            self._skip(kernels)
        except WorkerFailed as failure:
            if failure.kind != "error":
                raise
            return False
        return True

    def _open(self) -> None:
        self._close()
        self._seat = self._stack.enter_context(self._start())

    def _close(self) -> None:
        self._stack.close()                # ends the worker; what it left behind is gone with it
        self._seat = self._last = None


def _ordered(work: Mapping[str, int]) -> list[str]:
    """A secret order in which the few that hold most of the work come before all others."""
    drawn = random.SystemRandom().sample(list(work), len(work))
    heavy, held = set(), 0
    for name in sorted(drawn, key=lambda name: -work[name]):
        if held < _HEAVY * sum(work.values()):
            heavy.add(name)
        held += work[name]
    return sorted(drawn, key=lambda name: name not in heavy)


def _work(name: str, work: Mapping[str, int]) -> int:
    return sum(done for full, done in work.items() if base_name(full) == base(name))


def base(name: str) -> str:
    """What a switch's kernel is called in a trace: without its library, template arguments, and number among its overloads."""
    return _plain(name).partition("<")[0].partition("#")[0]


def _plain(name: str) -> str:
    return name.partition(":")[2] or name


def _notes(found: dict[str, tuple[Status, str]]) -> tuple[str, ...]:
    notes = []
    for status, what in (("unused", "never launched"), ("undecided", "not left out in turn")):
        names = sorted(_plain(name) for name, (outcome, _) in found.items() if outcome == status)
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            notes.append(f"kernels {what}: {', '.join(names[:6])}{more}")
    return tuple(notes)
