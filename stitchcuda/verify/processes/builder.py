"""Keeps a builder process for the judge: starts it for the first order and again if it died, and sends it build orders.

It checks no order: the builder does. Where to look next: `verify/program/builder_worker.py` (who builds),
`verify/processes/worker.py` (who passes the orders on).
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
    """The folder in which the simulator's own libraries are built. With none they are built into the cache; `note` says why."""

    place: Path | None = None
    note: str = ""


def simulator_home(kept: Path) -> SimulatorHome:
    """Opens this version's folder in the user's cache `kept`, and locks it for the life of this process. No place is given if
    the cache cannot be used."""
    try:
        return SimulatorHome(place=library_cache.home(kept, version()))
    except library_cache.CacheUnusable as error:
        return SimulatorHome(note=library_cache.unused_note(str(error)))
    except Unavailable:                    # nothing can be built here: the first order will say so
        return SimulatorHome()


class Builder:
    """One builder process, which builds one order at a time, for any thread.

    `start` starts the process. It builds programs for `arch` into `cache`, and the simulator's own libraries into `home`.
    """

    def __init__(self, start: Callable[[], Worker], *, cache: Path, arch: str, home: SimulatorHome | None = None) -> None:
        self._start = start
        self._home = home or SimulatorHome()
        self._given = {"cache": str(cache), "arch": arch, "home": str(self._home.place or "")}
        self._worker: Worker | None = None
        self._stopped = False
        self._lock = threading.Lock()      # a program's worker and the one with switches may order at once

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]:
        """Sends an order of the program in the folder `root` and returns the builder's answer, or an error if there is none in
        `seconds`. Raises RuntimeError only for a defect of the builder itself."""
        if root is None:
            return {"error": "an order to build before any program was loaded", "kind": "build"}
        started = time.monotonic()
        try:
            with self._lock:
                answer = self._ask(order, root, seconds)
        except WorkerFailed as failure:
            kind = "build" if failure.kind == "timeout" else "unavailable"
            return {"error": str(failure), "kind": kind}
        built: dict[str, Any] = answer["built"]
        if built.get("kind") == "defect":
            raise RuntimeError(f"the builder failed:\n{built['error']}")
        if self._home.note and order.get("style") == "runtime":
            built = built | {"notes": [self._home.note, *built.get("notes", ())]}
        return built | {"seconds": time.monotonic() - started}

    def _ask(self, order: Mapping[str, Any], root: Path, seconds: float, *, again: bool = True) -> dict[str, Any]:
        """Returns the builder's answer. If the process died, it is started again once: somebody may have killed it."""
        if self._worker is None:
            self._worker = self._start()
        if self._stopped:                  # read after the start: `stop` in another thread sets it before it reads `_worker`
            self._worker.child.kill()
        name = str(order.get("name", ""))[:100]
        try:
            return self._worker.ask(
                "build", seconds=seconds, doing=f"compiling {name}", order=dict(order), root=str(root), **self._given
            )
        except (WorkerFailed, Unavailable) as failure:
            self.close()
            if again and not self._stopped and getattr(failure, "kind", "crash") == "crash":
                return self._ask(order, root, seconds, again=False)
            raise

    def stop(self) -> None:
        """Makes the order that is being built, and all after it, fail soon. Any thread may call it; `close` must follow."""
        self._stopped = True
        worker = self._worker
        if worker is not None:
            worker.child.kill()

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
