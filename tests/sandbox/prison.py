"""Hostile children for the tests: made as the judge makes programs' workers, but told line by line what to try."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import Target
from stitchcuda.verify.processes import forkserver as module
from stitchcuda.verify.processes.child import Child
from stitchcuda.verify.processes.forkserver import ForkServer


@contextlib.contextmanager
def forkserver() -> Iterator[ForkServer]:
    """A forkserver whose programs are `tests/sandbox/hostile.py`; it imports nothing heavy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PRELOADED", ())
        patch.setattr(module, "_LATER", ())
        patch.setattr(module, "_WORKERS", {"program": "tests.sandbox.hostile", "reference": "tests.sandbox.hostile"})
        server = ForkServer()
    try:
        yield server
    finally:
        server.close()


class Prisoner:
    """One child and its scratch folder."""

    def __init__(
        self, where: ForkServer, *, kind: str = "program", target: Target = "cuda", read: tuple[Path, ...] = (), **bounds: Any
    ) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="prisoner-", dir="/dev/shm"))
        limits = Limits(**bounds)
        self.child: Child = where.spawn(kind, self.scratch, target=target, bounds=limits, read=read, strict=True)

    def tell(self, code: str) -> None:
        self.child.channel.send({"code": textwrap.dedent(code)})

    def does(self, code: str, seconds: float = 20.0) -> Any:
        """What it set `out` to, or how it failed."""
        self.tell(code)
        answer = self.child.channel.receive(seconds)
        return answer.get("raised", answer.get("out"))

    def __enter__(self) -> Prisoner:
        return self

    def __exit__(self, *error: object) -> None:
        self.child.end()
        shutil.rmtree(self.scratch)


def descendants(pid: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1]
                parents.setdefault(int(parent), []).append(int(name))
    found, waiting = set(), [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found |= set(children)
        waiting += children
    return found


def gone(pids: set[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
