"""Times calls inside a worker on a GPU: one call at a time, cold L2, device idle before each. Decides nothing.

The device is synchronised before the start event is recorded, so the host's launch cost counts as it does for a user who
waits for the result. The clocks are taken at construction, before any program is imported. Where to look next: `timing.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


class Stopwatch:
    """Holds the buffer that flushes L2 and private copies of the clocks."""

    _shared: Stopwatch | None = None

    def __init__(self) -> None:
        self._clock = time.perf_counter
        self._event = torch.cuda.Event
        self._synchronize = torch.cuda.synchronize
        cache = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 * 2**20))
        self._flush = torch.empty(max(2 * cache, 128 * 2**20), dtype=torch.int8, device="cuda")

    @classmethod
    def shared(cls) -> Stopwatch:
        if cls._shared is None:
            cls._shared = cls()
        return cls._shared

    def block(self, call: Callable[[], object], calls: int) -> dict[str, Any]:
        """Milliseconds of each of `calls` calls, by events and by the host's clock."""
        events: list[float] = []
        host: list[float] = []
        for _ in range(calls):
            start, end = self._event(enable_timing=True), self._event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._flush.zero_()
            self._synchronize()
            began = self._clock()
            start.record()
            result = call()
            end.record()
            self._synchronize()
            host.append((self._clock() - began) * 1e3)
            events.append(start.elapsed_time(end))
            del result
        return {"events_ms": events, "host_ms": host}
