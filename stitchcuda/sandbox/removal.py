"""Removes a folder that generated code filled: nested thousands deep, or with modes that forbid to look inside.

`shutil.rmtree` recurses, and fails at such a depth. This follows no link.
Where to look next: `sandbox/limits.py`, `verify/processes/worker.py` (whose folders are removed).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def remove(folder: Path) -> None:
    """Removes `folder` with all that is in it, as far as this user may. No other process may write there meanwhile."""
    with contextlib.suppress(OSError):
        _empty(folder)
        os.rmdir(folder)


def clear(path: Path) -> None:
    """Removes a file, a link (not what it leads to) or a folder with all that is in it, if one is there. Raises OSError for a
    file that cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        remove(path)
    elif os.path.lexists(path):
        path.unlink()


def _empty(folder: Path) -> None:
    """Empties a folder level by level: what lies deeper is moved up, so that no path grows long."""
    token = secrets.token_hex(4)
    moved = 0
    os.chmod(folder, 0o700)
    while below := _folders(folder):
        for path in below:
            for inner in _folders(path):
                moved += 1
                os.rename(inner, folder / f"{token}-{moved}")
            os.rmdir(path)


def _folders(folder: str | Path) -> list[str]:
    """Returns the folders in a folder, made accessible; removes everything else in it."""
    found = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                found.append(entry.path)
            else:
                os.unlink(entry.path)
    return found
