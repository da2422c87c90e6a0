"""The engineer protocol: whoever plays planner, coder and verifier. Knows nothing of langgraph and never runs a tool.

Implementations: `builtin` (deterministic, over `fusion/`) and `llm` (chat models, asked through `engineers/metered_chat.py`;
prompts in `prompts/`). `engineers/selection.py` chooses. A mailbox without a reply raises `errors.ReplyPending`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.state import Attempt, Baseline, Evidence, Plan, Region, Review, Settings, Task

Files = dict[str, str | bytes]
"""A program's files: path relative to the program's folder → text. Only `constants.safetensors` is bytes."""


@dataclass(frozen=True)
class Brief:
    """What a planner sees. `history` is the whole record of this session, oldest first."""

    settings: Settings
    reference: str                       # source text
    graph: OpGraph
    regions: tuple[Region, ...]
    baseline: Baseline
    history: tuple[Attempt, ...] = ()
    plans: tuple[Plan, ...] = ()         # earlier versions
    kept: tuple[str, ...] = ()           # ids of tasks that are in the program now
    finished: tuple[str, ...] = ()       # ids of tasks that nobody may plan again
    notes: tuple[str, ...] = ()
    program: Files = field(default_factory=dict)  # as it stands
    program_ms: float | None = None      # its measured time of a call
    profile: tuple[str, ...] = ()        # lines on where that goes
    lessons: tuple[str, ...] = ()        # of earlier sessions, a line each
    docs: str = ""                       # documentation found for this plan
    about: str = ""                      # names this plan among a session's calls


class Look(Protocol):
    """What a coder may look at before it writes. Each gives text, a sentence where there is nothing to see."""

    def compile(self, files: Files) -> str:
        """The compiler's word on the program with these files."""
        ...

    def profile(self, kernel: str) -> str:
        """What the profilers said of the kernels whose name contains this, in the program and the last draft."""
        ...

    def docs(self, query: str) -> str:
        """Documentation of CUDA, cuBLASLt and cuDNN."""
        ...


@dataclass(frozen=True)
class Assignment:
    """What a coder sees: one task, the program as it stands, and what happened before on this task."""

    brief: Brief
    plan: Plan
    task: Task
    ordinal: int                         # 0 for the first draft of this task
    program: Files                       # the verified program this draft starts from
    kept: tuple[str, ...]                # ids of the tasks that are in that program
    last: Draft | None = None            # the previous draft of this task
    evidence: Evidence | None = None     # what the tools said of it
    review: Review | None = None
    earlier: tuple[tuple[Attempt, Review], ...] = ()  # all at this task, oldest first
    docs: str = ""                       # documentation found for this task
    about: str = ""                      # the attempt's id: names it among a session's calls
    candidate: int = 0                   # 0, 1, ... of the drafts that are written at once
    candidates: int = 1                  # how many are written at once
    look: Look | None = None


@dataclass(frozen=True)
class Draft:
    """The files of a whole program. `exhausted` says that the engineer has nothing new to offer, and why."""

    files: Files
    note: str = ""
    exhausted: str = ""
    engineer: str = ""                   # who wrote it, where several take turns


class Engineer(Protocol):
    """Planner, coder and verifier behind one door. `write` may be called by several threads at once.

    Calls are synchronous and may raise `StitchError`, `ReplyPending`, `OutOfBudget` and `Unusable`.
    """

    name: str
    reads_docs: bool                     # documentation is looked up for who does
    reads_profiles: bool                 # attempts are profiled for who does; what a session ends with always is

    def plan(self, brief: Brief) -> Plan: ...

    def write(self, assignment: Assignment) -> Draft: ...

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review: ...
