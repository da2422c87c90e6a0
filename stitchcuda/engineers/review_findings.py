"""Finds what reviews left open: defects in the present program, suggestions that no draft followed, reviews that are missing.

A defect is open while the attempt that it was named for is in the program, until a later review of the same task, or of the
whole program (which is shown the open ones), names none. A suggestion is open once no further draft of its task is written,
until a later review says that it is settled. A review is missing if the session ended before it, until a later one of the same
task or the whole program. The built-in engineer's suggestions are left out. Whether a finding is right is not judged.

Where to look next: `graph/routes.py` (rule 7: a defect is repaired once), `engineers/prompts/findings.md.j2` (shows them).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.counts import counted
from stitchcuda.state import Attempt, Review

MOST = 6                                   # findings of a kind, the newest
Reviewed = Sequence[tuple[Attempt, Review]]


def open_defects(reviewed: Reviewed) -> tuple[str, ...]:
    """Returns a line for each defect in the program now. `reviewed`: a session's attempts and their reviews, oldest first."""
    found: dict[str, str] = {}             # by task
    for attempt, review in reviewed:
        if not attempt.kept:               # a review of the whole program may name what was kept before
            if review.whole and attempt.defect:
                found[attempt.id] = f"{attempt.task} #{attempt.ordinal}: {attempt.defect}"
            continue
        if review.whole and not review.skipped and not attempt.defect:
            found.clear()
        if not review.skipped:
            found.pop(attempt.task, None)
        if attempt.defect:
            found[attempt.task] = f"{attempt.task} #{attempt.ordinal}: {attempt.defect}"
    return tuple(found.values())[-MOST:]


def open_suggestions(reviewed: Reviewed, *, going_on: str = "") -> tuple[str, ...]:
    """Returns a line for each suggestion after which its task was left, or the session ended. `going_on`: the task whose next
    draft is being written: its coder is shown what the last review of it suggests. `reviewed`: as for `open_defects`."""
    latest = {attempt.task: attempt.id for attempt, _ in reviewed}
    lines: list[str] = []
    for attempt, review in reviewed:
        lines = [line for line in lines if line not in review.settled]
        nothing = review.suggestion.strip().rstrip(".").lower() in ("", "none")
        if attempt.beside or attempt.defect or nothing or review.skipped or not attempt.claimed:
            continue
        if attempt.route == "code" and (attempt.id != latest[attempt.task] or attempt.task == going_on):
            continue
        gain = f" (expected: {review.expected_gain})" if review.expected_gain else ""
        lines.append(" ".join(f"{attempt.task} #{attempt.ordinal}: {review.suggestion}{gain}".split()))
    return tuple(dict.fromkeys(lines))[-MOST:]


def list_open(reviewed: Reviewed) -> tuple[str, ...]:
    """Returns what a person should know of a session that has ended, a line each: defects, missing reviews, and how many
    suggestions nobody followed. `reviewed`: as for `open_defects`."""
    suggestions = len(open_suggestions(reviewed))
    more = [f"{counted(suggestions, 'suggestion')} of reviews that nobody followed, see the report"] if suggestions else []
    return (*(f"defect that nobody repaired: {line}" for line in open_defects(reviewed)), *missing_reviews(reviewed), *more)


def missing_reviews(reviewed: Reviewed) -> tuple[str, ...]:
    """Returns a line for each attempt that is in the program and was not reviewed although it should have been. `reviewed`: as
    for `open_defects`."""
    found: dict[str, str] = {}             # by task
    for attempt, review in reviewed:
        if attempt.kept and attempt.unreviewed:
            found[attempt.task] = f"{attempt.task} #{attempt.ordinal}: this program was not reviewed: {attempt.unreviewed}"
        elif attempt.kept and not review.skipped:
            found = {} if review.whole else {task: line for task, line in found.items() if task != attempt.task}
    return tuple(found.values())[-MOST:]
