"""Lays out a workbench: a folder with a reference, a verified program to start from, pages to read, and commands.

    reference.py  SKILL.md  TASK.md        what to do
    model_new.py  kernels/                 the program: the agent's own, written once
    best/                                  the session's program, written anew with each verdict
    check bench profile docs submit status commands (`engineers/agents/workbench_client.py`)

Nothing that is judged is read from it, and it holds no secret. Files of the agent's are never overwritten.
Where to look next: `engineers/agents/workbench_text.py` (the pages), `engineers/agents/workbench_server.py` (who answers).
"""

from __future__ import annotations

import os
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

HIDDEN = ".stitchcuda"                     # the socket and the commands' code


def lay_out(folder: Path, assignment: Assignment) -> None:
    """Writes the folder, or what in it belongs to the session, for an open assignment. Raises `BadInput` for a folder that
    holds something else, or that cannot be written."""
    try:
        _claim(folder)
        with opened(folder) as place:
            fresh = not (place / "model_new.py").exists()
            _write(place, "reference.py", assignment.brief.reference)
            _write(place, "SKILL.md", skill_page(assignment))
            _write(place, "TASK.md", task_page(assignment))
            _write_best(place, assignment.program)
            if fresh:
                _write_program(place, {name: held for name, held in assignment.program.items() if _is_agents(name, held)})
            _write_commands(place, profiles=assignment.brief.settings.target == "cuda")
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
        if (place / HIDDEN).is_symlink():
            (place / HIDDEN).unlink()
        (place / HIDDEN).mkdir(exist_ok=True)


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
                (inside / folder).mkdir(exist_ok=True)
                inside = stack.enter_context(opened(inside / folder))
            replace_file(inside / file, held.encode() if isinstance(held, str) else held, 0o644)


def _write_commands(place: Path, *, profiles: bool) -> None:
    with opened(place / HIDDEN) as hidden:
        _write(hidden, "client.py", Path(workbench_client.__file__).read_text(encoding="utf-8"))
    for tool in workbench_client.USAGE:
        if tool == "profile" and not profiles:
            continue                       # nothing is profiled on the simulator
        _write(place, tool, f'#!/bin/sh\nexec "{sys.executable}" -I "$(dirname "$0")/{HIDDEN}/client.py" {tool} "$@"\n', 0o755)


def _write(place: Path, name: str, text: str, mode: int = 0o644) -> None:
    """Writes a file of the session's in place of whatever has its name."""
    path = place / name
    if path.is_dir() and not path.is_symlink():
        remove(path)
    replace_file(path, text.encode(), mode)
