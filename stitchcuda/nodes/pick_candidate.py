"""Picks the candidate that a step goes on with: of the correct ones the fastest, else the one that got furthest.

The others are recorded in the ledger beside it. Pure functions.

Where to look next: `nodes/nvcc_build.py` and `nodes/check.py` (call this), `nodes/verifier.py` (records the others).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.state import Work


def pick_candidate(works: Sequence[Work]) -> Work:
    """Returns the best by what is known so far; of equals the one with the lowest number."""
    return max(works, key=_standing)


def _standing(work: Work) -> tuple[int, float, int]:
    saving = work.timing.saving_ms if work.timing else 0.0
    return _progress(work), saving, -work.candidate


def _progress(work: Work) -> int:
    """Returns how far a candidate got: 0 not written, 1 written, 2 built, 3 correct."""
    if not work.program:
        return 0
    if not (work.build and (work.build.ok or work.build.skipped)):
        return 1
    return 3 if work.check and work.check.ok else 2
