"""Locks a GPU between processes: for one timing or trace alone, or for any number of other uses at once.

Two sessions that time on one device at once measure each other. The lock is two files per user and device in the folder for
temporary files. It is advisory: it binds only this package's own processes.
Where to look next: `verify/judge/judge_resources.py` (which takes it).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(device: str, waited: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
    """Locks the GPU for this process alone. Waits until all others are done; meanwhile nobody new gets it. `waited` is called
    with the seconds that this took."""
    started = time.monotonic()
    with _locked(device, "gate", fcntl.LOCK_EX), _locked(device, "use", fcntl.LOCK_EX):
        waited(time.monotonic() - started)
        yield


@contextlib.contextmanager
def shared(device: str, waited: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
    """Locks the GPU together with other processes, while none times. `waited` is called with the seconds that this took."""
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        with _locked(device, "gate", fcntl.LOCK_EX):
            stack.enter_context(_locked(device, "use", fcntl.LOCK_SH))
        waited(time.monotonic() - started)
        yield


class GpuLock:
    """The lock of one device for all threads of a process: the first takes it, further ones join, the last releases it.
    `waited_s`: seconds in which the process waited for others, altogether."""

    def __init__(self, device: str) -> None:
        self.waited_s = 0.0
        self._device = device
        self._lock = threading.Lock()
        self._inside = 0
        self._held = contextlib.ExitStack()

    @contextlib.contextmanager
    def hold(self, *, alone: bool, waited: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
        """Holds the lock, `alone` or shared with other processes. A thread that joins another gets it as that one has it."""
        def add(seconds: float) -> None:
            self.waited_s += seconds
            waited(seconds)

        with self._lock:
            if not self._inside:
                self._held.enter_context((exclusive if alone else shared)(self._device, add))
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._held.close()


@contextlib.contextmanager
def _locked(device: str, name: str, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"stitchcuda-gpu-{os.getuid()}-{device}-{name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
