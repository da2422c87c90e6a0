"""The engineer protocol: whoever plays planner, coder and verifier. Knows nothing of langgraph and never runs a tool.

Implementations: `builtin` (deterministic, over `fusion/`) and `llm` (a chat model; prompts in `prompts/`). `engineer_for`
chooses. A mailbox without a reply raises `errors.ReplyPending`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stitchcuda.fusion.graph import OpGraph
from stitchcuda.state import Attempt, Baseline, Evidence, Plan, Region, Review, Settings, Task, Usage

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
    notes: tuple[str, ...] = ()


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
    docs: str = ""                       # documentation found for this task


@dataclass(frozen=True)
class Draft:
    """The files of a whole program. `exhausted` says that the engineer has nothing new to offer, and why."""

    files: Files
    note: str = ""
    exhausted: str = ""


class Engineer(Protocol):
    """Planner, coder and verifier behind one door. Calls are synchronous and may raise `StitchError`."""

    name: str
    reads_profiles: bool                 # attempts are profiled for who does; what a session ends with always is

    def plan(self, brief: Brief) -> Plan: ...

    def write(self, assignment: Assignment) -> Draft: ...

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review: ...

    def spent(self) -> Usage:
        """Total usage of this engineer object since it was made."""
        ...
