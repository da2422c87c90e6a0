"""Computes a session's outcome, the fields of `--json`, from its state and attempts; nothing is judged again.

A session is accepted if it is done, kept a task, and its final check is correct at tier measured, timed or simulated.

Where to look next: `sessions/session.py` (who reads the session), `sessions/outcome_text.py` (the outcome in sentences).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stitchcuda.errors import StitchError
from stitchcuda.nodes.attempt_figures import list_skipped_tools
from stitchcuda.nodes.nothing import NOTHING
from stitchcuda.nodes.prediction import Prediction, predict_program
from stitchcuda.state import Attempt, Evidence, Record, State, Status, Tier, Usage
from stitchcuda.store import Workspace


class Outcome(Record):
    """The result of a session so far: the fields of `--json`. Paths are absolute; `speedup` is None if nothing was timed."""

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
    prediction: Prediction | None = None   # what `predicted_speedup` is made of; None: not predictable, or see `missing`
    missing: tuple[str, ...] = ()          # "TOOL: why" for each tool that did not look at the program, or was replaced

    @property
    def ratio(self) -> str:
        """The speed-up as "1.50×", or "predicted 1.34×" if nothing was timed; "" if neither is known or nothing was tried."""
        if self.speedup is not None:
            return f"{self.speedup:.2f}×"
        return f"predicted {self.predicted_speedup:.2f}×" if self.predicted_speedup is not None and self.attempts else ""


def ended(state: State) -> Status:
    """The status of a session that has written its report: `nothing_to_do` if no task was worth doing, else `done`."""
    return "nothing_to_do" if (state.get("stop_reason") or "").startswith(NOTHING) else "done"


def is_accepted(state: State) -> bool:
    """Whether a session that is done has a program that it kept, and that its last check found correct."""
    final = state.get("final")
    check = final.check if final else None
    sound = check is not None and check.ok and not check.reasons
    return sound and final is not None and final.tier in ("measured", "timed", "simulated") and bool(state.get("tasks_kept"))


def outcome_of(
    home: Workspace, name: str, state: State, attempts: Sequence[Attempt], program: Path | None, status: Status, why: str | None
) -> Outcome:
    """The outcome of session `name` from its state, attempts, program's folder, and status with the reason for it.

    Raises Damaged if an artefact that it reads is missing or damaged.
    """
    baseline, best, final = state.get("baseline"), state.get("best"), state.get("final")
    timing = final.timing if final else None
    speedup = timing.speedup if timing else best.speedup if best else None
    baseline_ms = timing.reference_ms if timing else baseline.eager_ms if baseline else None
    tier = final.tier if final else best.tier if best else None
    report = state.get("report")
    predicted, unpredicted = _predicted(home, state, attempts)
    evidence = (Evidence.model_validate_json(home.store.get(attempt.evidence)) for attempt in attempts)
    return Outcome(
        session=name, status=status, accepted=status == "done" and is_accepted(state), tier=tier,
        attempts=state.get("attempts", 0), tasks_done=len(state.get("tasks_done", ())),
        tasks_total=state.get("tasks_total", 0), baseline_ms=baseline_ms,
        best_ms=timing.program_ms if timing else baseline_ms / speedup if baseline_ms and speedup else None,
        speedup=speedup if tier in ("measured", "timed") else None,
        predicted_speedup=predicted.speedup if predicted else None,
        program=str(program) if program else None,
        report=str(home.root / report) if report and (home.root / report).is_file() else None,
        usage=state.get("usage", Usage()), stop_reason=why or state.get("stop_reason"), prediction=predicted,
        missing=(*list_skipped_tools([final] if final else evidence), *unpredicted),
    )  # fmt: skip


def _predicted(home: Workspace, state: State, attempts: Sequence[Attempt]) -> tuple[Prediction | None, tuple[str, ...]]:
    """The prediction; if what it rests on cannot be read, None and a sentence, so that the rest of the outcome is still
    shown."""
    try:
        return predict_program(home.store, state, attempts), ()
    except StitchError as error:
        return None, (f"prediction: {error}",)
