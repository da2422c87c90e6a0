"""Stops the processes of a worker while another worker is timed, and counts their threads.

A thread of a program could keep the device or the cores busy whenever the program is not called, so that what is timed next to
it looks slow. A stopped process starts nothing new; work that is on the device already goes on.
Where to look next: `verify/judge/interleaved_timing.py` (whose processes: programs', never the reference's),
`verify/timing/rounds.py` (when they are stopped).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path


def threads_by_process(pid: int) -> dict[int, int]:
    """Maps a process and all its descendants to their numbers of threads, as /proc counts them."""
    parents: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue                       # it ended meanwhile, or belongs to another user
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
        counts[int(folder.name)] = int(fields[17])
    found, waiting = dict[int, int](), [pid]
    while waiting:
        child = waiting.pop()
        found[child] = counts.get(child, 0)
        waiting += parents.get(child, [])
    return found


def count_threads(pid: int) -> int:
    """The number of threads of a process and all its descendants."""
    return sum(threads_by_process(pid).values())


class ProgramProcesses:
    """The processes of programs' workers, by the worker's name. `supervisors`: the process ids of the workers' supervisors.

    `denied`: this process may not see or signal some of them, so that none is ever stopped.
    """

    def __init__(self, supervisors: dict[str, int]) -> None:
        self._pids = {name: [pid for pid in threads_by_process(top) if pid != top] for name, top in supervisors.items()}
        self.denied = not all(self._pids.values())
        for pid in (pid for pids in self._pids.values() for pid in pids):
            try:
                os.kill(pid, 0)
            except PermissionError:
                self.denied = True
            except ProcessLookupError:
                pass

    @contextlib.contextmanager
    def pause_others(self, name: str) -> Iterator[None]:
        """A context in which the processes of all other workers are stopped."""
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
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended: the next question to it reports that
            os.kill(pid, what)
