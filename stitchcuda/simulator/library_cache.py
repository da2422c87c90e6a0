"""Keeps the simulator's own libraries in a folder of the user's cache, so that they are built once for all workspaces.

    VERSIONS/VERSION/shared/    the libraries, which program workers may read
    VERSIONS/VERSION/objects/   what they are linked from
    VERSIONS/VERSION/lock       locked while something is built; VERSION itself is locked while it is in use

A version is a digest of all that goes into the libraries. A folder that another user owns or may write to, or that cannot be
written, is not used: then the workspace's cache serves, and a note says so. What lies there is sealed
(`sandbox/digest_seal.py`) and checked before each use. The `KEPT` versions used last stay. It runs no compiler.
Where to look next: `simulator/build.py` and `simulator/torch_extension.py` (what is built), `verify/processes/builder.py`
(which home is used).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.sandbox import digest_seal
from stitchcuda.sandbox.removal import remove

SHARED = "shared"                          # the folder for libraries of ours, none of a program's
KEPT = 4                                   # versions of half a MiB: for a few environments and checkouts of one user
WAIT_S = 90.0                              # to wait for another builder, which needs ten seconds on two cores
_LOCK = "lock"
_OLD = r"\.old-[0-9a-f]{16}"
_BROKEN = ("building-*", "linking-*")      # left by builders that were killed

_in_use: dict[Path, int] = {}              # versions, with the descriptors that hold them until this process ends
_given_up: set[Path] = set()               # homes that could not be written: not tried again
_Made = TypeVar("_Made")


class CacheUnusable(StitchError):
    """A home cannot be used; the text says why."""


def home(versions: Path, version: str) -> Path:
    """Returns the folder of a version in `versions`, created if need be, and not removed while this process lives. Raises
    `CacheUnusable`."""
    try:
        _make_private(versions)
        versions = versions.resolve()
        place = versions / version
        fresh = not place.is_dir()
        _mark_in_use(place)
        _make_private(place / SHARED)
        _make_private(place / "objects")
        os.utime(place)
        if fresh:
            _remove_old(versions)
    except OSError as error:
        raise CacheUnusable(f"{versions} cannot be used ({(error.strerror or str(error)).lower()})") from error
    return place


def build_in_home(make: Callable[[Path], _Made], place: Path | None, otherwise: Path) -> _Made:
    """Returns what `make` builds in the home `place`, one process at a time. If that fails or there is no home, it builds in
    the folder `otherwise`."""
    if place is not None and place not in _given_up:
        try:
            with _build_lock(place):
                return make(place)
        except (Unavailable, BadInput):    # no compiler, or our own file is unreadable: it would fail elsewhere too
            raise
        except (OSError, StitchError) as error:
            _given_up.add(place)
            digest_seal.note(unused_note(str(error)))
    return make(otherwise)


def unused_note(why: str) -> str:
    """Returns the note on libraries that are built in the workspace, and why."""
    return f"the simulator's libraries are built anew in this cache: {why}"


def objection(folder: Path) -> str:
    """Returns why a folder cannot be a home, or cannot be created, or "". Changes nothing."""
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{place} is no folder"
    status = place.stat()
    if place == folder and status.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if place == folder and status.st_mode & 0o022:
        return f"others may write to {folder}; chmod go-w it"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written"


def _make_private(folder: Path) -> None:
    """Creates the folder if need be. Raises `CacheUnusable` if another user may write to it, or it cannot be used."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o755)       # less what the user's mask takes
    if why := objection(folder):
        raise CacheUnusable(why)


def _mark_in_use(place: Path) -> None:
    """Marks a version as in use, so that no process removes it until this one ends."""
    while place not in _in_use:
        _make_private(place)
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if place.is_dir() and os.stat(place).st_ino == os.fstat(handle).st_ino:
            _in_use[place] = handle
        else:                              # it was removed meanwhile
            os.close(handle)
    _make_private(place)


@contextlib.contextmanager
def _build_lock(place: Path) -> Iterator[None]:
    """Lets one process build at a time. The kernel frees the lock of a killed process; what it left half done is removed."""
    handle = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CacheUnusable(f"another process has been building in {place} for {WAIT_S:.0f} s") from None
                time.sleep(0.02)
        for folder in (place / SHARED, place / "objects"):
            for broken in (found for pattern in _BROKEN for found in folder.glob(pattern)):
                remove(broken)
        yield
    finally:
        os.close(handle)


def _is_version(path: Path) -> bool:
    """Whether a folder is one that `home` made: the two folders, the lock, and nothing else."""
    if path.is_symlink() or not path.is_dir():
        return False
    inside = {entry.name for entry in path.iterdir()}
    return {SHARED, "objects"} <= inside <= {SHARED, "objects", _LOCK, f".{SHARED}.lock", ".objects.lock"}


def _remove_old(versions: Path) -> None:
    """Removes all but the versions used last. Versions in use, and other files, stay."""
    for left in versions.iterdir():
        if re.fullmatch(_OLD, left.name):  # of a process that was killed while it removed it
            remove(left)
    found = []
    for path in versions.iterdir():
        with contextlib.suppress(OSError):
            if _is_version(path):
                found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[KEPT:]:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                away = versions / f".old-{secrets.token_hex(8)}"
                path.rename(away)
                remove(away)
            finally:
                os.close(handle)
