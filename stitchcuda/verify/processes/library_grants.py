"""Grants a worker read access to single libraries until it is closed, so that it sees none that was built for other programs.

A library gets a second name in a folder that its worker can read but not write. Where to look next:
`verify/processes/worker.py` (the folder).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from stitchcuda.verify.messages.build_orders import BuiltLibrary


def grant_library(folder: Path, built: BuiltLibrary) -> BuiltLibrary:
    """Returns the builder's answer with the library's path in `folder`, unless every worker may read it. The path is always
    the same: under a second one the library would be loaded twice."""
    if not built.path or built.shared:
        return built
    library = Path(built.path)
    place = folder / library.name
    if not place.exists():
        try:
            os.link(library, place)
        except OSError:                    # another file system, or one without hard links
            shutil.copyfile(library, place)
    return replace(built, path=str(place))
