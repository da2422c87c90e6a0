"""Stores indexes as whole folders and publishes a new one by renaming one small file.

A reader finds an index that is whole or the one before it, never half of one; whoever builds holds a lock. It knows nothing of
what is inside. Where to look next: `rag/building.py`, which writes; `rag/index.py`, which opens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from stitchcuda.errors import Unavailable
from stitchcuda.state import Digest, Record
from stitchcuda.store.files import replace_file
from stitchcuda.tools.device.toolkit import user_cache

FORMAT = 1
"""The version of the files below; indexes of other formats lie beside, untouched."""
KEPT = 2                                   # indexes that are kept of one set of sources: the current one and the one before
PLACES = 6                                 # sets of sources whose indexes are kept: those built last
_MANIFEST, _CURRENT, _LOCK, _MEANING = "manifest.json", "current", "build.lock", "meaning.json"
VECTORS = "vectors.faiss"


class Part(Record):
    """One source in an index."""

    name: str
    kind: str                              # headers, document, notes, playbook
    library: str = ""
    version: str = ""
    where: str = ""
    files: int = 0
    chunks: int = 0
    notes: tuple[str, ...] = ()            # what could not be read


class Manifest(Record):
    """What an index is made of. Written last: a folder without it is a build that was interrupted."""

    format: int
    made_by: str                           # version of stitchcuda
    state: Digest                          # of all that was read
    created: str                           # UTC, ISO 8601
    chunks: int
    libraries: dict[str, int]              # chunks of each
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    files: dict[str, Digest] = Field(default={})  # relative path → SHA-256


class MeaningOf(Record):
    """The vectors of an index; beside the manifest, since they come later."""

    model: str                             # as the user named it
    id: str                                # with its weights
    digest: Digest
    embedded: int                          # texts that were new


def home() -> Path:
    """Returns the folder of all indexes: STITCHCUDA_DOCS, else one in the user's cache. Raises `Unavailable` without either,
    and for STITCHCUDA_DOCS=off."""
    given = os.environ.get("STITCHCUDA_DOCS")
    if given == "off":
        raise Unavailable("documentation is switched off (STITCHCUDA_DOCS=off)")
    try:
        return Path(given).expanduser().absolute() if given else user_cache() / "docs"
    except RuntimeError as error:
        raise Unavailable(f"STITCHCUDA_DOCS={given} names a home that is not there: name a folder") from error


def place_of(roots: Sequence[str]) -> Path:
    """The folder for the indexes of these sources."""
    return home() / f"v{FORMAT}" / hashlib.sha256("\0".join(sorted(roots)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def other_formats() -> list[str]:
    """Formats of indexes that other versions of stitchcuda have left, such as "v2"."""
    try:
        return sorted(path.name for path in home().iterdir() if path.name.startswith("v") and path.name != f"v{FORMAT}")
    except OSError:
        return []


@contextlib.contextmanager
def lock(place: Path, waiting: Callable[[str], None] | None) -> Iterator[bool]:
    """Locks a place for one build; a killed process releases the lock. Yields False if another build has it and `waiting` is
    None, else waits.

    `waiting(who)` is called once before it waits. Raises `Unavailable` where nothing can be written.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Unavailable(
            f"the documentation index cannot be written to {place} ({error.strerror or error}): set STITCHCUDA_DOCS or "
            "XDG_CACHE_HOME to a folder you may write to"
        ) from error
    try:
        if not _taken(handle):
            if waiting is None:
                yield False
                return
            waiting(os.pread(handle, 200, 0).decode("utf-8", "replace") or "another process")
            while not _taken(handle):
                time.sleep(0.2)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} since {time.strftime('%H:%M:%S')}".encode(), 0)
        for left in place.glob("new-*"):   # of builds that were killed
            shutil.rmtree(left, ignore_errors=True)
        yield True
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def new_folder(place: Path) -> Path:
    """A new folder to build in."""
    folder = place / f"new-{secrets.token_hex(6)}"
    folder.mkdir()
    return folder


def publish(place: Path, folder: Path, manifest: Manifest) -> tuple[Path, Manifest]:
    """Makes what was built in `folder` the current index, and removes what is older than the one before. Raises OSError."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for path in files.values():
        _flush(path)
    whole = manifest.model_copy(update={"files": {name: digest_of(path) for name, path in files.items()}})
    write_text(folder / _MANIFEST, whole.model_dump_json(indent=1))
    target = place / f"index-{time.time_ns()}-{folder.name.removeprefix('new-')}"
    os.rename(folder, target)
    write_text(place / _CURRENT, target.name)
    keep = {target.name, *[indexe.name for indexe in indexes(place)][: KEPT]}
    for old in place.glob("index-*"):
        if old.name not in keep:
            shutil.rmtree(old, ignore_errors=True)
    return target, whole


def add_vectors(index: Path, made: Path, meaning: MeaningOf) -> MeaningOf:
    """Moves the vectors in the file `made` into a published index. Returns `meaning` with their digest. Raises OSError."""
    _flush(made)
    whole = meaning.model_copy(update={"digest": digest_of(made)})
    os.replace(made, index / VECTORS)
    write_text(index / _MEANING, whole.model_dump_json())
    return whole


def indexes(place: Path) -> list[Path]:
    """Returns the indexes that have a manifest, the current one first, then the newest."""
    try:
        current = (place / _CURRENT).read_text().strip()
    except OSError:
        current = ""
    found = [index for index in place.glob("index-*") if os.access(index / _MANIFEST, os.R_OK)]
    return sorted(found, key=lambda index: (index.name == current, index.name), reverse=True)


def manifest_of(index: Path) -> Manifest | None:
    """Reads an index' manifest; None if it cannot be read or is of another format."""
    try:
        found = Manifest.model_validate_json((index / _MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.format == FORMAT else None


def meaning_of(index: Path) -> MeaningOf | None:
    """Reads which vectors an index has; None if it has none."""
    try:
        return MeaningOf.model_validate_json((index / _MEANING).read_bytes())
    except (OSError, ValidationError):
        return None


def has_vectors(index: Path, meaning: MeaningOf) -> bool:
    """Whether the index' vectors have the digest that they were written with."""
    try:
        return digest_of(index / VECTORS) == meaning.digest
    except OSError:
        return False


def damage(index: Path, manifest: Manifest) -> str:
    """Returns one sentence on the first file that is not as it was written; "" if all are."""
    for name, digest in manifest.files.items():
        try:
            if digest_of(index / name) != digest:
                return f"{name} of the documentation index has been changed"
        except OSError as error:
            return f"{name} of the documentation index cannot be read ({error.strerror or error})"
    return ""


def digest_of(path: Path) -> Digest:
    """Returns a file's SHA-256. Raises OSError, also for a pipe or device, which might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prune(keep: Path) -> None:
    """Removes the indexes of sources that nobody has built for longest, beyond `PLACES`."""
    def built(place: Path) -> float:
        with contextlib.suppress(OSError):
            return (place / _CURRENT).stat().st_mtime
        return 0.0

    with contextlib.suppress(OSError):
        others = sorted((path for path in keep.parent.iterdir() if path != keep and path.is_dir()), key=built, reverse=True)
        for old in others[PLACES - 1 :]:
            with lock(old, None) as alone:
                if alone:
                    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes all of `text`, or leaves the file as it was. Raises OSError."""
    replace_file(path, text.encode(), 0o644)       # other users may search an index of a shared folder


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


