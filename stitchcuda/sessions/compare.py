"""Compares two sessions: the settings that differ, the result of each, and the diff of their programs.

A side is a session, or `SESSION@N` for its state after attempt N (0: the start). Nothing is changed.

Where to look next: `sessions/outcome.py` (the result of each), `report/comparison.py` (the HTML page).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from stitchcuda.errors import BadInput
from stitchcuda.sessions.session import Place, Session
from stitchcuda.state import Attempt, Digest, Record, Tier
from stitchcuda.store import Workspace, get_tree


class ComparedSession(Record):
    """One side of a comparison: a session, or a session after one of its attempts."""

    name: str
    attempts: int
    kept: tuple[str, ...]                  # ids of its kept tasks, in the order in which they were stitched
    tier: Tier | None
    speedup: float | None                  # measured and timed only
    predicted_speedup: float | None
    program: Digest | None


class Comparison(Record):
    """What differs. `settings`: pairs of values by name. `files`: unified diffs by path in the program."""

    a: ComparedSession
    b: ComparedSession
    reference: bool                        # both were made from the same reference
    settings: dict[str, tuple[str, str]]
    parts: int | None                      # number of the first attempt in which they differ, from 1; None: in no attempt
    files: dict[str, str]


def compare(a: str, b: str, *, workspace: Place = None) -> Comparison:
    """Compares `a` and `b`, each "SESSION" or "SESSION@N". Raises BadInput for a session or an attempt that does not exist."""
    home = Workspace.at(workspace, create=False)
    first, other = _Side(home, a), _Side(home, b)
    here, there = (side.session.record.settings.model_dump() for side in (first, other))
    settings = {name: (str(value), str(there[name])) for name, value in here.items() if value != there[name]}
    return Comparison(
        a=first.summary(), b=other.summary(), settings=settings, parts=_first_difference(first.walk, other.walk),
        reference=first.session.record.reference == other.session.record.reference,
        files=_differences(first.files(), other.files(), a, b),
    )  # fmt: skip


class _Side:
    """A session as it is (`now`), or after one of its attempts. `walk`: its attempts until then."""

    def __init__(self, home: Workspace, label: str) -> None:
        name, found, number = label.partition("@")
        self.label = label
        self.session = Session(home, home.record(name))
        self.walk = self.session.attempts()
        self.now = not found
        if found:
            if not number.isdecimal() or int(number) > len(self.walk):
                last = f"{name}@0 (the start) to {name}@{len(self.walk)}"
                raise BadInput(f"session {name!r} has no attempt {number or 'without a number'}: give {last}")
            self.walk = self.walk[: int(number)]
        self.program = self._program()

    def _program(self) -> Digest | None:
        """The verified program: that of the session's state, or of the last attempt until then that was kept."""
        kept = [attempt.program for attempt in self.walk if attempt.kept]
        if self.now or not kept:
            state = self.session.state()
            return state.get("program") if self.now else state.get("first")
        return kept[-1]

    def files(self) -> dict[str, bytes]:
        return get_tree(self.session.home.store, self.program) if self.program else {}

    def summary(self) -> ComparedSession:
        kept = tuple(dict.fromkeys(attempt.task for attempt in self.walk if attempt.kept))
        if self.now:
            outcome = self.session.outcome()
            tier, speedup, predicted = outcome.tier, outcome.speedup, outcome.predicted_speedup
        else:
            best = next((attempt for attempt in reversed(self.walk) if attempt.kept), None)
            tier, speedup, predicted = (best.tier, best.speedup, None) if best else (None, None, None)
        return ComparedSession(
            name=self.label, attempts=len(self.walk), kept=kept, tier=tier, speedup=speedup, predicted_speedup=predicted,
            program=self.program,
        )  # fmt: skip


def _first_difference(first: tuple[Attempt, ...], other: tuple[Attempt, ...]) -> int | None:
    """The number of the first attempt in which task, program, verdict or route differ; None if they do in none."""
    for number, (a, b) in enumerate(zip(first, other, strict=False), 1):
        if (a.task, a.program, a.kept, a.route) != (b.task, b.program, b.kept, b.route):
            return number
    return None if len(first) == len(other) else min(len(first), len(other)) + 1


def _differences(first: Mapping[str, bytes], other: Mapping[str, bytes], a: str, b: str) -> dict[str, str]:
    found = {}
    for path in sorted({*first, *other}):
        before, after = first.get(path), other.get(path)
        if before == after:
            continue
        try:
            old, new = ((content or b"").decode().splitlines(keepends=True) for content in (before, after))
        except UnicodeDecodeError:
            found[path] = f"{path}: {len(before or b''):,} and {len(after or b''):,} bytes that are no text\n"
            continue
        from_, to = (f"{side}/{path}" if content is not None else "/dev/null" for side, content in ((a, before), (b, after)))
        lines = difflib.unified_diff(old, new, from_, to)
        found[path] = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return found
