"""What the verifier asks of the routing rules, and what it tells them. The rules themselves are `graph/routes.py`.

The engineer proposes a route, the rules dispose; they stand a floor above and are handed in when the graph is wired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stitchcuda.state import Attempt, Evidence, Route, Settings, Task, Usage


class RouteVerdict(NamedTuple):
    """Where an attempt leads, why in one sentence, and the predictions missed since the last plan."""

    route: Route
    reason: str
    missed: int


class KeepDecision(NamedTuple):
    """Whether an attempt's program becomes the session's program, and why in one sentence."""

    kept: bool
    reason: str


@dataclass(frozen=True)
class AttemptStanding:
    """Where the latest attempt of a task stands. Times in milliseconds."""

    built: bool
    correct: bool
    fingerprint: str                       # of the error; "" when correct
    predicted_ms: float                    # the task's predicted saving
    saving_ms: float | None                # measured against the preceding program; None where nothing is timed
    program_ms: float | None               # of a call
    earlier: tuple[Attempt, ...] = ()      # at this task since the last plan, oldest first
    replanned: bool = False                # this task has already failed its way into a replan
    missed: int = 0                        # predictions missed since the last plan, before this attempt
    twin: str = ""                         # an earlier attempt that does the same, such as "#2"


class Stop(NamedTuple):
    """Why a session ends. `left_over`: for want of worthwhile tasks in this plan, so another engineer may know more."""

    reason: str
    left_over: bool = False


class Rules(Protocol):
    """See `graph/routes.py`, which is the one implementation."""

    UNUSABLE: int                          # steps without a usable reply, after which a task is dropped

    def keep(self, evidence: Evidence, *, timed_here: bool) -> KeepDecision: ...

    def verdict_route(self, standing: AttemptStanding) -> RouteVerdict: ...

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
    ) -> Stop | None: ...
