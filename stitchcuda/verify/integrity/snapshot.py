"""Copies a program into a private, read-only folder, so that what is screened, built and run are the same bytes.

Links, special files and unreadable files are refused, each in a sentence: following a link could copy a file of the user's to
where the program can read it. All folders are checked before anything is copied, up to the limits at the top of this file.
Nothing is run. Where to look next: `verify/judge/judge_resources.py` (who copies), `verify/api.py` (who checks beforehand).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.errors import BadInput

_MOST_BYTES = 256 * 2**20                  # of all files of a program, its constants included
_MOST_FILES = 2000                         # files and folders
_MOST_DEPTH = 32                           # nested folders
_SKIPPED = ("__pycache__", ".git", ".venv", ".stitchcuda")
_CHUNK = 1 << 20
_MEND = "Give the folder with model_new.py alone."
_FORMS = "give a folder with model_new.py, or a Python file with class ModelNew"


def snapshot(program: Path, place: Path) -> Path:
    """Copies `program` (a folder, or a Python file) into the folder `place`; returns the copy's path. Raises `BadInput`."""
    if not program.is_dir():
        check_readable(program)
        place.mkdir(parents=True)
        made = place / program.name
        _copy(program, made, program.name, _MOST_BYTES)
        return made
    entries = list(_entries(program))
    root = place / "program"
    root.mkdir(parents=True)
    left = _MOST_BYTES
    for inside, is_folder in entries:
        if is_folder:
            (root / inside).mkdir()
        else:
            left -= _copy(program / inside, root / inside, f"{inside} in the program", left)
    return root


def digest_of(copy: Path) -> str:
    """Returns the SHA-256 of a copy's files, with their places in it."""
    digest = hashlib.sha256()
    for file in sorted(path for path in (copy.rglob("*") if copy.is_dir() else (copy,)) if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(copy)}\0{content}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def check_readable(program: Path) -> None:
    """Raises `BadInput` for a program that `snapshot` would refuse to read. For callers that open its files themselves."""
    if program.is_dir():
        for _ in _entries(program):
            pass
        return
    _need_access(program, program.name)
    with _readable(program.name):
        status = program.stat()
    if not stat.S_ISREG(status.st_mode):   # checked before it is opened: opening a pipe would wait for a writer
        raise BadInput(f"{program} is no regular file: {_FORMS}.")
    if status.st_size > _MOST_BYTES:
        raise BadInput(f"{program} is no program: it has over {_MOST_BYTES >> 20} MiB: {_FORMS}.")
    with _readable(program.name), program.open("rb", buffering=0) as given:
        given.read(1)


@contextlib.contextmanager
def reading(program: Path) -> Iterator[None]:
    """A context for reading the program's own files after `check_readable`: an OSError for one of them becomes a `BadInput`."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        if named is None or not named.is_relative_to(program):
            raise
        with _readable(program.name if named == program else f"{named.relative_to(program)} in the program"):
            raise


def _entries(program: Path) -> Iterator[tuple[str, bool]]:
    """Yields (path within the program, whether it is a folder), each folder before its contents. Raises `BadInput`."""
    count = size = 0
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        called = f"{folder} in the program" if folder else f"the program {program}"
        with _readable(called), os.scandir(program / folder) as listed:
            for entry in listed:           # not sorted: a folder with too many files is never read as a whole
                if not entry.name.isprintable():
                    raise BadInput(f"{called} holds a file whose name no terminal can show, {entry.name!a}. Rename it.")
                inside = os.path.join(folder, entry.name)
                name = f"{inside} in the program"
                with _readable(name):
                    status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    raise BadInput(f"{name} is a link: programs hold plain files only. Put the file there itself.")
                is_folder = stat.S_ISDIR(status.st_mode)
                if (is_folder and entry.name in _SKIPPED) or inside.endswith(".pyc"):
                    continue
                if not is_folder and not stat.S_ISREG(status.st_mode):
                    raise BadInput(_no_file(name))
                _need_access(program / inside, name)
                count, size = count + 1, size + (0 if is_folder else status.st_size)
                if count > _MOST_FILES or size > _MOST_BYTES:
                    raise BadInput(
                        f"{program} is no program: it holds over {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB. {_MEND}"
                    )
                if inside.count(os.sep) >= _MOST_DEPTH:
                    raise BadInput(f"{program} is no program: its folders lie over {_MOST_DEPTH} deep. {_MEND}")
                yield inside, is_folder
                if is_folder:
                    waiting.append(inside)


def _copy(source: Path, target: Path, name: str, most: int) -> int:
    """Copies a file and returns its bytes. It is opened without following links; it must be regular and have at most `most`
    bytes."""
    with _readable(name):
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb", buffering=0) as given:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(_no_file(name))
        size = 0
        with open(target, "wb") as copy:
            while True:
                with _readable(name):
                    chunk = given.read(_CHUNK)
                if not chunk:
                    break
                size += len(chunk)
                if size > most:            # it grew since its size was read
                    raise BadInput(f"{name} is no source: with it the program has over {_MOST_BYTES >> 20} MiB. {_MEND}")
                copy.write(chunk)
    target.chmod(0o444)
    return size


def _need_access(path: Path, name: str) -> None:
    with _readable(name):
        if not os.access(path, os.R_OK, effective_ids=True) and os.path.lexists(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """A context in which an OSError for the path `name` becomes a `BadInput`."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadInput(f"{name} has vanished while it was read: judge a program that nobody changes meanwhile.") from error
    except OSError as error:
        mend = "allow reading it, or leave it out" if isinstance(error, PermissionError) else "mend or remove it"
        raise BadInput(f"{name} cannot be read ({error.strerror}): {mend}.") from error


def _no_file(name: str) -> str:
    return f"{name} is no regular file: programs hold plain files only. Remove it."
