"""Files on loan to a worker: each lies where the worker can read it for the time of one question only.

A program that could read the inputs of its next call could answer them before it is asked. So an exam's files lie with the
answers, and one of them at a time gets a second name in a folder that its worker may read and not write. The name says nothing.
Libraries are lent in the same way, for as long as the worker lives: what was built for other programs is theirs.
Where to look next: `verify/processes/worker.py` (whose folder), `verify/program/trial.py` and `verify/inputs/timed_inputs.py`
(what is lent when).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def grant(desk: Path, *files: Path) -> Iterator[list[str]]:
    """Where the files lie in `desk` until the block ends: other names of them, or copies where a file can have only one."""
    places = [desk / secrets.token_hex(8) for _ in files]
    try:
        for file, place in zip(files, places, strict=True):
            _second_name(file, place)
        yield [str(place) for place in places]
    finally:
        for place in places:
            place.unlink(missing_ok=True)


def grant_library(shelf: Path, library: Path) -> Path:
    """Where the library lies in `shelf` from now on. Always in one place: under a second name it would be loaded twice."""
    place = shelf / library.name
    if not place.exists():
        _second_name(library, place)
    return place


def _second_name(file: Path, place: Path) -> None:
    try:
        os.link(file, place)
    except OSError:                        # another file system, or one without second names
        shutil.copyfile(file, place)
