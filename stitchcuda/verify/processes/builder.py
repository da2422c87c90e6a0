"""The judge's handle on the builder: started for the first order, kept for all others, started again when it died.

Where to look next: `verify/program/builder_worker.py` (who builds), `verify/processes/worker.py` (who passes the orders on).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.simulator import library_cache
from stitchcuda.simulator.torch_extension import version
from stitchcuda.state import Record
from stitchcuda.verify.processes.worker import Worker, WorkerFailed


class SimulatorHome(Record):
    """Where the simulator's own libraries are built: the cache itself if there is no place. `note` says why."""

    place: Path | None = None
    note: str = ""


def simulator_home(kept: Path) -> SimulatorHome:
    """The home of this version in the user's cache, held while this process lives; without one if `kept` cannot be used."""
    try:
        return SimulatorHome(place=library_cache.home(kept, version()))
    except library_cache.CacheUnusable as error:
        return SimulatorHome(note=library_cache.unused_note(str(error)))
    except Unavailable:                    # nothing can be built here: whoever orders something is told
        return SimulatorHome()


class Builder:
    """One builder process, one order at a time, from any thread. `start` makes it; `cache` and `arch` are what it builds into
    and for, and our own libraries for the simulator into `home`."""

    def __init__(self, start: Callable[[], Worker], *, cache: Path, arch: str, home: SimulatorHome | None = None) -> None:
        self._start = start
        self._home = home or SimulatorHome()
        self._given = {"cache": str(cache), "arch": arch, "home": str(self._home.place or "")}
        self._worker: Worker | None = None
        self._stopped = False
        self._turn = threading.Lock()      # a program's worker and one with switches may order at once

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]:
        """The builder's answer to an order of the program in `root`. Raises RuntimeError for our own defects only."""
        if root is None:
            return {"error": "an order to build before any program was loaded", "kind": "build"}
        started = time.monotonic()
        try:
            with self._turn:
                answer = self._asked(order, root, seconds)
        except WorkerFailed as failure:
            kind = "build" if failure.kind == "timeout" else "unavailable"
            return {"error": str(failure), "kind": kind}
        built: dict[str, Any] = answer["built"]
        if built.get("kind") == "defect":
            raise RuntimeError(f"the builder failed:\n{built['error']}")
        if self._home.note and order.get("style") == "runtime":
            built = built | {"notes": [self._home.note, *built.get("notes", ())]}
        return built | {"seconds": time.monotonic() - started}

    def _asked(self, order: Mapping[str, Any], root: Path, seconds: float, *, again: bool = True) -> dict[str, Any]:
        """The builder's answer; one that died is started again once, for it may have been killed from outside."""
        if self._worker is None:
            self._worker = self._start()
        if self._stopped:                  # looked at after there is a worker: `stop` looks for one after it said so
            self._worker.child.kill()
        name = str(order.get("name", ""))[:100]
        try:
            return self._worker.ask(
                "build", seconds=seconds, doing=f"compiling {name}", order=dict(order), root=str(root), **self._given
            )
        except (WorkerFailed, Unavailable) as failure:
            self.close()
            if again and not self._stopped and getattr(failure, "kind", "crash") == "crash":
                return self._asked(order, root, seconds, again=False)
            raise

    def stop(self) -> None:
        """From any thread: the order that is being built fails soon, and all after it. Its owner still calls `close`."""
        self._stopped = True
        worker = self._worker
        if worker is not None:
            worker.child.kill()

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
