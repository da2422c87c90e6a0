"""Defines the records of everything that a report shows of a session. Nothing is read or decided here.

Where to look next: `report/gathering.py`, `report/report_facts.py` (who fills them in), `report/page.py` (who shows them).
"""

from __future__ import annotations

from typing import Literal

from stitchcuda.report.diffs import FileChange
from stitchcuda.state import Attempt, Baseline, DeviceFacts, Digest, Evidence, Plan, Record, Result, Review, Task, Tier
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.reference.baseline_times import BaselineTimes


class Card(Record):
    """The result of a session, in the words of its summary."""

    session: str
    reference: str                         # its file's name
    created: str = ""
    status: str = "unknown"                # state.Status; "unknown" if it cannot be read
    headline: str = ""
    ratio: str = ""                        # "6.23×", or "predicted 1.34×"; "" if nothing is claimed
    speedup: float | None = None           # for the tiers measured and timed only
    interval: str = ""                     # 95 % interval of the speed-up
    predicted_ms: float | None = None      # time of a call of the program, by the cost model
    terms: str = ""                        # precision and policy, which are shown beside every speed-up
    gain: str = ""                         # the speed-up or prediction in a sentence, with what it rests on
    tier: Tier | None = None
    facts: tuple[tuple[str, str], ...] = ()  # pairs of label and text
    settings: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()          # "TOOL: why" for each tool that did not look
    next: tuple[str, ...] = ()             # commands that a user may want to run
    notes: tuple[str, ...] = ()


class AttemptFindings(Record):
    """One attempt with the artefacts of it that can be read."""

    number: int                            # from 1, in the order of the record
    attempt: Attempt
    title: str                             # title of its task
    result: Result
    evidence: Evidence | None = None
    review: Review | None = None
    files: tuple[FileChange, ...] = ()     # changes against the program that it started from
    predicted_ms: float | None = None      # time of the best program after it, by the cost model
    lost: tuple[str, ...] = ()             # a sentence for each artefact that cannot be read


class TaskFate(Record):
    """One task of any of the plans, and what became of it."""

    task: Task
    claimed: bool = False                  # its predicted saving is a claim of the chat model that planned it
    fate: Literal["kept", "not kept", "open"]
    attempts: tuple[int, ...] = ()         # numbers of its attempts
    measured_ms: float | None = None       # time saved by its kept attempts, each timed against the program before it
    low_ms: float | None = None            # 95 % interval; those of several attempts are added up
    high_ms: float | None = None
    floor: str = ""                        # speed of light of its regions, and the resource that bounds it


class TimeProfile(Record):
    """Where the time of one program goes, or `why` there is no profile."""

    title: str                             # "reference", "attempt N: TASK" or "final program"
    profile: SystemProfile | None = None
    lines: tuple[str, ...] = ()            # the profile's summary, which is stored with the evidence
    why: str = ""


class Counters(Record):
    """The hardware counters of one program's kernels, or `why` there are none."""

    title: str = ""
    counted: CountedKernels | None = None
    why: str = ""


class Findings(Record):
    """Everything that a report shows."""

    card: Card
    device: DeviceFacts | None = None
    baseline: Baseline | None = None
    baselines: BaselineTimes | None = None
    final: Evidence | None = None
    tasks: tuple[TaskFate, ...] = ()
    attempts: tuple[AttemptFindings, ...] = ()
    seen: tuple[TimeProfile, ...] = ()     # profiles of the reference, of kept attempts and of the final program
    counters: Counters = Counters()
    plans: tuple[Plan, ...] = ()
    first: Digest | None = None            # the program with nothing stitched
    program: Digest | None = None          # the best program
    citations: tuple[tuple[str, tuple[int, ...]], ...] = ()  # each with the numbers of the attempts whose reviews cite it
    lost: tuple[str, ...] = ()             # a sentence for each thing that cannot be shown

    @property
    def timed(self) -> bool:
        """Whether any attempt was timed; if not, every time is a prediction."""
        return any(attempt.attempt.program_ms is not None for attempt in self.attempts)
