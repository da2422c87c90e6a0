"""Finds the host compiler, limits how many compilers run at once, and locks files so that no two processes make the same one.

The limit is per process, the lock holds between all processes that share a cache. It compiles nothing itself.
Where to look next: `tools/build/nvcc.py` (which runs compilers), `tools/build/build_pool.py` (which sets the limit).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command

_GIB_EACH = 1.0                            # of memory for one compiler: nvcc with CUB takes 0.5 GiB, with CUTLASS 1 to 2

_changed = threading.Condition()
_limits: list[int] = []
_running = 0


def version_of(name: str) -> str:
    """Returns the version of a C++ compiler on the PATH, such as "gcc", which nvcc uses whatever $CXX says.

    Raises `Unavailable` without it.
    """
    compiler = shutil.which(name)
    if compiler is None:
        raise Unavailable(f"no C++ compiler {name} on the PATH; install it with your system's package manager")
    return _version(compiler)


@functools.cache
def _version(compiler: str) -> str:
    return command.run((compiler, "-dumpfullversion"), seconds=30).output.strip()


def default_jobs() -> int:
    """Returns how many compilers this machine's cores and free memory allow at once; at least one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, int(free_gib() / _GIB_EACH)))


@contextlib.contextmanager
def limit(number: int) -> Iterator[None]:
    """Lets no more than `number` compilers of this process run inside; of several limits the smallest counts."""
    with _changed:
        _limits.append(max(1, number))
    try:
        yield
    finally:
        with _changed:
            _limits.remove(max(1, number))
            _changed.notify_all()


@contextlib.contextmanager
def slot() -> Iterator[None]:
    """Waits until the limit allows one more compiler, and counts it while inside."""
    global _running
    with _changed:
        _changed.wait_for(lambda: not _limits or _running < min(_limits))
        _running += 1
    try:
        yield
    finally:
        with _changed:
            _running -= 1
            _changed.notify_all()


@contextlib.contextmanager
def file_lock(made: Path) -> Iterator[None]:
    """Locks the making of this file against other threads and processes. Whoever waited should look whether it exists by now.

    The lock is a file beside it, which is removed afterwards. It is advisory, and a killed process releases it.
    """
    path = made.with_name(f".{made.name}.lock")
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is(path, handle):
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)                   # whoever held the lock has removed its file: open the new one
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _is(path: Path, handle: int) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (os.fstat(handle).st_dev, os.fstat(handle).st_ino)


def free_gib() -> float:
    """Returns the free memory in GiB: the machine's, or the control group's if that is less."""
    text = Path("/proc/meminfo").read_text()
    free = next(int(line.split()[1]) / 2**20 for line in text.splitlines() if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError):     # no control group, or one without a limit ("max")
        group = Path("/sys/fs/cgroup")
        bound = int((group / "memory.max").read_text())
        free = min(free, (bound - int((group / "memory.current").read_text())) / 2**30)
    return free
