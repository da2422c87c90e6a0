"""What tests look for after a fault: processes of ours, scratch files, and how much a process holds. It only looks.

Processes are known by a mark in the environment they were started with, so that a daemon that left its parents is found too.
Where to look next: `tests/integrity/test_faults.py`, `tests/integrity/hostile_runs.py`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """Until it ends, what is started from here carries the mark that it yields: a folder on Python's path, not there."""
    mark = f"/nowhere/stitchcuda-{uuid.uuid4().hex}"
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, mark)))
    try:
        yield mark
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def processes(mark: str) -> set[int]:
    """Living processes with the mark, and all below this process that were started with it or have become zombies."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
    return found


def below(pid: int) -> set[int]:
    """All descendants of a process, zombies too."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def scratch() -> set[str]:
    """Scratch folders of this process in shared memory and in the folder for temporary files."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return {str(path) for place in places for path in place.glob(f"stitchcuda-{os.getpid()}-*")}


def inside(folder: Path) -> set[str]:
    """Names in a folder; of what one worker or one program had, the kind alone."""
    return {path.name for path in folder.iterdir()}


def resident(pid: int) -> int:
    """Bytes of memory that a process itself holds."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def soon(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it comes to hold within the time: the kernel ends processes a moment after they are killed, and later where other
    tests fill the machine with processes or memory."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
