"""Counts what the reward service does, and writes it in Prometheus' text form.

Counters start at zero with each server, as Prometheus expects; the queue's length is read from the store.
Where to look next: `training/reward_service/app.py` (`/metrics`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from stitchcuda.training.reward_service.records import JobAnswer

_PARTS = ("queued", "built", "checked", "timed")


class Metrics:
    """Any thread may call its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = Counter[tuple[str, str]]()
        self._seconds = Counter[str]()
        self._events = Counter[str]()

    def finish(self, answer: JobAnswer) -> None:
        with self._lock:
            self._ended[answer.state, answer.kind] += 1
            for part in _PARTS:
                self._seconds[part] += getattr(answer.seconds, part)

    def retry(self) -> None:
        self._count("retries")

    def duplicate(self) -> None:
        self._count("duplicates")

    def turn_away(self) -> None:
        self._count("turned_away")

    def _count(self, event: str) -> None:
        with self._lock:
            self._events[event] += 1

    def text(self, queue: Mapping[str, int]) -> str:
        """All figures. `queue`: jobs that are queued, and that are running."""
        with self._lock:
            return "\n".join([*self._lines(queue), ""])

    def _lines(self, queue: Mapping[str, int]) -> Iterator[str]:
        yield from _head("stitchcuda_reward_unfinished_jobs", "gauge", "Jobs without an answer, by state.")
        yield from (f'stitchcuda_reward_unfinished_jobs{{state="{state}"}} {count}' for state, count in queue.items())
        yield from _head("stitchcuda_reward_finished_jobs_total", "counter", "Jobs that were answered, by state and kind.")
        for (state, kind), count in sorted(self._ended.items()):
            yield f'stitchcuda_reward_finished_jobs_total{{state="{state}",kind="{kind}"}} {count}'
        yield from _head("stitchcuda_reward_job_seconds", "summary", "Where the time of answered jobs went.")
        for part in _PARTS:
            yield f'stitchcuda_reward_job_seconds_sum{{part="{part}"}} {self._seconds[part]:.6f}'
            yield f'stitchcuda_reward_job_seconds_count{{part="{part}"}} {sum(self._ended.values())}'
        for event, told in (
            ("retries", "Tries that failed for no fault of the program, and were repeated."),
            ("duplicates", "Requests for a job that was there already."),
            ("turned_away", "Requests that were answered with 429, because the queue was full."),
        ):
            yield from _head(f"stitchcuda_reward_{event}_total", "counter", told)
            yield f"stitchcuda_reward_{event}_total {self._events[event]}"


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"
