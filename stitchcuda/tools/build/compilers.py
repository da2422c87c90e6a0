"""Finds the host compiler, limits how many compilers run at once, and keeps two from making the same file.

The number is per process; one maker per file holds among all processes that share a cache. It compiles nothing itself.
Where to look next: `tools/build/nvcc.py` (who asks for turns), `tools/build/build_pool.py` (who sets the number).
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


def host(name: str) -> str:
    """The version of a C++ compiler: "gcc" is the one on the PATH that nvcc uses, whatever $CXX says.

    Raises `Unavailable` without it.
    """
    compiler = shutil.which(name)
    if compiler is None:
        raise Unavailable(f"no C++ compiler {name} on the PATH; install it with your system's package manager")
    return _version(compiler)


@functools.cache
def _version(compiler: str) -> str:
    return command.run((compiler, "-dumpfullversion"), seconds=30).output.strip()


def bearable() -> int:
    """Compilers that this machine's cores and free memory bear; at least one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, int(free_gib() / _GIB_EACH)))


@contextlib.contextmanager
def at_most(number: int) -> Iterator[None]:
    """No more than `number` compilers run inside, by whatever thread; the smallest of several such numbers counts."""
    with _changed:
        _limits.append(max(1, number))
    try:
        yield
    finally:
        with _changed:
            _limits.remove(max(1, number))
            _changed.notify_all()


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Held while one compiler runs; waits for it."""
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
def sole(made: Path) -> Iterator[None]:
    """Nobody else of ours makes this file inside; who had to wait should look whether it is there by now.

    A lock beside the file, which goes when it is done. It is advisory, and a killed process lets go of it.
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
        os.close(handle)                   # whoever held it has removed it: the next one has another
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
    """Of memory: what the machine, and the control group if there is one, still has to give."""
    text = Path("/proc/meminfo").read_text()
    free = next(int(line.split()[1]) / 2**20 for line in text.splitlines() if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError):     # no control group, or one without a limit ("max")
        group = Path("/sys/fs/cgroup")
        bound = int((group / "memory.max").read_text())
        free = min(free, (bound - int((group / "memory.current").read_text())) / 2**30)
    return free
