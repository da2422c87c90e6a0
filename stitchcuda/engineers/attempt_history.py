"""Writes earlier attempts as text for a prompt: times, outcomes, and the errors that occurred more than once.

Of a task's attempts the last four (LAST) are written out with their reviews, earlier ones take a line each. Two errors are the
same where their fingerprints are equal. It chooses no attempt and measures nothing.

Where to look next: `engineers/prompt.py` (the sections that show this text), `nodes/error_fingerprint.py` (equal errors).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stitchcuda.state import Attempt, Review

LAST = 4  # attempts written out with their reviews; earlier ones take a line each
OFTEN = 2  # occurrences from which an error counts as recurring


@dataclass(frozen=True)
class Recurring:
    """An error that occurred more than once in a session."""

    times: int
    text: str


def describe_attempt(attempt: Attempt) -> str:
    """Returns one line on an attempt: predicted and measured saving, kept or not, the route after it and why."""
    saved = "saving not timed" if attempt.saving_ms is None else f"saved {milliseconds(attempt.saving_ms)}"
    time = f" ({milliseconds(attempt.program_ms)} a call)" if attempt.program_ms is not None else ""
    fate = "a candidate beside the one kept on with" if attempt.beside else f"then {attempt.route} ({attempt.route_reason})"
    note = f" {attempt.note}" if attempt.note else ""
    error = f" Error: {attempt.diagnosis}" if attempt.diagnosis else ""
    predicted = f"{_expected(attempt)} {milliseconds(attempt.predicted_ms)}"
    kept = "kept" if attempt.kept else "not kept"
    return f"{attempt.task} #{attempt.ordinal}: {predicted}, {saved}{time}; {kept}, {fate}.{note}{error}"


def describe_history(earlier: Sequence[tuple[Attempt, Review]]) -> str:
    """Returns the attempts at a task as lines: correct ones by time, then outcomes, the last four with their reviews. `earlier`
    is oldest first; "" for none."""
    if not earlier:
        return ""
    lines = []
    timed = sorted(
        (attempt.program_ms, attempt.ordinal, attempt.note)
        for attempt, _ in earlier
        if attempt.correct and attempt.program_ms is not None
    )
    if len(timed) > 1:
        lines.append("Correct variants, fastest first: say to yourself why the first is faster than the next.")
        lines += [f"- {milliseconds(ms)}: #{ordinal} {note or 'no note'}" for ms, ordinal, note in timed[:5]]
    if len(earlier) > LAST:
        lines.append("Before the last four:")
        lines += [f"- #{attempt.ordinal}: {_outcome(attempt)}. {attempt.note}".rstrip() for attempt, _ in earlier[:-LAST]]
    for attempt, review in earlier[-LAST:]:
        reading = f" Read as: {review.bottleneck} Then suggested: {review.suggestion}" if review.bottleneck else ""
        defect = f" Defect named: {attempt.defect}" if attempt.defect else ""
        lines.append(f"- #{attempt.ordinal}: {_outcome(attempt)}. {attempt.note}{reading}{defect}")
    return "\n".join(" ".join(line.split()) for line in lines)


def saved_by(kept: Sequence[Attempt], task: str) -> float | None:
    """Returns what a task saved as a whole, in ms: the sum over its kept attempts, each timed against the program before it.
    None where none was timed."""
    timed = [attempt.saving_ms for attempt in kept if attempt.task == task and attempt.saving_ms is not None]
    return sum(timed) if timed else None


def find_recurring_errors(history: Sequence[Attempt]) -> list[Recurring]:
    """Returns the errors that occurred at least twice, the most frequent first; at most four."""
    times = Counter(attempt.fingerprint for attempt in history if attempt.fingerprint)
    text = {attempt.fingerprint: attempt.diagnosis for attempt in history}
    return [Recurring(count, text[found]) for found, count in times.most_common(4) if count >= OFTEN]


def _outcome(attempt: Attempt) -> str:
    if not attempt.built:
        return f"did not build ({attempt.diagnosis})"
    if not attempt.correct:
        return f"wrong ({attempt.diagnosis})"
    if attempt.saving_ms is None:
        return "correct, not timed"
    kept = "kept" if attempt.kept else "not kept"
    expected = f"{milliseconds(attempt.predicted_ms)} {_expected(attempt)}"
    return f"correct, saved {milliseconds(attempt.saving_ms)} of {expected}, {kept}"


def _expected(attempt: Attempt) -> str:
    return "claimed" if attempt.claimed else "predicted"


def milliseconds(value: float) -> str:
    """Returns a time in ms, or in µs below 0.01 ms: 0.0042 → "4.2 µs"."""
    return f"{value:.3g} ms" if abs(value) >= 0.01 else f"{value * 1000:.3g} µs"
