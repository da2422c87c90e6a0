"""Finds out whether each of a program's kernels is needed: leaves it out of a call, whose outputs must then be wrong.

A kernel that runs and whose absence changes nothing was put there to be counted as own work: the program is refused. Each call
gets other inputs than the one before, so that what an earlier call left in a buffer is wrong. A kernel may matter for few rows
only, such as those that are masked everywhere. So it counts as idle only if the outputs are right without it on every input
set, and again in a new worker that never ran it, there also on new sets of rare values. Kernels are tried in a secret order,
those that hold 95 % of the work first, for `SECONDS` plus `EACH_S` per kernel; the rest is then left out all at once, which
shows only whether all of it is idle. A kernel that was not launched is unused, which is allowed.
Where to look next: `verify/program/kernel_switches.py` (the worker's side), `tools/build/masks.py` (the build for it on a
GPU), `verify/ablation/own_work.py` (what follows).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Literal

from stitchcuda.counts import counted
from stitchcuda.state import Record
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, draw_more_rare
from stitchcuda.verify.integrity.byte_traffic import HARMLESS
from stitchcuda.verify.messages.program_requests import SkipKernels
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Start

SECONDS = 20.0                             # for all kernels of a program together ...
EACH_S, MOST_S = 2.0, 120.0                # ... and so much more for each kernel, up to this in all
_SKIP_S = 10.0                             # for a worker to answer which kernels are left out from now on
_HEAVY = 0.95                              # share of the work whose kernels are tried first

Status = Literal["needed", "unused", "idle", "undecided"]


class KernelNeed(Record):
    """What leaving one kernel out showed: outputs were wrong ("needed") or right ("idle"); "unused": it was not launched."""

    name: str
    status: Status
    launches: int = 0                      # in one call
    why: str = ""


class AblationResult(Record):
    """What leaving out the kernels of one program showed."""

    kernels: tuple[KernelNeed, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()  # (kernel, launches in one call), for `device_time.find_borrowed_names`
    notes: tuple[str, ...] = ()
    died: str = ""                         # a failure before any kernel was left out, a reason to refuse

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the program is refused."""
        return (*((self.died,) if self.died else ()), *(
            f"the kernel {kernel.name} changes nothing: it is launched {counted(kernel.launches, 'time')} in a call and the "
            "outputs are right without it; remove it, or let it do work that the program needs"
            for kernel in self.kernels
            if kernel.status == "idle"
        ))


def leave_out_kernels(
    start: Start,
    secret_inputs: SecretInputs,
    count: int,
    *,
    work: Mapping[str, int] | None = None,
    seconds: float | None = None,
) -> AblationResult:
    """Leaves out every kernel that a call launches, on the first `count` input sets (at least two, better three).

    `work`: nanoseconds of each kernel by its full name in a trace; without it, launches stand for work. `seconds`: a time limit
    in place of the usual one. Never raises for what a program does: a failure before a kernel is left out becomes a note or
    `died`, one after it shows that the kernel was needed, and tampering is `died` at any time.
    """
    try:
        return _leave_out(start, secret_inputs, count, work, seconds)
    except Tampering as found:
        return AblationResult(died=str(found))


def _leave_out(
    start: Start, secret_inputs: SecretInputs, count: int, work: Mapping[str, int] | None, seconds: float | None
) -> AblationResult:
    sets = [inputs for inputs in secret_inputs.sets[:count] if not inputs.lenient]  # a lenient set allows errors
    if len(sets) < 2:
        return AblationResult(notes=("kernels were not left out in turn: that takes two input sets",))
    with ExitStack() as stack:
        run = _Ablation(start, stack, sets, secret_inputs, count)
        try:
            counted, wrong = run.warm_up()
        except WorkerFailed as failure:
            if failure.kind != "error" or run.simulated:  # it ran before, so the program is to blame
                return AblationResult(died=f"built so that kernels can be left out, {failure}")
            return AblationResult(notes=(f"kernels were not left out in turn: {failure}",))
        if wrong and run.simulated:        # there the build is the same; only blocks and threads run in another order
            return AblationResult(died=f"with blocks and threads in another order, {wrong[0]}")
        if wrong:
            note = f"kernels were not left out in turn: the build with switches answers differently ({wrong[0]})"
            return AblationResult(counted=tuple(counted.items()), notes=(note,))
        since = time.monotonic()           # loading and building do not count
        launched = [name for name, times in counted.items() if times]
        unused = [name for name in counted if not counted[name]]
        found: dict[str, tuple[Status, str]] = dict.fromkeys(unused, ("unused", "not launched for these inputs"))
        suspects: list[str] = []
        late: list[str] = []               # kernels for which no time is left
        given = min(MOST_S, SECONDS + EACH_S * len(launched)) if seconds is None else seconds
        for name in _secret_order({name: _kernel_work(name, work) if work else counted[name] for name in launched}):
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
        found |= run.leave_out_together(late, f"{len(launched)} kernels take more than {given:.0f} s to leave out in turn")
    return AblationResult(
        kernels=tuple(
            KernelNeed(name=_without_library(name), status=status, launches=counted.get(name, 0), why=why)
            for name, (status, why) in sorted(found.items())
        ),
        counted=tuple(counted.items()),
        notes=_notes(found),
    )


class Tampering(Exception):
    """The program's worker was caught tampering while kernels were left out."""


