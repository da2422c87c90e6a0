"""Writes a file so that after a crash it is either complete or as it was; turns a failed write into a sentence for people.

It knows nothing of what is written. Where to look next: `errors.py` (`BadInput`, `Unavailable`).
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stitchcuda.errors import BadInput, Unavailable

UNFINISHED = ".tmp-"                       # begins the name of a file or folder that is being written
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, an OSError becomes an error with a sentence about `path`: Unavailable if the disk is full, else BadInput."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unavailable(f"no space left to write {path}: free some, or choose another folder with --workspace") from error
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot write {path} ({reason}): choose a folder you may write to with --workspace") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes all of `data`, or leaves the file as it was. Makes the folder. Raises BadInput or Unavailable (see `writing`)."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes `data` to a temporary file in the same folder, then renames it to `path`; both are on disk when it returns.

    `mode`: who may read the file. Raises OSError; `path` is then as it was.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes what was created, renamed or removed in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
