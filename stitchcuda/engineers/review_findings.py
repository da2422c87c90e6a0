"""Finds what reviews said and nobody acted on: defects in the present program, and suggestions that no draft followed.

A defect is open while the attempt that it was named for is in the program, until a later review of the same task, or of the
whole program (which is shown the open ones), names none. A suggestion is open if no further draft of its task was written. The
built-in engineer's suggestions are left out. Whether a finding is right is not judged.

Where to look next: `graph/routes.py` (rule 7: a defect is repaired once), `engineers/prompts/findings.md.j2` (shows them).
"""

from __future__ import annotations

from collections.abc import Sequence

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


def open_suggestions(reviewed: Reviewed) -> tuple[str, ...]:
    """Returns a line for each suggestion after which its task was left. `reviewed`: as for `open_defects`."""
    lines: list[str] = []
    for attempt, review in reviewed:
        nothing = review.suggestion.strip().rstrip(".").lower() in ("", "none")
        if attempt.beside or attempt.route == "code" or attempt.defect or nothing or review.skipped or not attempt.claimed:
            continue
        gain = f" (expected: {review.expected_gain})" if review.expected_gain else ""
        lines.append(f"{attempt.task} #{attempt.ordinal}: {review.suggestion}{gain}")
    return tuple(dict.fromkeys(lines))[-MOST:]
