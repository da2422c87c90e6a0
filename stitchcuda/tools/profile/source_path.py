"""Translates the path of a built copy back to the program's own source file.

Where to look next: `tools/profile/ncu_report.py`, `tools/profile/sanitizer_log.py` (which read such paths).
"""

from __future__ import annotations

from pathlib import Path, PurePath

_LONGEST = 4096                            # PATH_MAX: a longer text names no file


def own_path(file: str, root: Path | None) -> str:
    """Returns the existing path below `root` (a program's folder or file) that is the longest end of `file`, relative to it.

    Example: "k/a.cu" for "/cache/1234/k/a.cu". Without one, `file` as it is, without `root` in front.
    """
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
