"""Tells how far a benchmark is: a line for each result, with the time that is left and the money so far. It keeps nothing.

Where to look next: `bench/run.py` and `bench/judging.py` (who call it), `bench/table.py` (the figures at the end).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from stitchcuda.bench.results import Result
from stitchcuda.counts import counted


class BenchProgress:
    """Counts results. `known`: those of earlier runs, which are not told again."""

    def __init__(self, total: int, known: Sequence[Result], tell: Callable[[str], None]) -> None:
        self._total, self._say = total, tell
        self._before, self._results = len(known), [*known]
        self._started = time.monotonic()

    def _tell(self, line: str) -> None:
        with suppress(OSError):            # a terminal that was closed is no reason to stop
            self._say(line)

    def begin(self, at_once: int) -> None:
        left = self._total - self._before
        kept = f", {self._before} of them with a result already" if self._before else ""
        if left:
            self._tell(f"{counted(self._total, 'problem')}{kept}; {at_once} at a time")
        else:
            self._tell(f"all {counted(self._total, 'problem')} have results")

    def add(self, result: Result) -> None:
        self._results.append(result)
        done, width = len(self._results), len(str(self._total))
        usd = sum(known.usage.usd or 0.0 for known in self._results)
        money = f", ${usd:.2f} so far" if usd else ""
        place = f"[{done:{width}}/{self._total}]"
        self._tell(f"{place} {result.id}: {describe(result)} ({result.seconds:.0f} s){money}{self._left()}")

    def _left(self) -> str:
        new = len(self._results) - self._before
        left = self._total - len(self._results)
        if not left:
            return ""
        seconds = (time.monotonic() - self._started) / new * left
        return f"; about {_duration(seconds)} left"


def describe(result: Result) -> str:
    """The result in a few words, such as "1.84× over eager, 1.31× over compile"."""
    if not result.correct:
        reason = " ".join(result.reasons[0].split()) if result.reasons else ""
        return f"{result.end}{f': {reason[:140]}' if reason else ''}"
    if result.speedups:
        return ", ".join(f"{value:.2f}× over {name}" for name, value in result.speedups.items())
    predicted = f", predicted {result.predicted:.2f}×" if result.predicted else ""
    return f"accepted, tier {result.tier}{predicted}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