class _Ablation:
    """The worker that is asked now, replaced when it dies, and the input set of its last call."""

    def __init__(
        self, start: Start, stack: ExitStack, sets: list[InputSet], secret_inputs: SecretInputs, count: int
    ) -> None:  # fmt: skip
        self._start = start
        self._stack = stack
        self._sets = sets
        self._secret_inputs, self._count = secret_inputs, count
        self._bounds = secret_inputs.bounds(count)
        self._loaded: LoadedProgram | None = None
        self._last: InputSet | None = None

    def warm_up(self) -> tuple[dict[str, int], list[str]]:
        """Calls twice, since a first call may build or record. Returns (launches by kernel in the second, why it is wrong)."""
        self._open()
        self._skip([])
        self._reasons(self._next())
        self._skip([])
        wrong = self._reasons(self._next())
        return self._skip([]), wrong

    @property
    def simulated(self) -> bool:
        return self._loaded is not None and self._loaded.trial.tier == "simulated"

    def right_without(self, kernels: list[str], *, cold: bool) -> bool:
        """Whether the outputs stay right without `kernels` on all input sets. `cold`: in a new worker that never ran them, and
        on rare values too. A worker that dies is replaced before the next call; raises `WorkerFailed` if the replacement
        fails."""
        if self._loaded is None or cold:
            self._open()
        if self._last is None and not (cold and self._can_skip(kernels)):
            self._skip([])
            self._reasons(self._next())
        self._skip(kernels)
        try:
            return all(not self._reasons(given) for given in self._in_turn()) and not (cold and self._matter_rarely(kernels))
        except WorkerFailed as failure:
            self._close()
            if failure.kind == "tampering":
                raise Tampering(f"while kernels were left out, {failure}") from failure
            return False

    def _matter_rarely(self, kernels: list[str]) -> bool:
        """Whether the outputs are wrong without `kernels` on new sets of rare values, and right with them."""
        assert self._loaded is not None
        for given in draw_more_rare(self._loaded.trial.ask_reference, self._secret_inputs):
            bounds = self._secret_inputs.bounds_of([*self._secret_inputs.sets[: self._count], given])
            if self._reasons(given, bounds):
                self._skip([])
                right = not self._reasons(given, bounds)
                self._skip(kernels)
                if right:
                    return True
            del given                      # it may be gigabytes
        return False

    def confirm(self, suspects: list[str]) -> dict[str, tuple[Status, str]]:
        """Tries the suspects in new workers that never ran them: all at once, then one by one if the outputs are wrong."""
        idle: tuple[Status, str] = ("idle", "the outputs are right without it")
        needed: tuple[Status, str] = ("needed", "only from the first call on, or for rare values")
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

    def leave_out_together(self, late: list[str], why: str) -> dict[str, tuple[Status, str]]:
        """Leaves out all kernels at once for which no time is left: all are idle, or it stays undecided."""
        undecided: tuple[Status, str] = ("undecided", why)
        try:
            idle = bool(late) and self.right_without(late, cold=False) and self.right_without(late, cold=True)
        except WorkerFailed:
            idle = False
        return dict.fromkeys(late, ("idle", "the outputs are right without it") if idle else undecided)

    def _reasons(self, given: InputSet, bounds: dict[str, Bound] | None = None) -> list[str]:
        assert self._loaded is not None
        self._last = given
        trial = self._loaded.trial
        return trial.compare(given, trial.call(given, same_addresses=False), bounds or self._bounds)[1]

    def _in_turn(self) -> Iterator[InputSet]:
        """All sets in a secret order, none after itself: at least as many as there are contents of memory, which change with
        each call."""
        order = random.SystemRandom().sample(self._sets, len(self._sets))
        if order[0] is self._last:
            order.append(order.pop(0))
        return itertools.islice(itertools.cycle(order), max(len(HARMLESS), len(order)))

    def _next(self) -> InputSet:
        """Returns another set than the last one, by chance if there are more than two."""
        return random.SystemRandom().choice([inputs for inputs in self._sets if inputs is not self._last])

    def _skip(self, kernels: list[str]) -> dict[str, int]:
        """Leaves out these kernels, and no others, from now on. Returns the launches by kernel since the last such request."""
        assert self._loaded is not None
        request = SkipKernels(kernels=kernels)
        return self._loaded.worker.ask(request, seconds=_SKIP_S, doing="switching kernels").launches

    def _can_skip(self, kernels: list[str]) -> bool:
        """Whether kernels can be left out before the first call: not if the program loads them in that call."""
        try:
            self._skip(kernels)
        except WorkerFailed as failure:
            if failure.kind != "error":
                raise
            return False
        return True

    def _open(self) -> None:
        self._close()
        self._loaded = self._stack.enter_context(self._start())

    def _close(self) -> None:
        self._stack.close()                # ends the worker
        self._loaded = self._last = None


def _secret_order(work: Mapping[str, int]) -> list[str]:
    """Returns the kernels in a secret order, in which the few that hold most of the work come first."""
    drawn = random.SystemRandom().sample(list(work), len(work))
    heavy, held = set(), 0
    for name in sorted(drawn, key=lambda name: -work[name]):
        if held < _HEAVY * sum(work.values()):
            heavy.add(name)
        held += work[name]
    return sorted(drawn, key=lambda name: name not in heavy)


def _kernel_work(name: str, work: Mapping[str, int]) -> int:
    return sum(done for full, done in work.items() if base_name(full) == traced_name(name))


def traced_name(name: str) -> str:
    """Returns a kernel's name as a trace has it: "scale" for "library:scale<float>#2", without its number among overloads."""
    return _without_library(name).partition("<")[0].partition("#")[0]


def _without_library(name: str) -> str:
    return name.partition(":")[2] or name


def _notes(found: dict[str, tuple[Status, str]]) -> tuple[str, ...]:
    notes = []
    for status, what in (("unused", "not launched for these inputs"), ("undecided", "not left out in turn")):
        names = sorted(_without_library(name) for name, (outcome, _) in found.items() if outcome == status)
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            notes.append(f"kernels {what}: {', '.join(names[:6])}{more}")
    return tuple(notes)
