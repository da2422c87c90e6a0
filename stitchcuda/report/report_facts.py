"""Reads a session into the findings of a report: its headline, facts and settings. Nothing is changed.

What is damaged becomes a sentence in the findings; the rest is still shown.

Where to look next: `report/gathering.py` (the rest), `sessions/outcome_text.py`, `nodes/report_text.py` (the sentences).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from stitchcuda.counts import counted
from stitchcuda.engineers.review_findings import list_open
from stitchcuda.errors import StitchError
from stitchcuda.nodes.prediction import Prediction, predict_history
from stitchcuda.nodes.report_text import session_facts as summed_up
from stitchcuda.nodes.report_text import speedup_interval
from stitchcuda.report.findings import Card, Findings
from stitchcuda.report.gathering import gather, sentence
from stitchcuda.sessions.outcome import Outcome
from stitchcuda.sessions.outcome_text import gain, headline, next_commands
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, Evidence, Settings, State, TimingResult
from stitchcuda.store import list_repairs

Read = TypeVar("Read")
DAMAGE = (StitchError, sqlite3.Error, OSError, ValueError, KeyError, TypeError, EOFError)


def findings_of(session: Session) -> Findings:
    """Everything that a report shows of a session, as it is now: it may be running, parked or damaged."""
    lost: list[str] = []
    nothing: list[Prediction] = []
    store, place = session.home.store, str(session.home.root)
    with session.read_once():
        state = _read(session.state, State(), "the checkpoints", lost)
        attempts = _attempts(session, state, lost)
        outcome = _read(session.outcome, None, "what the session came to", []) if not lost else None
        card = _card(session, state, attempts, outcome, lost)
        predicted = _read(lambda: predict_history(store, state, attempts), nothing, "what predictions rest on", lost)
        lost = [text.replace(f"{place}/", "") for text in lost]
        return gather(card, state, attempts, [found.program_ms for found in predicted], store, place=place, lost=lost)


def _read(read: Callable[[], Read], otherwise: Read, what: str, lost: list[str]) -> Read:
    """Returns `read()`; if that fails by damage, `otherwise`, and adds a sentence to `lost`."""
    try:
        return read()
    except DAMAGE as error:
        lost.append(f"{what} cannot be read: {sentence(error)}")
        return otherwise


def _attempts(session: Session, state: State, lost: list[str]) -> Sequence[Attempt]:
    """All attempts; if the ledger is damaged, those that can be read in it, else the latest ones, from the checkpoint."""
    before = len(lost)
    nothing: tuple[Attempt, ...] = ()
    walk = _read(session.attempts, nothing, "the whole record of attempts", lost)
    if len(lost) == before:
        return walk
    whole = _read(lambda: session.home.store.readable_records(session.name).attempts, nothing, "the ledger", lost)
    found = whole or state.get("recent", ())
    lost.append(f"{counted(len(found), 'attempt')} can be read, and {'is' if len(found) == 1 else 'are'} shown.")
    return found


def _card(session: Session, state: State, attempts: Sequence[Attempt], outcome: Outcome | None, lost: list[str]) -> Card:
    record, final, best = session.record, state.get("final"), state.get("best")
    settings = _read(lambda: session.settings, record.settings, "its settings", [])
    tier = outcome.tier if outcome else final.tier if final else best.tier if best else None
    status = outcome.status if outcome else _read(lambda: str(session.status), "unknown", "its status", [])
    ratio, gain = _claim(outcome, state)
    timing = final.timing if final else _timing(session, best)
    predicted = outcome.prediction if outcome else None
    facts = summed_up(state, settings, attempts, tier, timing, predicted)
    stop = outcome.stop_reason if outcome else state.get("stop_reason")
    if stop and status != "nothing_to_do":  # whose headline it is
        facts.append(("ended" if status == "done" else "stands at", stop))
    return Card(
        session=session.name, reference=record.reference_name, created=record.created[:16].replace("T", " "), status=status,
        headline=headline(outcome) if outcome else f"{status}; not all of the session can be read",
        ratio=ratio, speedup=outcome.speedup if outcome and ratio else None, interval=speedup_interval(timing) if ratio else "",
        predicted_ms=predicted.program_ms if predicted else None,
        terms=f"precision {settings.precision}, policy {settings.policy}", gain=gain, tier=tier, facts=tuple(facts),
        settings=(("reference", f"{record.reference_name}, {record.reference[:12]}"), *_settings(settings, state)),
        missing=tuple(why.replace(f"{session.home.root}/", "") for why in outcome.missing) if outcome else (),
        next=tuple(next_commands(session, outcome)) if outcome and not lost else (),
        notes=(*_left_open(session, status), *state.get("notes", ()), *_repairs(session)),
    )  # fmt: skip


def _left_open(session: Session, status: str) -> tuple[str, ...]:
    """What reviews left open in a session that has ended."""
    nothing: tuple[str, ...] = ()
    if status not in ("done", "nothing_to_do"):
        return nothing
    return _read(lambda: list_open(session.reviewed()), nothing, "its reviews", [])


def _repairs(session: Session) -> tuple[str, ...]:
    nothing: tuple[str, ...] = ()
    found = _read(lambda: list_repairs(session.home.store, session.name), nothing, "its transcript", [])
    return tuple(f"was damaged, and mended: {text}" for text in found)


def _claim(outcome: Outcome | None, state: State) -> tuple[str, str]:
    """The speed-up that may be claimed, as a figure and as a sentence; no figure if no task was kept or the program was
    refused."""
    if outcome is None or not state.get("tasks_kept") or (outcome.status == "done" and not outcome.accepted):
        return "", "no speed-up is claimed"
    baseline = state.get("baseline")
    text = gain(outcome, baseline.device.name if baseline else "this device")
    so_far = "" if outcome.status == "done" else ", so far"
    return outcome.ratio, text + so_far if outcome.ratio else text


def _timing(session: Session, best: Attempt | None) -> TimingResult | None:
    """The timing of the best attempt; None if it was not timed, or cannot be read."""
    if best is None:
        return None
    found = _read(lambda: Evidence.model_validate_json(session.home.store.get(best.evidence)), None, "its evidence", [])
    return found.timing if found else None


def _settings(settings: Settings, state: State) -> tuple[tuple[str, str], ...]:
    """The settings and the device, as pairs of name and text that can be compared."""
    baseline = state.get("baseline")
    device = baseline.device if baseline else None
    texts = {name: _as_text(value) for name, value in settings.model_dump(mode="json").items()}
    where = {"GPU": device.name, "driver": device.driver, "torch": device.torch} if device else {}
    return tuple((name.replace("_", " "), text) for name, text in {**texts, **where}.items())


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_as_text(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_as_text, value)) or "none"
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
