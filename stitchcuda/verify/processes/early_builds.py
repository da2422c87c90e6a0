"""Builds with switches beside a final check: a second builder makes each library that a program orders once more, for later.

Such a build takes as long as the first, and its order is known as soon as the first is. It only fills the cache: the worker
that needs it orders it again, meets the same errors, and waits here while it is being made. Nothing is made after `close`; the
second builder, if it was not stopped in the middle, serves the next check.
Where to look next: `verify/ablation/ablation.py` (who needs it), `verify/processes/builder.py`, `tools/build/masks.py`.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Builds(Protocol):
    """A builder's handle (`builder.Builder`)."""

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]: ...

    def stop(self) -> None:
        """From any thread: whatever is being built ends soon, and nothing is begun any more."""

    def close(self) -> None: ...


class EarlyBuilds:
    """Passes a program's orders on to `builder`, and each of them with switches to `second` as well, which becomes its own."""

    def __init__(self, builder: Builds, second: Builds) -> None:
        self._builder = builder
        self._second = second
        self._orders: queue.SimpleQueue[tuple[dict[str, Any], Path, float, threading.Event] | None] = queue.SimpleQueue()
        self._made: dict[str, threading.Event] = {}
        self._thread: threading.Thread | None = None
        self.failed = False                # then nothing more is made early
        self._closed = False
        self._making = False
        self._usable = True                # the second builder, for others
        self._turn = threading.Lock()      # orders come from two threads

    def build(self, order: Mapping[str, Any], root: Path | None, seconds: float) -> dict[str, Any]:
        """As `Builder.build`."""
        started = time.monotonic()
        key = json.dumps({**order, "skip": True}, sort_keys=True)
        if order.get("skip"):
            if (made := self._made.get(key)) is not None:
                made.wait(seconds)
            if self._closed:               # who orders it is not needed any more, and others want the builder
                return {"error": "the verdict is over", "kind": "build"}
        elif root is not None:
            self._begin(key, {**order, "skip": True}, root, seconds)
        answer = self._builder.build(order, root, max(0.01, seconds - (time.monotonic() - started)))
        if "path" not in answer:
            self._end()
        return answer

    def close(self) -> Builds | None:
        """End what is still being made; from now on no order with switches is taken. Safe to call twice, from any thread.

        Returns the second builder, once and if it can be used again.
        """
        self._closed = True
        self._end()
        with self._turn:
            usable, self._usable = self._usable, False
        return self._second if usable else None

    def _begin(self, key: str, order: dict[str, Any], root: Path, seconds: float) -> None:
        with self._turn:
            if key in self._made or self.failed:
                return
            made = self._made[key] = threading.Event()
            self._orders.put((order, root, seconds, made))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _end(self) -> None:
        with self._turn:
            self.failed = True
            self._orders.put(None)
            if self._making:
                self._second.stop()
                self._usable = False
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (one := self._orders.get()) is not None:
            order, root, seconds, made = one
            with self._turn:
                self._making = not self.failed
            try:
                if self._making:
                    self._second.build(order, root, seconds)
            except Exception:              # a defect or a full disk: who needs the library orders it again, and says so
                self.failed, self._usable = True, False
            finally:
                with self._turn:
                    self._making = False
                made.set()
        if not self._usable:
            self._second.close()
