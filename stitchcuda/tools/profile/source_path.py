"""Translates the path of a built copy back to the program's own source file.

Where to look next: `tools/profile/ncu_report.py` and `tools/profile/sanitizer_log.py`, which read such paths.
"""

from __future__ import annotations

from pathlib import Path, PurePath

_LONGEST = 4096                            # PATH_MAX: what is longer names no file, whoever printed it


def own_path(file: str, root: Path | None) -> str:
    """The path below `root`, a program's folder or file, whose end is the longest end of `file`; else `file` as it is."""
    if root is None or len(file) > _LONGEST:
        return file
    folder, parts = root.parent if root.is_file() else root, PurePath(file).parts
    for first in range(len(parts)):
        tail = PurePath(*parts[first:])
        if not tail.is_absolute() and ".." not in parts[first:] and _is_file(folder / tail):
            return str(tail)
    return file.removeprefix(f"{folder}/")


def _is_file(place: Path) -> bool:
    try:
        return place.is_file()
    except OSError:                        # a name that no file can have, such as one of 300 characters
        return False
