"""Lays out a workbench: a folder with a reference, a verified program to start from, pages to read, and commands.

    reference.py  SKILL.md  TASK.md        what to do
    model_new.py  kernels/                 the program: the agent's own, written once
    best/                                  the session's program, written anew with each verdict
    check bench profile docs submit status commands (`engineers/agents/workbench_client.py`)

Nothing that is judged is read from it, and it holds no secret. Files of the agent's are never overwritten.
Where to look next: `engineers/agents/workbench_text.py` (the pages), `engineers/agents/workbench_server.py` (who answers).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from stitchcuda.engineers import Assignment, Files
from stitchcuda.engineers.agents import workbench_client
from stitchcuda.engineers.agents.tools import FILE_NAME
from stitchcuda.engineers.agents.workbench_text import skill_page, task_page
from stitchcuda.errors import BadInput
from stitchcuda.store import write_atomically

HIDDEN = ".stitchcuda"                     # the socket and the commands' code
_MARK = "This folder is a workbench of StitchCUDA.\n"


def lay_out(folder: Path, assignment: Assignment) -> None:
    """Writes the folder, or what in it belongs to the session, for an open assignment. Raises `BadInput` for a folder that
    holds something else, or that cannot be written."""
    try:
        _claim(folder)
        fresh = not (folder / "model_new.py").exists()
        _write(folder / "reference.py", assignment.brief.reference)
        _write(folder / "SKILL.md", skill_page(assignment))
        _write(folder / "TASK.md", task_page(assignment))
        _write_program(folder / "best", assignment.program, whole=True)
        if fresh:
            _write_program(folder, assignment.program, whole=False)
        _write_commands(folder)
    except OSError as error:
        raise BadInput(f"the workbench {folder} cannot be written ({error.strerror or error})") from error


def _claim(folder: Path) -> None:
    mark = folder / HIDDEN / "README"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"{folder} is no folder: give one that is empty, or not there yet")
    if folder.is_dir() and not mark.is_file() and any(entry.name != HIDDEN for entry in folder.iterdir()):
        raise BadInput(f"{folder} holds other files: give a folder that is empty, or not there yet")
    mark.parent.mkdir(parents=True, exist_ok=True)
    _write(mark, _MARK)


def _write_program(folder: Path, program: Files, *, whole: bool) -> None:
    """Writes a program's files. `whole`: the folder holds it and nothing else."""
    if whole and folder.is_symlink():
        folder.unlink()
    elif whole and folder.exists():
        shutil.rmtree(folder)
    for name, held in program.items():
        if not whole and not FILE_NAME.fullmatch(name) and isinstance(held, str):
            continue                       # program.json: the session keeps it
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, held.encode() if isinstance(held, str) else held)


def _write_commands(folder: Path) -> None:
    source = Path(workbench_client.__file__).read_text(encoding="utf-8")
    _write(folder / HIDDEN / "client.py", source)
    for tool in workbench_client.USAGE:
        path = folder / tool
        _write(path, f'#!/bin/sh\nexec "{sys.executable}" -I "$(dirname "$0")/{HIDDEN}/client.py" {tool} "$@"\n')
        path.chmod(0o755)


def _write(path: Path, text: str) -> None:
    if path.is_symlink() or path.is_dir():     # put there by an agent: what it points to is not touched
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    write_atomically(path, text.encode())
