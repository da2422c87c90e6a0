"""Finds the innermost of nested ranges (NVTX push and pop) at a given time.

Where to look next: `tools/profile/timeline.py` (finds the call and the region in which a kernel was launched).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Label = TypeVar("Label")


class InnermostRanges(Generic[Label]):
    """Nested ranges of (start, end, label), the end excluded. A range that ends after the one around it is cut off there."""

    def __init__(self, ranges: Iterable[tuple[int, int, Label]]) -> None:
        self._starts: list[int] = []
        self._labels: list[Label | None] = []
        around: list[tuple[int, Label]] = []
        for start, end, label in sorted(ranges, key=lambda bounds: (bounds[0], -bounds[1])):
            while around and around[-1][0] <= start:
                self._leave(around)
            around.append((min(end, around[-1][0]) if around else end, label))
            self._mark(start, label)
        while around:
            self._leave(around)

    def at(self, time: int) -> Label | None:
        """Returns the label of the innermost range around `time`, None outside of all."""
        place = bisect_right(self._starts, time) - 1
        return self._labels[place] if place >= 0 else None

    def parts(self, start: int, end: int) -> Iterator[tuple[int, Label | None]]:
        """Yields (duration, label) of each piece between two times, in which one range is the innermost."""
        place = max(0, bisect_right(self._starts, start) - 1)
        while place < len(self._starts) and self._starts[place] < end:
            following = self._starts[place + 1] if place + 1 < len(self._starts) else end
            if (took := min(following, end) - max(start, self._starts[place])) > 0:
                yield took, self._labels[place]
            place += 1

    def _leave(self, around: list[tuple[int, Label]]) -> None:
        end, _ = around.pop()
        self._mark(end, around[-1][1] if around else None)

    def _mark(self, time: int, label: Label | None) -> None:
        if self._starts and self._starts[-1] == time:
            self._labels[-1] = label
            return
        self._starts.append(time)
        self._labels.append(label)
