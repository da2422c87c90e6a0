"""Defines what an engineer is: who plans, writes and reviews programs, and the records that it is given.

An engineer gets everything as records and text; it runs no tool, opens no store and knows nothing of LangGraph.

Where to look next: `engineers/builtin.py` (the deterministic engineer), `engineers/chat_engineer.py` (chat models),
`engineers/selection.py` (chooses by the settings), `nodes/brief.py` (fills in these records).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions.present import PresentProgram
from stitchcuda.state import Attempt, Baseline, CallStep, Evidence, OutputError, Plan, Region, Review, Route, Settings, Task

Files = dict[str, str | bytes]
"""A program: path relative to its folder → text. Only `constants.safetensors` is bytes."""


@dataclass(frozen=True)
class Brief:
    """What a planner is given. `history` are all attempts of this session, oldest first."""

    settings: Settings
    reference: str                       # source text
    graph: OpGraph
    regions: tuple[Region, ...]
    baseline: Baseline
    history: tuple[Attempt, ...] = ()
    plans: tuple[Plan, ...] = ()         # earlier versions
    kept: tuple[str, ...] = ()           # ids of tasks that are in the program now
    finished: tuple[str, ...] = ()       # ids of tasks that may not be planned again
    notes: tuple[str, ...] = ()
    program: Files = field(default_factory=dict)  # the best verified program so far
    program_ms: float | None = None      # its measured time of a call
    speedup: float | None = None         # over eager, by the same timing
    profile: tuple[str, ...] = ()        # lines on where that time goes
    present: PresentProgram | None = None  # what is in it, by the cost model; None: the reference was not captured
    steps: tuple[CallStep, ...] = ()     # what its last check saw a call run, in order
    bounds: tuple[OutputError, ...] = () # what its outputs may differ by, with its own errors, by the last check
    carried: Mapping[str, int] = field(default_factory=dict)  # bits of the reference's convolutions that are known
    lessons: tuple[str, ...] = ()        # of earlier sessions, a line each
    defects: tuple[str, ...] = ()        # that reviews named in the program now, a line each
    suggestions: tuple[str, ...] = ()    # of reviews, that nobody followed
    docs: str = ""                       # documentation found for this plan
    cuda: str = ""                       # version of the toolkit that builds kernels
    skeletons: Mapping[str, str] = field(default_factory=dict)  # name → what it is, of those that run on the target
    about: str = ""                      # id of this plan: part of the ids of the model calls made for it


@dataclass(frozen=True)
class Looked:
    """What a look at a program found. `ok`: it builds, is correct, was timed."""

    ok: bool
    text: str


class Look(Protocol):
    """What a coder may look up before it writes. Texts are a sentence where there is nothing to show."""

    tools: tuple[str, ...]               # names of those methods that have something to show in this session
    gpu_s: float                         # seconds that they have used the GPU so far

    def compile(self, files: Files) -> Looked:
        """Compiles the program with these files for the session's target; returns the errors, or what each kernel needs."""

    def check(self, files: Files) -> Looked:
        """Judges the program with these files as a draft is judged: is it correct? It is no attempt."""

    def bench(self, kernel: str, files: Files) -> Looked:
        """Times a call of the program with these files, or the kernels whose names contain `kernel`, on the GPU; on the
        simulator, counts the bytes that a call moves."""

    def profile(self, kernel: str) -> str:
        """Lines of the profiles of the program and of the last draft that contain `kernel`, in any case."""

    def docs(self, query: str) -> Looked:
        """Searches the documentation of CUDA, cuBLASLt and cuDNN for a name or words."""


@dataclass(frozen=True)
class RouteChoice:
    """What a review of one attempt may propose. `follows` is the route that the session takes if the review proposes nothing
    else, `because` says why; `others` are the routes that it takes if they are proposed."""

    follows: Route
    because: str
    others: tuple[Route, ...]
    no_code: str = ""                    # why proposing another round of the task has no effect; "" if it has one
    ends: str = ""                       # why the session ends with this attempt, whatever is proposed; "" if it does not
    made: int = 0                        # attempts of the session, with this one
    left: int = 0


@dataclass(frozen=True)
class Assignment:
    """What a coder is given: one task, the verified program to start from, and the earlier attempts at this task."""

    brief: Brief
    plan: Plan
    task: Task
    ordinal: int                         # 0 for the first draft of this task
    program: Files                       # the verified program this draft starts from
    kept: tuple[str, ...]                # ids of the tasks that are in `program`
    last: Draft | None = None            # the previous draft of this task
    evidence: Evidence | None = None     # the tools' results for `last`
    review: Review | None = None         # the review of `last`
    evidences: tuple[Evidence, ...] = () # of all attempts in `brief.history`, where an agent works
    submitted: Files | None = None       # the last attempt's program, where an agent works and wrote it
    earlier: tuple[tuple[Attempt, Review], ...] = ()  # all attempts at this task, oldest first
    docs: str = ""                       # documentation found for this task
    about: str = ""                      # the attempt's id: part of the ids of the model calls made for it
    candidate: int = 0                   # 0, 1, ... of the drafts that are written at once
    candidates: int = 1                  # how many are written at once
    structure: str = ""                  # the name of the task's structure that this draft follows; "": the coder chooses
    look: Look | None = None
    started_from: Files | None = None    # a review is of all that changed since this program; None: since `program`
    choice: RouteChoice | None = None    # what its review may propose; None: it is not to be reviewed

    @property
    def remaining(self) -> tuple[Task, ...]:
        """The tasks of the plan after this one."""
        names = [task.id for task in self.plan.tasks]
        return self.plan.tasks[names.index(self.task.id) + 1 :] if self.task.id in names else ()


@dataclass(frozen=True)
class Draft:
    """The files of a whole program. `exhausted`: why the engineer has nothing new to offer; `files` is then empty."""

    files: Files
    note: str = ""
    exhausted: str = ""
    engineer: str = ""                   # the model that wrote it, where several take turns


class Engineer(Protocol):
    """Planner, coder and verifier in one object. `write` may be called by several threads at once. Calls are synchronous. They
    may raise `StitchError`, `ReplyPending` (a mailbox has no reply yet), `OutOfBudget` (the call was not made) and `Unusable`
    (the reply could not be used)."""

    name: str
    reads_docs: bool                     # whether documentation is searched before its plans, drafts and reviews
    reads_profiles: bool                 # whether each attempt is profiled; a session's final program always is

    def plan(self, brief: Brief) -> Plan: ...

    def write(self, assignment: Assignment) -> Draft: ...

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review: ...
