"""Records the SHA-256 of files in a cache when they are put there, and checks it before they are used again.

Whoever else can write to the cache (a child on a machine without sandbox, another program of the same user) must not choose
what a later program runs. A changed file is built again, and a note says so. It encrypts nothing, and does not stop a writer
who changes both file and record; the sandbox does.
Where to look next: `simulator/compile.py` and `tools/build/nvcc.py` (caches that it seals).
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
_hashed: dict[Path, tuple[_Stamp, str]] = {}   # a file whose inode, size and times stay is read once
_notes: list[str] = []


def put(made: Path, target: Path) -> None:
    """Moves `made` to `target`, on the same file system, and records its digest. Of racing callers the last one wins."""
    made.chmod(made.stat().st_mode & 0o7755)   # only the owner may write to it, whatever the umask is
    digest = sha256(made)
    with _locked(target.parent):
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as record:
            record.write(digest)
        os.replace(made, target)
        os.replace(record.name, _record(target))


def state(target: Path) -> Literal["intact", "missing", "changed"]:
    """Returns whether `target` holds what was put there. If it was changed, `notes` says so, and it has to be built again."""
    if not target.is_file():
        return "missing"
    with _locked(target.parent):
        try:
            wanted = _record(target).read_text()
        except OSError:
            return "missing"                # sealed by no version of ours, or half removed
        try:
            found = sha256(target)
        except OSError:
            return "missing"
    if found == wanted:
        return "intact"
    note(f"{target.name} in the cache had been changed and was built again")
    return "changed"


def note(sentence: str) -> None:
    """Adds a sentence about the cache to the notes of the next verdict."""
    _notes.append(sentence)


def notes() -> tuple[str, ...]:
    """Returns the sentences noted since the last call, each once."""
    found = tuple(dict.fromkeys(_notes))
    _notes.clear()
    return found


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, remembered in this process as long as its inode, size and times stay."""
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
    """Locks a folder, so that a file and its record change together.

    The lock file lies beside the folder, so that a process that may only read the folder cannot keep builders waiting. If it
    cannot be created, the folder itself is locked.
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
