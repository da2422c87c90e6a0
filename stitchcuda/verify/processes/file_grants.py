"""Grants a worker read access to single files: input files for the time of one request, libraries until it is closed.

A program that could read the inputs of its next call could compute the answer before it is asked. So the files of secret inputs
lie in the judge's folder, and the file of a request gets a second, random name in a folder that its worker can read but not
write. Libraries are granted one by one too, so that a worker does not see those that were built for other programs.
Where to look next: `verify/processes/worker.py` (the folders), `verify/program/trial.py` and `verify/inputs/timed_inputs.py`
(which files are granted when).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def grant(folder: Path, *files: Path) -> Iterator[list[str]]:
    """A context that gives the paths of the files in `folder`, in order. They are hard links, or copies if those cannot be
    made, and are removed when the block ends."""
    places = [folder / secrets.token_hex(8) for _ in files]
    try:
        for file, place in zip(files, places, strict=True):
            _link_or_copy(file, place)
        yield [str(place) for place in places]
    finally:
        for place in places:
            place.unlink(missing_ok=True)


def grant_library(folder: Path, library: Path) -> Path:
    """The path of the library in `folder` from now on, always the same: under a second path it would be loaded twice."""
    place = folder / library.name
    if not place.exists():
        _link_or_copy(library, place)
    return place


def _link_or_copy(file: Path, place: Path) -> None:
    try:
        os.link(file, place)
    except OSError:                        # another file system, or one without hard links
        shutil.copyfile(file, place)
