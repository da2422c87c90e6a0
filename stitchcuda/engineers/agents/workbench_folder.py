"""Lays out a workbench: a folder with a reference, a verified program to start from, pages to read, and commands.

    reference.py  SKILL.md  TASK.md        what to do
    model_new.py  kernels/                 the program: the agent's own, written once
    best/                                  the session's program, written anew with each verdict
    check bench profile docs submit status commands (`engineers/agents/workbench_client.py`)

Nothing that is judged is read from it, and it holds no secret. Files of the agent's are never overwritten; what lies in the
way of the session's own is removed. While a session serves the folder it holds a lock there.
Where to look next: `engineers/agents/workbench_text.py` (the pages), `engineers/agents/workbench_server.py` (who answers).
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stitchcuda.engineers import Assignment, Files
from stitchcuda.engineers.agents import workbench_client
from stitchcuda.engineers.agents.tools import FILE_NAME
from stitchcuda.engineers.agents.workbench_text import skill_page, task_page
from stitchcuda.errors import BadInput
from stitchcuda.sandbox.removal import clear, remove
from stitchcuda.store.files import replace_file

HIDDEN = ".workbench"                      # the socket, the lock, the commands' code
ENDED = "ended"                            # in HIDDEN: what came of the session, once it has ended


class WorkbenchLock:
    """Held by the session that serves a folder, until `close`. The kernel drops it however the process dies."""

    def __init__(self) -> None:
        self._file: int | None = None

    def hold(self, folder: Path) -> None:
        """Takes the lock, or keeps it; takes it anew where its file is gone. Raises `BadInput` if another session has it."""
        with opened(folder) as place, opened(place / HIDDEN) as hidden:
            if self._file is not None and _is_file(hidden / "lock", self._file):
                return
            if not stat.S_ISREG(_mode(hidden / "lock")):
                clear(hidden / "lock")
            file = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(file)
                other = f"another session serves the workbench {folder}"
                raise BadInput(f"{other}: end that one, or give another folder") from error
        self.close()
        self._file = file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def lay_out(folder: Path, assignment: Assignment, lock: WorkbenchLock) -> None:
    """Writes the folder, or what in it belongs to the session, for an open assignment, and holds its lock. Raises `BadInput`
    for a folder that holds something else, that another session serves, or that cannot be written."""
    try:
        _claim(folder)
        lock.hold(folder)
        with opened(folder) as place:
            fresh = not (place / "model_new.py").exists()
            _write(place, "reference.py", assignment.brief.reference)
            _write(place, "SKILL.md", skill_page(assignment))
            _write(place, "TASK.md", task_page(assignment))
            _write_best(place, assignment.program)
            if fresh:
                _write_program(place, {name: held for name, held in assignment.program.items() if _is_agents(name, held)})
            clear(place / HIDDEN / ENDED)
            write_commands(place, has_profiles(assignment))
    except OSError as error:
        raise BadInput(f"the workbench {folder} cannot be written ({error.strerror or error})") from error


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """Gives a path of the folder itself, whatever its name is made to point to meanwhile. Raises OSError for a symbolic
    link."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield Path(f"/proc/self/fd/{held}")
    finally:
        os.close(held)


def _claim(folder: Path) -> None:
    """Makes the folder and its mark, by which it is known again. Raises `BadInput` for a folder that is no workbench."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"{folder} is no folder: give one that is empty, or not there yet")
    folder.mkdir(parents=True, exist_ok=True)
    with opened(folder) as place:
        if not (place / HIDDEN).exists() and any(place.iterdir()):
            raise BadInput(f"{folder} holds other files: give a folder that is empty, or not there yet")
        make_folder(place / HIDDEN)


def make_folder(place: Path) -> None:
    """Makes a folder, or keeps the one that is there; removes a file or a link of its name."""
    if not stat.S_ISDIR(_mode(place)):
        clear(place)
    place.mkdir(exist_ok=True)


def _is_agents(name: str, held: str | bytes) -> bool:
    return bool(FILE_NAME.fullmatch(name)) or isinstance(held, bytes)  # program.json is kept by the session


def _write_best(place: Path, program: Files) -> None:
    """Writes best/ anew. What it was made to point to is not touched."""
    best = place / "best"
    clear(best)
    best.mkdir()
    with opened(best) as inside:
        _write_program(inside, program)


def _write_program(place: Path, program: Files) -> None:
    for name, held in program.items():
        with ExitStack() as stack:
            *folders, file = name.split("/")
            inside = place
            for folder in folders:
                make_folder(inside / folder)
                inside = stack.enter_context(opened(inside / folder))
            _write(inside, file, held)


def has_profiles(assignment: Assignment) -> bool:
    return assignment.brief.settings.target == "cuda"  # nothing is profiled on the simulator


def write_commands(place: Path, profiles: bool, *, missing: bool = False) -> None:
    """Writes the commands and their client. `missing`: only those that are not there with their size and mode."""
    make_folder(place / HIDDEN)
    with opened(place / HIDDEN) as hidden:
        client = Path(workbench_client.__file__).read_text(encoding="utf-8")
        if not missing or not _is_there(hidden / "client.py", client, 0o644):
            _write(hidden, "client.py", client)
    for tool in workbench_client.USAGE:
        if tool == "profile" and not profiles:
            continue
        text = f'#!/bin/sh\nexec "{sys.executable}" -I "$(dirname "$0")/{HIDDEN}/client.py" {tool} "$@"\n'
        if not missing or not _is_there(place / tool, text, 0o755):
            _write(place, tool, text, 0o755)


def write_end(folder: Path, text: str) -> None:
    """Leaves in the folder what came of the session, for commands that are called later."""
    with opened(folder) as place:
        make_folder(place / HIDDEN)
        with opened(place / HIDDEN) as hidden:
            _write(hidden, ENDED, text)


def read_end(folder: Path) -> str:
    """Returns what came of the folder's session; "" where it has not ended, or the folder does not say."""
    try:
        with opened(folder) as place, opened(place / HIDDEN) as hidden:
            if not stat.S_ISREG(_mode(hidden / ENDED)):
                return ""
            return (hidden / ENDED).read_bytes()[: workbench_client.MOST_END].decode("utf-8", "replace")
    except OSError:                        # there is no such folder
        return ""


def _is_there(path: Path, text: str, mode: int) -> bool:
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) == mode and facts.st_size == len(text.encode())


def _is_file(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except OSError:
        return False


def _mode(path: Path) -> int:
    """Returns the type and mode of what is at a path, not of what a link leads to; 0 for nothing."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _write(place: Path, name: str, text: str | bytes, mode: int = 0o644) -> None:
    """Writes a file of the session's in place of whatever has its name."""
    path = place / name
    if path.is_dir() and not path.is_symlink():
        remove(path)
    replace_file(path, text.encode() if isinstance(text, str) else text, mode)
