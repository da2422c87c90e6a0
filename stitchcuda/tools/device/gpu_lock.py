"""A lock per GPU between processes: one timing alone, or any number of other uses together.

A lock between processes of a machine.

Two sessions that time on one device at once measure each other. The lock is a file per user and device in the folder for
temporary files; it is advisory and binds only our own processes. Where to look next: `verify/judge/judge_resources.py`.
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
def alone(device: str) -> Iterator[None]:
    """Nobody else of ours uses the GPU inside; waits for those who do, and nobody new starts meanwhile."""
    with _locked(device, "gate", fcntl.LOCK_EX), _locked(device, "use", fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def together(device: str, waited: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
    """Others may use the GPU as well, but nobody times. `waited` is told how long it took to get there."""
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        with _locked(device, "gate", fcntl.LOCK_EX):
            stack.enter_context(_locked(device, "use", fcntl.LOCK_SH))
        waited(time.monotonic() - started)
        yield


class GpuLock:
    """One process' turn on one device, which its threads share: whoever comes second is in it already."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._inside = 0
        self._held = contextlib.ExitStack()

    @contextlib.contextmanager
    def taken(self, *, solely: bool, waited: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
        """Alone on the device (`solely`), or together with other processes. Inside of a turn the first word counts."""
        with self._lock:
            if not self._inside:
                self._held.enter_context(alone(self._device) if solely else together(self._device, waited))
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
