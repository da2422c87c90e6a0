"""Stores a workspace in one folder: artefacts by digest, and a folder for each session with its ledger and lock.

    WORKSPACE/artefacts/ab/cdef…          any bytes, named by their SHA-256, verified when read
    WORKSPACE/sessions/NAME/session.json  what was asked for           .../ledger.jsonl       attempts, append-only
    WORKSPACE/sessions/NAME/lock          held while it runs           .../checkpoints.sqlite the graph's checkpoints
    WORKSPACE/sessions/NAME/transcript.jsonl   calls of models, append-only      .../failure   why the last run failed

Ownership is a lock of this machine's kernel, which drops it when the process dies.

Where to look next: `store/store.py` (what the methods promise), `store/lines.py` (the format of ledgers).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from pydantic import ValidationError

from stitchcuda.errors import BadInput, Damaged, SessionBusy
from stitchcuda.state import Digest
from stitchcuda.store.files import UNFINISHED, sync_folder, write_atomically, writing
from stitchcuda.store.lines import Lines, R
from stitchcuda.store.session_record import SessionRecord
from stitchcuda.store.store import Store

FILES = {"attempt": "ledger.jsonl", "call": "transcript.jsonl"}
_MARKS = ("session.json", "ledger.jsonl", "checkpoints.sqlite")
"""A folder with any of these files is a session's, even if others are missing."""


class FolderStore(Store):
    """The store of one workspace folder, on one machine. Several threads may use it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def put(self, data: bytes) -> Digest:
        digest = hashlib.sha256(data).hexdigest()
        path = self._artefact(digest)
        # An existing file is compared, not trusted: a damaged one is repaired by whoever has the bytes again.
        if not path.is_file() or path.read_bytes() != data:
            write_atomically(path, data)
        return digest

    def get(self, digest: Digest) -> bytes:
        path = self._artefact(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise Damaged(f"the workspace lacks {path}: was it copied whole?") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(f"{path} is damaged (its content is not what its name says): restore it from a copy")
        return data

    def names(self) -> list[str]:
        found = {path.parent.name for mark in _MARKS for path in (self.root / "sessions").glob(f"*/{mark}")}
        return sorted(name for name in found if not name.startswith("."))

    def session(self, name: str) -> SessionRecord | None:
        path = self.folder(name) / "session.json"
        try:
            record = SessionRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            if name not in self.names():
                return None
            raise Damaged(f"the workspace lacks {path}: restore it from a copy") from error
        except ValidationError as error:
            raise Damaged(f"{path} is damaged ({error.errors()[0]['msg']}): restore it from a copy") from error
        if record.name != name:
            raise Damaged(f"{path} is of session {record.name!r}: a session is copied with `stitchcuda export` and `import`")
        return record

    def open(self, record: SessionRecord) -> bool:
        folder = self.folder(record.name)
        with writing(folder):
            fresh = Path(tempfile.mkdtemp(dir=self.root / "sessions", prefix=UNFINISHED))
        try:
            with writing(folder):
                fresh.chmod(0o755)
                write_atomically(fresh / "session.json", record.model_dump_json(indent=1).encode())
                write_atomically(fresh / record.reference_name, self.get(record.reference))
                try:
                    os.rename(fresh, folder)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                        raise
                    return False
                sync_folder(folder.parent)
                return True
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # it is not there any more if it was renamed

    def update(self, record: SessionRecord) -> None:
        write_atomically(self.folder(record.name) / "session.json", record.model_dump_json(indent=1).encode())

    def delete(self, session: str) -> None:
        # It is renamed first, so that no half of it is ever seen.
        folder = self.folder(session)
        if not folder.exists():
            return
        with writing(folder):
            gone = Path(tempfile.mkdtemp(dir=self.root / "sessions", prefix=UNFINISHED))
            os.rename(folder, gone / session)
            sync_folder(folder.parent)
            shutil.rmtree(gone)
        self._close_lists(session)

    @contextmanager
    def adding(self) -> Iterator[None]:
        with self._sweep_lock(fcntl.LOCK_SH):
            yield

    @contextmanager
    def sweeping(self) -> Iterator[bool]:
        try:
            with self._sweep_lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._remove_unfinished()
                yield True
        except BlockingIOError:
            yield False

    def artefacts(self) -> Iterator[tuple[Digest, int]]:
        for path in (self.root / "artefacts").glob("??/*"):
            if not path.name.startswith("."):
                yield path.parent.name + path.name, path.stat().st_size

    def delete_artefact(self, digest: Digest) -> None:
        self._artefact(digest).unlink(missing_ok=True)

    @contextmanager
    def _sweep_lock(self, how: int) -> Iterator[None]:
        path = self.root / "sweep.lock"
        with writing(path):
            file = path.open("a")
        with file:
            fcntl.flock(file, how)
            yield

    def _remove_unfinished(self) -> None:
        """Removes what killed processes have left half-written. Call it under the exclusive lock: nobody may be writing."""
        for left in (*self.root.glob(f"sessions/{UNFINISHED}*"), *self.root.glob(f"artefacts/??/{UNFINISHED}*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    @contextmanager
    def owning(self, session: str) -> Iterator[None]:
        with SessionLock(self.folder(session)), self.adding():
            yield

    def owner(self, session: str) -> str:
        return SessionLock(self.folder(session)).owner()

    def failure(self, session: str) -> str | None:
        path = self.folder(session) / "failure"
        return path.read_text() if path.exists() else None

    def set_failure(self, session: str, why: str | None) -> None:
        path = self.folder(session) / "failure"
        if why is None:
            with writing(path):
                path.unlink(missing_ok=True)
        else:
            write_atomically(path, why.encode())

    def folder(self, session: str) -> Path:
        return self.root / "sessions" / session

    def _artefact(self, digest: Digest) -> Path:
        return self.root / "artefacts" / digest[:2] / digest[2:]

    def _list(self, session: str, field: str, kind: type[R]) -> Lines[R]:
        return Lines(self.folder(session) / FILES[field], kind, field)


class SessionLock:
    """Exclusive ownership of one session by one process: a context manager. The kernel drops it however the process dies.

    Entering raises SessionBusy if another process owns the session, BadInput if the session was removed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> SessionLock:
        if not self._path.parent.is_dir():
            raise self._gone()
        with writing(self._path):
            file = self._path.open("a+")
        if not _locked(file):
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise SessionBusy(
                f"session {self._path.parent.name!r} is being run by process {owner}: wait for it or stop it, then try again"
            )
        if not _is_still(file, self._path):
            file.close()
            raise self._gone()
        with writing(self._path):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        self._file = file
        return self

    def _gone(self) -> BadInput:
        return BadInput(f"session {self._path.parent.name!r} is not there any more: somebody has removed it")

    def owner(self) -> str:
        """The process that holds it now, such as "process 4711"; "" if none does."""
        try:
            opened = self._path.open()
        except FileNotFoundError:
            return ""
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"process {file.read().strip() or 'unknown'}"
        return ""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_still(file: IO[str], path: Path) -> bool:
    """Whether the open file is the one at `path`: it may have been removed, and written anew, before it was locked."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _locked(file: IO[str]) -> bool:
    """Tries for 0.1 s: `owner`, which only asks whether the session runs, holds the lock for microseconds."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False
