"""Removes a folder that generated code filled: nested thousands deep, or with modes that forbid to look inside.

`shutil.rmtree` recurses, and fails at such a depth. This follows no link, also none that a process which still writes there
puts in a folder's place meanwhile: each step goes by the folder that is open, never by a path through it.
Where to look next: `sandbox/limits.py`, `verify/processes/worker.py` (whose folders are removed).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_S = 300.0                            # that emptying a folder may take: somebody may write there all the time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> None:
    """Removes `folder` with all that is in it, as far as this user may."""
    with contextlib.suppress(OSError):
        with _opened(folder, None) as held:
            _empty(held)
        os.rmdir(folder)


def clear(path: Path) -> None:
    """Removes a file, a link (not what it leads to) or a folder with all that is in it, if one is there. Raises OSError for a
    file that cannot be removed."""
    if path.is_dir() and not path.is_symlink():
        remove(path)
    elif os.path.lexists(path):
        path.unlink()


@contextmanager
def _opened(name: str | Path, parent: int | None) -> Iterator[int]:
    """Opens a folder, made accessible. Raises OSError for what is none, a link too."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        with contextlib.suppress(PermissionError):  # of another user
            if stat.S_IMODE(os.fstat(found).st_mode) & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{found}", 0o700)
        held = os.open(".", _FOLDER, dir_fd=found)
    finally:
        os.close(found)
    try:
        yield held
    finally:
        os.close(held)


def _empty(folder: int) -> None:
    """Empties an open folder level by level: what lies deeper is moved up, so that no path grows long."""
    token, moved, until = secrets.token_hex(4), 0, time.monotonic() + _MOST_S
    while below := _folders(folder):
        if time.monotonic() > until:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        for name in below:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), _opened(name, folder) as held:
                for inner in _folders(held):
                    moved += 1
                    os.rename(inner, f"{token}-{moved}", src_dir_fd=held, dst_dir_fd=folder)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it is another one now: the next pass sees it
                os.rmdir(name, dir_fd=folder)


def _folders(folder: int) -> list[str]:
    """Returns the names of folders in an open folder; removes everything else in it."""
    found = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
            else:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(entry.name, dir_fd=folder)
    return found
