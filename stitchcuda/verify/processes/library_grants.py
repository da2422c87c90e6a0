"""Grants a worker read access to single libraries until it is closed, so that it sees none that was built for other programs.

A library gets a second name in a folder that its worker can read but not write. Where to look next:
`verify/processes/worker.py` (the folder).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


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
