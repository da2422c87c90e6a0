"""Keeps a builder process for the judge: starts it for the first order and again if it died, and sends it build orders.

It checks no order: the builder does. Where to look next: `verify/program/builder_worker.py` (who builds),
`verify/processes/worker.py` (who passes the orders on).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from stitchcuda.errors import Unavailable
from stitchcuda.simulator import library_cache
from stitchcuda.simulator.torch_extension import version
from stitchcuda.state import Record
from stitchcuda.verify.messages.build_orders import BuildLibrary, BuildOrder, BuiltLibrary, FindLine
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.processes.worker import Worker, WorkerFailed

_LINE_S = 120.0                            # for a build with a table of lines
_Answer = TypeVar("_Answer")


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
        self._cache, self._arch = cache, arch
        self._worker: Worker | None = None
        self._stopped = False
        self._lock = threading.Lock()      # a program's worker and the one with switches may order at once

    def build(self, order: BuildOrder, root: Path | None, seconds: float) -> BuiltLibrary:
        """Sends an order of the program in the folder `root` and returns the builder's answer, or a failure if there is none in
        `seconds`. Raises RuntimeError only for a defect of the builder itself."""
        if root is None:
            return BuiltLibrary(failure="an order to build before any program was loaded")
        try:
            with self._lock:
                request = BuildLibrary(order, root, self._cache, self._arch, self._home.place)
                built = self._ask(request, seconds, f"compiling {order.name[:100]}")
        except WorkerFailed as failure:
            if failure.kind == "error":
                raise RuntimeError(f"the builder failed:\n{failure}") from failure
            return BuiltLibrary(failure=str(failure), kind="build" if failure.kind == "timeout" else "unavailable")
        if self._home.note and order.style == "runtime":
            return replace(built, notes=[self._home.note, *built.notes])
        return built

    def find_line(self, order: BuildOrder, root: Path | None, offset: int) -> str:
        """Returns the source line, as "FILE line N", of the code at `offset` in the simulated library built for an
        order of the program in `root`; "" where it is not found in `_LINE_S` seconds."""
        if root is None:
            return ""
        try:
            with self._lock:
                request = FindLine(order, root, self._cache, self._arch, self._home.place, offset)
                return self._ask(request, _LINE_S, "looking for a source line").place
        except (WorkerFailed, Unavailable):
            return ""

    def _ask(self, request: Request[_Answer], seconds: float, doing: str, *, again: bool = True) -> _Answer:
        """Returns the builder's answer. If the process died, it is started again once: somebody may have killed it."""
        if self._worker is None:
            self._worker = self._start()
        if self._stopped:                  # read after the start: `stop` in another thread sets it before it reads `_worker`
            self._worker.child.kill()
        try:
            return self._worker.ask(request, seconds=seconds, doing=doing)
        except (WorkerFailed, Unavailable) as failure:
            self.close()
            if again and not self._stopped and getattr(failure, "kind", "crash") == "crash":
                return self._ask(request, seconds, doing, again=False)
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
