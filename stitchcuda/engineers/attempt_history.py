"""What was tried, as lines that teach: each attempt with its times and what became of it, and errors that come back.

Pure text from records; who shows it is `engineers/prompt.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stitchcuda.state import Attempt, Review

LAST = 4  # outcomes told in full; of earlier ones a line
OFTEN = 2


@dataclass(frozen=True)
class Recurring:
    """An error that came back."""

    times: int
    text: str


def line_of(attempt: Attempt) -> str:
    """One attempt: predicted and measured, kept or not, and why."""
    saved = "saving not timed" if attempt.saving_ms is None else f"saved {milliseconds(attempt.saving_ms)}"
    time = f" ({milliseconds(attempt.program_ms)} a call)" if attempt.program_ms is not None else ""
    fate = "a candidate beside the one kept on with" if attempt.beside else f"then {attempt.route} ({attempt.route_reason})"
    note = f" {attempt.note}" if attempt.note else ""
    error = f" Error: {attempt.diagnosis}" if attempt.diagnosis else ""
    predicted = f"predicted {milliseconds(attempt.predicted_ms)}"
    kept = "kept" if attempt.kept else "not kept"
    return f"{attempt.task} #{attempt.ordinal}: {predicted}, {saved}{time}; {kept}, {fate}.{note}{error}"


def tried(earlier: Sequence[tuple[Attempt, Review]]) -> str:
    """The attempts at a task: the fastest first to compare with, then the last four outcomes with what the verifier read."""
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
        lines.append(f"- #{attempt.ordinal}: {_outcome(attempt)}. {attempt.note}{reading}")
    return "\n".join(" ".join(line.split()) for line in lines)


def recurring(history: Sequence[Attempt]) -> list[Recurring]:
    """Errors that were seen more than once, the most frequent first; at most four."""
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
    return f"correct, saved {milliseconds(attempt.saving_ms)} of {milliseconds(attempt.predicted_ms)} predicted, {kept}"


def milliseconds(value: float) -> str:
    """A time for a model, in the unit that reads best."""
    return f"{value:.3g} ms" if abs(value) >= 0.01 else f"{value * 1000:.3g} µs"
