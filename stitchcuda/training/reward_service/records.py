"""Records of the reward service: what a client asks, and what it is answered. The OpenAPI schema is made from these.

Where to look next: `training/reward_service/verdicts.py` (who fills in an answer).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, field_validator

from stitchcuda.state import Record, Tier
from stitchcuda.verify.api import Verdict

State = Literal["queued", "running", "ok", "candidate_error", "infra_error"]
"""Of a job. "ok": the program is accepted. "candidate_error": it is not. "infra_error": nothing is known of it, so no score."""
Kind = Literal["", "no_program", "build", "run", "wrong", "refused", "not_judged", "task", "unavailable"]
"""Why a job did not end in "ok". Of candidates: "no_program": no text with class ModelNew; "build"; "run": it raised, crashed
or used too much; "wrong": an output is; "refused": what it is made of (no kernel of its own, tampering, policy); "not_judged":
this device cannot run it. Of "infra_error": "task": its reference breaks; "unavailable": all tries failed."""
HALVES = re.compile("[\ud800-\udfff]")
UNFINISHED: tuple[State, ...] = ("queued", "running")


class HasValue(Protocol):
    """A reward that was given. `value` is None where `no_score` says why there is none; `parts` are what it was made of."""

    @property
    def value(self) -> float | None: ...
    @property
    def no_score(self) -> str: ...
    @property
    def parts(self) -> dict[str, float | str]: ...


RewardFunction = Callable[[Verdict], HasValue]
"""A pure function."""


class JobRequest(Record):
    """A program to judge."""

    task: str = Field(description="The name of one of the server's tasks, or the text of a reference.")
    program: str | dict[str, str] = Field(description="One Python file's text, or texts by path (model_new.py, kernels/…).")
    reward: str = Field(alias="schema", description="Name and version of the reward, such as accepted/1.")
    idempotency_key: Annotated[str, Field(pattern=r"^[\x21-\x7e]{0,200}$")] = Field(
        "", description="The same key gives the same job, however often it is sent."
    )

    @field_validator("program", mode="before")
    @classmethod
    def _without_half_characters(cls, given: Any) -> Any:
        """Halves of surrogate pairs become NULs: what is no text is a program that is refused, not a request that is."""
        if isinstance(given, dict):
            return {HALVES.sub("\0", name): cls._without_half_characters(text) for name, text in given.items()}
        return HALVES.sub("\0", given) if isinstance(given, str) else given


class JobSeconds(Record):
    """Where the time of a job went; zeros for what has not been."""

    queued: float = 0.0                    # from its arrival to the begin of the try that gave the answer
    built: float = 0.0
    checked: float = 0.0
    timed: float = 0.0


class JobAnswer(Record):
    """A job, as far as it is known now. After its end it never changes."""

    id: str
    state: State
    kind: Kind = ""
    task: str
    reward_schema: str
    reward: float | None = None            # None: not finished, or no score can be given
    no_score: str = ""                     # why not, where the program was judged
    reward_parts: dict[str, float | str] = Field(default_factory=dict)  # what the reward was made of
    compiled: bool | None = None           # None: not known
    correct: bool | None = None            # whether all compared outputs are within their bounds; None: none was compared
    tier: Tier | None = None
    speedup: float | None = None           # over eager; on a GPU only
    reasons: tuple[str, ...] = ()
    seconds: JobSeconds = JobSeconds()
    tries: int = 0                         # that failed for no fault of the program
    environment: str = ""                  # device and versions that the answer holds for
    verdict: Verdict | None = None         # in full; None where there is none

    @property
    def finished(self) -> bool:
        return self.state not in UNFINISHED


class ServiceError(Record):
    """Why a request was not carried out."""

    error: str
