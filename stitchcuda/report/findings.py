"""The records of everything that a report shows of a session.

Nothing is read or decided here.

Where to look next: `report/gathering.py` (who fills them in), `report/report_facts.py` (the card's words), `report/page.py`
(who shows them).
"""

from __future__ import annotations

from typing import Literal

from stitchcuda.report.diffs import FileChange
from stitchcuda.state import Attempt, Baseline, DeviceFacts, Digest, Evidence, Plan, Record, Result, Review, Task, Tier
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.reference.baselines import BaselineTimes


class Card(Record):
    """What a session came to, in the words of its summary."""

    session: str
    reference: str                         # its file's name
    created: str = ""
    status: str = "unknown"                # state.Status; unknown where nothing says
    headline: str = ""
    ratio: str = ""                        # "6.23×", or "predicted 1.34×"; "" where none is claimed
    speedup: float | None = None           # of tiers measured and timed
    interval: str = ""                     # of a speed-up
    predicted_ms: float | None = None      # of a call of the program, by the cost model
    terms: str = ""                        # precision and policy, which belong beside every speed-up
    gain: str = ""                         # the same in a sentence, with what it rests on
    tier: Tier | None = None
    facts: tuple[tuple[str, str], ...] = ()  # a label and a text each
    settings: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()          # tools that did not look, and why
    next: tuple[str, ...] = ()             # commands to go on with
    notes: tuple[str, ...] = ()


class AttemptFindings(Record):
    """One attempt with what can be read of it."""

    number: int                            # from 1, in the order of the record
    attempt: Attempt
    title: str                             # of its task
    result: Result
    evidence: Evidence | None = None
    review: Review | None = None
    files: tuple[FileChange, ...] = ()     # against the program that it started from
    predicted_ms: float | None = None      # of the best program after it, by the cost model
    lost: tuple[str, ...] = ()


class TaskFate(Record):
    """One task of any of the plans."""

    task: Task
    claimed: bool = False                  # its predicted saving is not the cost model's but the claim of whoever planned it
    fate: Literal["kept", "not kept", "open"]
    attempts: tuple[int, ...] = ()         # their numbers
    measured_ms: float | None = None       # saved by its kept attempts, timed against the program before each
    low_ms: float | None = None            # 95 % interval, those of several attempts added up
    high_ms: float | None = None
    floor: str = ""                        # speed of light of its regions, and what binds it


class TimeProfile(Record):
    """Where the time of one program goes, or why nobody knows."""

    title: str
    profile: SystemProfile | None = None
    lines: tuple[str, ...] = ()            # what the state keeps of it
    why: str = ""                          # there is no profile


class Counters(Record):
    """What hardware counters say of one program's kernels, or why nothing."""

    title: str = ""
    counted: CountedKernels | None = None
    why: str = ""


class Findings(Record):
    """A report's content."""

    card: Card
    device: DeviceFacts | None = None
    baseline: Baseline | None = None
    baselines: BaselineTimes | None = None
    final: Evidence | None = None
    tasks: tuple[TaskFate, ...] = ()
    attempts: tuple[AttemptFindings, ...] = ()
    seen: tuple[TimeProfile, ...] = ()            # the reference, programs that were kept, the last verification
    counters: Counters = Counters()
    plans: tuple[Plan, ...] = ()
    first: Digest | None = None            # the program with nothing stitched
    program: Digest | None = None          # the best one
    citations: tuple[tuple[str, tuple[int, ...]], ...] = ()  # with the numbers of the attempts whose reviews cite them
    lost: tuple[str, ...] = ()             # what cannot be shown, a sentence each

    @property
    def timed(self) -> bool:
        return any(attempt.attempt.program_ms is not None for attempt in self.attempts)
