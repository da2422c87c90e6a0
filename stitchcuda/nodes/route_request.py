"""Defines what the verifier passes to the routing rules, and what they return.

`nodes` may not import `graph`, so the rules are passed in when the graph is wired.

Where to look next: `graph/routes.py` (the rules), `nodes/verifier.py` and `nodes/advance.py` (call them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stitchcuda.engineers import RouteChoice
from stitchcuda.state import Attempt, Evidence, Review, Route, Settings, Task, Usage


class RouteVerdict(NamedTuple):
    """The route after an attempt, why in one sentence, the number of predictions missed since the last plan, and the number of
    the rule in `graph/routes.py` that decided."""

    route: Route
    reason: str
    missed: int
    rule: int


class KeepDecision(NamedTuple):
    """Whether an attempt's program becomes the session's program, and why in one sentence. `repairs`: although it is slower,
    since it repairs the program before it."""

    kept: bool
    reason: str
    repairs: bool = False


@dataclass(frozen=True)
class AttemptStanding:
    """What the rules need to know about the latest attempt at a task. Times in milliseconds."""

    built: bool
    correct: bool
    fingerprint: str                       # of the error; "" when correct
    predicted_ms: float                    # the predicted saving of the structure or task
    saving_ms: float | None                # measured against the preceding program; None where nothing is timed
    program_ms: float | None               # of a call
    earlier: tuple[Attempt, ...] = ()      # at this task since the last plan, oldest first
    structure: str = ""                    # that it followed: failures of the task's other structures do not count
    replanned: bool = False                # this task has already failed its way into a replan
    missed: int = 0                        # predictions missed since the last plan, before this attempt
    twin: str = ""                         # an earlier attempt that does the same, such as "#2"
    repaired: bool = False                 # a draft of this task has already gone back for a defect that its review named


class Stop(NamedTuple):
    """Why a session ends. `left_over`: only because this plan has no more worthwhile tasks, so another engineer may go on."""

    reason: str
    left_over: bool = False


class Rules(Protocol):
    """The rules; `graph/routes.py` is the only implementation."""

    UNUSABLE: int                          # consecutive steps without a usable reply after which a task is dropped

    def keep(self, evidence: Evidence, *, timed_here: bool, repair_ms: float = 0.0) -> KeepDecision: ...

    def verdict_route(self, standing: AttemptStanding) -> RouteVerdict: ...

    def needless_review(self, standing: AttemptStanding, verdict: RouteVerdict, *, ends: bool) -> str: ...

    def offer_routes(
        self, standing: AttemptStanding, verdict: RouteVerdict, *, kept: bool, goal_missed: str, ends: str
    ) -> RouteChoice: ...

    def follow_review(
        self, standing: AttemptStanding, verdict: RouteVerdict, review: Review, *, kept: bool, goal_missed: str = ""
    ) -> RouteVerdict: ...

    def stop(
        self,
        *,
        route: Route,
        left: Sequence[Task],
        runtime_ms: float,
        speedup: float | None,
        settings: Settings,
        attempts: int,
        usage: Usage,
        spent: str | None,
        repairs: bool = False,
    ) -> Stop | None: ...
