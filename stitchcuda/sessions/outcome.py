"""Computes a session's outcome: the fields of `--json`, read from its state and record; nothing is judged anew.

`sessions/session.py` reads a session and asks for this; `cli/summary.py` and `report/report_facts.py` tell it to people.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from stitchcuda.errors import StitchError
from stitchcuda.nodes.attempt_figures import list_skipped_tools
from stitchcuda.nodes.nothing import NOTHING
from stitchcuda.nodes.prediction import Prediction, predict_program
from stitchcuda.state import Attempt, Evidence, Record, State, Status, Tier, Usage
from stitchcuda.store import Workspace


class Readable(Protocol):
    """What of a session is read here: see `session.Session`."""

    home: Workspace

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> Path | None: ...

    def state(self) -> State: ...

    def attempts(self) -> tuple[Attempt, ...]: ...


class Outcome(Record):
    """What a session came to: the fields of `--json`. Paths are absolute; `speedup` is None unless something was timed."""

    session: str
    status: Status
    accepted: bool
    tier: Tier | None
    attempts: int
    tasks_done: int
    tasks_total: int
    baseline_ms: float | None
    best_ms: float | None
    speedup: float | None
    predicted_speedup: float | None
    program: str | None
    report: str | None
    usage: Usage
    stop_reason: str | None
    prediction: Prediction | None = None   # what `predicted_speedup` is made of; None: opaque, or see `missing`
    missing: tuple[str, ...] = ()          # "TOOL: why" for each that did not look at the program, or a lesser one in its place

    @property
    def ratio(self) -> str:
        """"1.50×" where something was timed, "predicted 1.34×" where nothing was, "" where neither is known."""
        if self.speedup is not None:
            return f"{self.speedup:.2f}×"
        return f"predicted {self.predicted_speedup:.2f}×" if self.predicted_speedup is not None else ""


def ended(state: State) -> Status:
    """How a session ended that has written its report: `nothing_to_do` where no task was worth doing, else `done`."""
    return "nothing_to_do" if (state.get("stop_reason") or "").startswith(NOTHING) else "done"


def outcome_of(session: Readable, status: Status, why: str | None) -> Outcome:
    """`status` and `why` are how the session stands. Raises Damaged where what this rests on is."""
    state = session.state()
    baseline, best, final = state.get("baseline"), state.get("best"), state.get("final")
    timing = final.timing if final else None
    speedup = timing.speedup if timing else best.speedup if best else None
    baseline_ms = timing.reference_ms if timing else baseline.eager_ms if baseline else None
    tier = final.tier if final else best.tier if best else None
    check = final.check if final else None
    sound = check is not None and check.ok and not check.reasons and tier in ("measured", "timed", "simulated")
    program, report = session.program, state.get("report")
    predicted, unpredicted = _predicted(session)
    root, get = session.home.root, session.home.store.get
    evidence = (Evidence.model_validate_json(get(attempt.evidence)) for attempt in session.attempts())
    return Outcome(
        session=session.name,
        status=status,
        accepted=status == "done" and sound and bool(state.get("tasks_kept")),
        tier=tier,
        attempts=state.get("attempts", 0),
        tasks_done=len(state.get("tasks_done", ())),
        tasks_total=state.get("tasks_total", 0),
        baseline_ms=baseline_ms,
        best_ms=timing.program_ms if timing else baseline_ms / speedup if baseline_ms and speedup else None,
        speedup=speedup if tier in ("measured", "timed") else None,
        predicted_speedup=predicted.speedup if predicted else None,
        program=str(program) if program else None,
        report=str(root / report) if report and (root / report).is_file() else None,
        usage=state.get("usage", Usage()),
        stop_reason=why or state.get("stop_reason"),
        prediction=predicted,
        missing=(*list_skipped_tools([final] if final else evidence), *unpredicted),
    )


def _predicted(session: Readable) -> tuple[Prediction | None, tuple[str, ...]]:
    """The prediction, and why there is none where what it rests on is lost: that is no reason to lose the rest."""
    attempts = session.attempts()
    try:
        return predict_program(session.home.store, session.state(), attempts), ()
    except StitchError as error:
        return None, (f"prediction: {error}",)
