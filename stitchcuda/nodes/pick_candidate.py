"""Which of a step's candidates the step goes on with: the fastest of those that are correct, else whichever came furthest.

Pure functions of the works; the others stay beside it and end in the ledger as evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.state import Work


def pick_candidate(works: Sequence[Work]) -> Work:
    """The best by what is known so far. Between equals the first: candidates are in order."""
    return max(works, key=_standing)


def _standing(work: Work) -> tuple[int, float, int]:
    saving = work.timing.saving_ms if work.timing else 0.0
    return _progress(work), saving, -work.candidate


def _progress(work: Work) -> int:
    """How far it came: 0 not paid for, not usable or nothing new, 1 written, 2 built, 3 correct and, where it can be, timed."""
    if not work.program:
        return 0
    if not (work.build and (work.build.ok or work.build.skipped)):
        return 1
    return 3 if work.check and work.check.ok else 2
