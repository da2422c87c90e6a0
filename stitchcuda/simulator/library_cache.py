"""Where the simulator's own libraries live: a folder of the user's cache, so that they are built once for all workspaces.

    KEPT/VERSION/shared/    the libraries, which program workers may read   KEPT/VERSION/lock   held while something is built
    KEPT/VERSION/objects/   what they are linked from                       KEPT/VERSION        itself a lock, held while in use

A version is named by all that goes into it, and only builders, which are ours, write there. A folder that is somebody else's or
that others may write to is not used, nor one that cannot be written; the workspace's cache serves instead then, and a note says
so. What lies in a version is sealed (`sandbox/digest_seal.py`) and checked before each use. It knows no compiler.
Where to look next: `simulator/build.py` and `simulator/torch_extension.py`, which build there;
`verify/judge/judge_resources.py`, which chooses the home.
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

SHARED = "shared"                          # what is ours, and no program's
KEPT = 4                                   # versions: a user has a few environments and a few checkouts, each half a MiB
WAIT_S = 90.0                              # for another builder; it needs ten seconds on two cores
_LOCK = "lock"
_OLD = r"\.old-[0-9a-f]{16}"
_BROKEN = ("building-*", "linking-*")      # left by builders that were killed

_in_use: dict[Path, int] = {}              # versions, with the descriptors that hold them until this process ends
_given_up: set[Path] = set()               # homes that could not be written: said once, not tried again
_Made = TypeVar("_Made")


class CacheUnusable(StitchError):
    """A home cannot be used; the text says why."""


def home(kept: Path, version: str) -> Path:
    """The home of a version, made where there is none, and not removed while this process lives. Raises `CacheUnusable`."""
    try:
        _own(kept)
        kept = kept.resolve()
        place = kept / version
        fresh = not place.is_dir()
        _hold(place)
        _own(place / SHARED)
        _own(place / "objects")
        os.utime(place)
        if fresh:
            _remove_old(kept)
    except OSError as error:
        raise CacheUnusable(f"{kept} cannot be used ({(error.strerror or str(error)).lower()})") from error
    return place


def made(make: Callable[[Path], _Made], place: Path | None, otherwise: Path) -> _Made:
    """What `make` builds in the home, one builder at a time; in the folder `otherwise` where that fails or there is none."""
    if place is not None and place not in _given_up:
        try:
            with _alone(place):
                return make(place)
        except (Unavailable, BadInput):    # no compiler, or a file of ours that cannot be read: elsewhere it is the same
            raise
        except (OSError, StitchError) as error:
            _given_up.add(place)
            digest_seal.note(unused(str(error)))
    return make(otherwise)


def unused(why: str) -> str:
    """The note on libraries that are built in the workspace."""
    return f"the simulator's libraries are built anew in this cache: {why}"


def objection(folder: Path) -> str:
    """Why a folder cannot be or hold a home, or ""; of one that is not there yet, why it cannot be made. Changes nothing."""
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


def _own(folder: Path) -> None:
    """Makes the folder, if need be, so that nobody else writes there. Raises `CacheUnusable` where somebody may."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o755)       # less what the user's mask takes
    if why := objection(folder):
        raise CacheUnusable(why)


def _hold(place: Path) -> None:
    """Marks a version as in use: who removes old ones leaves it alone until this process ends."""
    while place not in _in_use:
        _own(place)
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if place.is_dir() and os.stat(place).st_ino == os.fstat(handle).st_ino:
            _in_use[place] = handle
        else:                              # it was removed meanwhile
            os.close(handle)
    _own(place)


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One builder at a time; the kernel frees the lock of one that is killed, and what it left half done is removed."""
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


def _remove_old(kept: Path) -> None:
    """All but the versions used last; what a process uses stays, and so does whatever else lies there."""
    for left in kept.iterdir():
        if re.fullmatch(_OLD, left.name):  # by somebody who was killed here
            remove(left)
    found = []
    for path in kept.iterdir():
        with contextlib.suppress(OSError):
            if _is_version(path):
                found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[KEPT:]:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                away = kept / f".old-{secrets.token_hex(8)}"
                path.rename(away)
                remove(away)
            finally:
                os.close(handle)
