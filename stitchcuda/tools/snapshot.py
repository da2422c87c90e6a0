"""A private, read-only copy of a program, so that what is screened, built and run are the same bytes.

Links and special files are refused: following one would read a file of ours into a place the program can see. Nothing is run.
Where to look next: `judge.py`.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from stitchcuda.errors import BadInput

_MOST_BYTES = 256 * 2**20                  # constants of a program included
_MOST_FILES = 2000
_SKIPPED = ("__pycache__", ".git", ".venv", ".stitchcuda")


def snapshot(program: Path, place: Path) -> Path:
    """Copy `program` (a folder, or one Python file) to below `place`; the path of the copy. Raises `BadInput`."""
    place.mkdir(parents=True)
    if not program.is_dir():
        made = place / program.name
        _copy(program, made)
        return made
    root = place / "program"
    files = size = 0
    for folder, folders, names in os.walk(program):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in (*folders, *names):
            if (Path(folder) / name).is_symlink():
                inside = Path(folder, name).relative_to(program)
                raise BadInput(f"{inside} in the program is a link: programs hold plain files only.")
        here = root / Path(folder).relative_to(program)
        here.mkdir(parents=True)
        for name in sorted(names):
            if name.endswith(".pyc"):
                continue
            files, size = files + 1, size + _copy(Path(folder) / name, here / name)
            if files > _MOST_FILES or size > _MOST_BYTES:
                raise BadInput(
                    f"{program} is no program: it holds over {_MOST_FILES} files or {_MOST_BYTES // 2**20} MiB. "
                    "Give the folder with model_new.py alone."
                )
    return root


def _copy(source: Path, target: Path) -> int:
    """Bytes copied. The file is opened without following links and must be a regular one."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as given:
        status = os.fstat(given.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{source.name} in the program is no regular file: programs hold plain files only.")
        with open(target, "wb") as copy:
            shutil.copyfileobj(given, copy)
    target.chmod(0o444)
    return status.st_size
