"""The processes that a worker consists of: how many threads they have, and how they stand still while somebody else is timed.

A thread of a program's could keep the device or the cores busy whenever the program is not called, so that whoever is timed
beside it looks slow. A stopped process starts nothing; what it has on the device already goes on. Nothing is decided here.
Where to look next: `verify/timing/rounds.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path


def threads_by_process(pid: int) -> dict[int, int]:
    """How many threads a process and each of those that it started have, as the system counts them, by process."""
    parents: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue                       # it ended meanwhile, or is none of ours
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
        counts[int(folder.name)] = int(fields[17])
    found, waiting = dict[int, int](), [pid]
    while waiting:
        child = waiting.pop()
        found[child] = counts.get(child, 0)
        waiting += parents.get(child, [])
    return found


def count_threads(pid: int) -> int:
    """Of all these together."""
    return sum(threads_by_process(pid).values())


class ProgramProcesses:
    """The processes of programs' workers, by name. `pause_others` stops those of all but one; a reference's are never stopped."""

    def __init__(self, supervisors: dict[str, int]) -> None:
        self._pids = {name: [process for process in threads_by_process(pid) if process != pid] for name, pid in supervisors.items()}
        self.denied = not all(self._pids.values())  # the system does not show them to us, or does not let us
        for pid in (pid for pids in self._pids.values() for pid in pids):
            try:
                os.kill(pid, 0)
            except PermissionError:
                self.denied = True
            except ProcessLookupError:
                pass

    @contextlib.contextmanager
    def pause_others(self, name: str) -> Iterator[None]:
        """All that are not of this name stand still inside."""
        pids = {pid for other, some in self._pids.items() if other != name for pid in some} - {*self._pids.get(name, ())}
        if self.denied:
            pids = set()
        try:
            _signal(pids, signal.SIGSTOP)
            yield
        finally:
            _signal(pids, signal.SIGCONT)


def _signal(pids: Collection[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended: who asks it something is told
            os.kill(pid, what)
