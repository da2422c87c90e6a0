"""Computes the median of repeated measurements with its 95 % confidence interval, from order statistics.

Pure functions; nothing is measured here.
Where to look next: `tools/device/ceilings_worker.py`, `verify/reference/baselines_worker.py` (which measure).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median

from stitchcuda.state import Record

CONFIDENCE = 0.95


class Median(Record):
    """A median and its 95 % interval. Fewer than 6 samples give their smallest and largest, which is less than 95 %."""

    value: float
    low: float
    high: float
    samples: int

    @property
    def spread(self) -> float:
        """The interval's width relative to the median."""
        return (self.high - self.low) / abs(self.value) if self.value else 0.0


def median_of(values: Sequence[float]) -> Median:
    """Returns the median of at least one value. Source: the sign test; of n values, Binomial(n, 1/2) lie below the median."""
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return Median(value=median(ordered), low=ordered[rank], high=ordered[-1 - rank], samples=len(ordered))


def _rank(count: int) -> int:
    """Returns how many values may be left out at each end so that the rest holds the median with at least 95 %."""
    below, rank = 0.0, 0
    for number in range(count // 2):
        below += comb(count, number) / 2**count
        if 1 - 2 * below < CONFIDENCE:
            break
        rank = number
    return rank
