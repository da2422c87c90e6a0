"""Files in a cache with their SHA-256: recorded when a file is put there, checked before it is handed out again.

Whoever could write into the cache beside us (a child on a machine that denies the sandbox, another program of the same user)
must not choose what a later program runs. It encrypts nothing, and it does not stop a writer that changes file and record
alike; the sandbox does. Where to look next: `simulator/compile.py`, `tools/build/nvcc.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_SUFFIX = ".sha256"
_Stamp = tuple[int, int, int, int]
_hashed: dict[Path, tuple[_Stamp, str]] = {}   # in this process: a file whose stamp stays is not read twice
_notes: list[str] = []


def put(made: Path, target: Path) -> None:
    """Move `made` to `target` and record what it holds. Both on one file system; racing makers leave one pair."""
    made.chmod(made.stat().st_mode & 0o7755)   # whatever the user's mask is: only the owner writes to it
    digest = sha256(made)
    with _locked(target.parent):
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as record:
            record.write(digest)
        os.replace(made, target)
        os.replace(record.name, _record(target))


def state(target: Path) -> Literal["intact", "missing", "changed"]:
    """Whether `target` is what was put there. A changed file counts as missing to a builder, and is noted."""
    if not target.is_file():
        return "missing"
    with _locked(target.parent):
        try:
            wanted = _record(target).read_text()
        except OSError:
            return "missing"                # from before files were sealed, or half removed
        try:
            found = sha256(target)
        except OSError:
            return "missing"
    return "intact" if found == wanted else changed(target)


def changed(target: Path) -> Literal["changed"]:
    """Remember that a file of the cache was not what was put there; `notes` says so."""
    note(f"{target.name} in the cache had been changed and was built again")
    return "changed"


def note(sentence: str) -> None:
    """Something to say of the cache to whoever reads the verdict."""
    _notes.append(sentence)


def notes() -> tuple[str, ...]:
    """What was found changed since the last call, and what else was noted."""
    found = tuple(dict.fromkeys(_notes))
    _notes.clear()
    return found


def sha256(path: Path) -> str:
    """Of the file's content; remembered in this process as long as inode, size and times stay."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = _hashed.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, hashlib.file_digest(file, "sha256").hexdigest())
            _hashed[path] = known
    return known[1]


def _record(target: Path) -> Path:
    return target.with_name(target.name + _SUFFIX)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """File and record change together: a reader in between would find them apart.

    The lock lies beside the folder: who may only read what is in there cannot take it and keep builders waiting. In a cache
    that cannot be written the folder itself serves.
    """
    try:
        handle = os.open(folder.parent / f".{folder.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
