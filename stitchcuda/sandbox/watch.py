"""Measures how much a child and everything below it uses: resident memory, tasks, bytes on disk. It kills nothing.

Memory in files without a name (memfd, or deleted while open) is found through the open descriptors. What hides from that too is
noticed when the machine's memory or disk runs out (`_SCARCE_MEMORY`, `_SCARCE_DISK`).
Where to look next: `sandbox/supervisor.py` (who asks, and kills).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from stitchcuda.sandbox.policy import Bounds

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_FILES = 50_000                       # more files than this count as too much disk
_SCARCE_MEMORY = 0.02                      # share of the machine's memory
_SCARCE_DISK = 256 * 2**20


class Watch:
    """Measures the processes below this one, through the machine's /proc or the child's own."""

    def __init__(self, bounds: Bounds, folders: Sequence[str]) -> None:
        self._bounds = bounds
        self._folders = list(folders)
        self._machine = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)  # still the machine's when /proc no longer is
        self._me = int(os.readlink("self", dir_fd=self._machine))
        self._inside = -1
        self._free = [_free_bytes(folder) for folder in self._folders]

    def close(self) -> None:
        os.close(self._machine)

    def look_inside(self) -> None:
        """Uses the child's own /proc from now on: all processes there are the child's, but for process 1."""
        self._inside = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)

    def excess(self) -> str:
        """Returns which bound is passed: "memory", "processes", "disk", or "" for none."""
        pids = self._pids()
        if self._too_many(pids):
            return "processes"             # first, since so many leave little time for other measurements
        proc, rows = self._rows(pids)
        if self._bounds.tasks and sum(threads for _, threads, _ in rows) >= self._bounds.tasks:
            return "processes"
        memory = sum(resident for _, _, resident in rows)
        nameless = self._nameless_bytes(proc, [pid for pid, _, _ in rows])
        if self._bounds.memory and memory + nameless > self._bounds.memory:
            alone = 0                      # without what forks share
            for pid, _, resident in rows:
                alone += self._proportional(proc, pid, resident)
                if self._too_many(self._pids()):  # reading smaps of a process that forks can take seconds
                    return "processes"
            if alone + nameless > self._bounds.memory:
                return "memory"
        if self._bounds.disk and nameless + self._stored_bytes() > self._bounds.disk:
            return "disk"
        for folder, before in zip(self._folders, self._free, strict=True):
            if (now := _free_bytes(folder)) < _SCARCE_DISK and now < before / 2:
                return "disk"
        return "memory" if self._memory_is_scarce() and memory > 2**30 else ""

    def below(self) -> list[int]:
        """Returns all processes below this one, by their numbers in this process' namespace."""
        parents: dict[int, list[int]] = {}
        for name in os.listdir(self._machine):
            if name.isdigit() and (fields := self._stat(self._machine, name)):
                parents.setdefault(int(fields[1]), []).append(int(name))
        found, waiting = [], [self._me]
        while waiting:
            children = parents.get(waiting.pop(), [])
            found += children
            waiting += children
        return found

    def _rows(self, pids: list[int]) -> tuple[int, list[tuple[int, int, int]]]:
        """Returns (the descriptor of the /proc in use, [(process, threads, resident bytes)])."""
        proc = self._inside if self._inside >= 0 else self._machine
        rows = []
        for pid in pids:
            if fields := self._stat(proc, str(pid)):
                rows.append((pid, int(fields[17]), int(fields[21]) * _PAGE))
        return proc, rows

    def _pids(self) -> list[int]:
        if self._inside >= 0:
            return [int(name) for name in os.listdir(self._inside) if name.isdigit() and name != "1"]
        return self.below()

    def _too_many(self, pids: list[int]) -> bool:
        """Whether there are too many processes. Their threads are counted later, which takes longer."""
        return 0 < self._bounds.tasks <= len(pids)

    def _stat(self, proc: int, pid: str) -> list[str] | None:
        try:
            file = os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)
        except OSError:
            return None                    # it has just ended
        try:
            return os.read(file, 4096).decode("ascii", "replace").rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return None
        finally:
            os.close(file)

    def _proportional(self, proc: int, pid: int, resident: int) -> int:
        """Returns a process' memory in bytes, with shared memory divided among the sharers, or `resident` if unknown."""
        try:
            file = os.open(f"{pid}/smaps_rollup", os.O_RDONLY, dir_fd=proc)
        except OSError:
            return resident
        try:
            lines = os.read(file, 4096).decode().splitlines()
        except OSError:
            return resident
        finally:
            os.close(file)
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), resident)

    def _nameless_bytes(self, proc: int, pids: list[int]) -> int:
        seen: dict[tuple[int, int], int] = {}
        for pid in pids:
            try:
                folder = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
            except OSError:
                continue                   # it has just ended
            try:
                for name in os.listdir(folder):
                    try:
                        found = os.stat(name, dir_fd=folder)
                    except OSError:
                        continue           # closed meanwhile
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                        seen[found.st_dev, found.st_ino] = found.st_blocks * 512
            except OSError:
                continue
            finally:
                os.close(folder)
        return sum(seen.values())

    def _stored_bytes(self) -> int:
        total = files = 0
        for folder in self._folders:
            for entry in _entry_sizes(folder):
                files += 1
                if files > _MOST_FILES:
                    return self._bounds.disk + 1
                total += entry
        return total

    def _memory_is_scarce(self) -> bool:
        figures = {}
        file = os.open("meminfo", os.O_RDONLY, dir_fd=self._machine)
        try:
            for line in os.read(file, 4096).decode().splitlines()[:5]:
                name, value = line.split(":")
                figures[name] = int(value.split()[0])
        finally:
            os.close(file)
        return figures.get("MemAvailable", 1) < _SCARCE_MEMORY * figures.get("MemTotal", 1)


def is_scarce(folder: str | os.PathLike[str]) -> bool:
    """Whether the file system of this folder is almost full."""
    return _free_bytes(folder) < _SCARCE_DISK


def _free_bytes(folder: str | os.PathLike[str]) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _entry_sizes(folder: str) -> Iterator[int]:
    """Yields the bytes on disk of each entry below a folder. Follows no links."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    yield found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue                       # removed meanwhile
