"""The workspace: one relocatable folder with artefacts by digest, a ledger of attempts per session, and the sessions' files.

    WORKSPACE/artefacts/ab/cdef…          any bytes, named by their SHA-256, verified when read
    WORKSPACE/cache/                      builds; may be deleted at any time
    WORKSPACE/memory.sqlite               lessons of its sessions
    WORKSPACE/sessions/NAME/session.json  what was asked for           .../ledger.jsonl       attempts, append-only
    WORKSPACE/sessions/NAME/lock          held while it runs           .../checkpoints.sqlite the graph's checkpoints
    WORKSPACE/sessions/NAME/program/      what the session ended with  .../report.md          its summary
    WORKSPACE/sessions/NAME/transcript.jsonl   calls of models, append-only      .../failure   why the last run failed

Nothing in it is an absolute path, so a copy on another machine goes on from where it was. This module never decides
anything about attempts and knows no graph. Where to look next: `session.py` (who creates sessions), `nodes/` (who fills them).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Protocol

from stitchcuda.errors import BadInput, SessionBusy, Unavailable
from stitchcuda.lines import Lines
from stitchcuda.state import Attempt, Call, Digest, Record, Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_materialising = threading.Lock()
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write under `path` into a sentence for people: no room is Unavailable, no permission BadInput."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unavailable(f"no space left to write {path}: free some, or choose another folder with --workspace") from error
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot write {path} ({reason}): choose a folder you may write to with --workspace") from error


def write_atomically(path: Path, data: bytes) -> None:
    """All of `data` or the file as it was, whatever happens: temporary file, fsync, rename, fsync of the folder."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Store(Protocol):
    """Where artefacts and ledgers live. Digests resolve wherever the same store is reachable."""

    def put(self, data: bytes) -> Digest:
        """Stores `data` and returns its SHA-256; storing the same bytes again changes nothing."""
        ...

    def get(self, digest: Digest) -> bytes:
        """The bytes named `digest`. Raises Unavailable when they are missing or damaged."""
        ...

    def append(self, session: str, attempt: Attempt) -> Attempt:
        """Records an attempt and returns what the ledger holds: the first record with this id wins."""
        ...

    def attempts(self, session: str) -> Mapping[str, Attempt]:
        """All recorded attempts of a session by id, oldest first."""
        ...

    def record(self, session: str, call: Call) -> Call:
        """Records a call of a model and returns what the transcript holds: the first record with this id wins."""
        ...

    def calls(self, session: str) -> Mapping[str, Call]:
        """All recorded calls of a session's models by id, oldest first."""
        ...


class FolderStore:
    """The store of one workspace folder. Several threads may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ledgers: dict[str, Lines[Attempt]] = {}
        self._transcripts: dict[str, Lines[Call]] = {}

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
            raise Unavailable(f"the workspace lacks {path}: was it copied whole?") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise Unavailable(f"{path} is damaged (its content is not what its name says): restore it from a copy")
        return data

    def append(self, session: str, attempt: Attempt) -> Attempt:
        ledger = self._ledger(session)
        with writing(ledger.path):
            return ledger.append(attempt)

    def attempts(self, session: str) -> Mapping[str, Attempt]:
        return self._ledger(session).records()

    def record(self, session: str, call: Call) -> Call:
        transcript = self._transcript(session)
        with writing(transcript.path):
            return transcript.append(call)

    def calls(self, session: str) -> Mapping[str, Call]:
        return self._transcript(session).records()

    def _artefact(self, digest: Digest) -> Path:
        return self.root / "artefacts" / digest[:2] / digest[2:]

    def _ledger(self, session: str) -> Lines[Attempt]:
        path = self.root / "sessions" / session / "ledger.jsonl"
        return self._ledgers.setdefault(session, Lines(path, Attempt, "attempt", lambda attempt: attempt.id))

    def _transcript(self, session: str) -> Lines[Call]:
        path = self.root / "sessions" / session / "transcript.jsonl"
        return self._transcripts.setdefault(session, Lines(path, Call, "call", lambda call: call.id))


def put_tree(store: Store, files: Mapping[str, str | bytes]) -> Digest:
    """Stores a program's files and returns the digest of their manifest. The same files give the same digest."""
    entries: dict[str, Digest] = {}
    for name in sorted(files):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise BadInput(f"a program's file cannot be named {name!r}: paths are relative and stay inside the program")
        content = files[name]
        entries[path.as_posix()] = store.put(content.encode() if isinstance(content, str) else content)
    return store.put(json.dumps({"files": entries}, sort_keys=True, indent=1).encode())


def get_tree(store: Store, digest: Digest) -> dict[str, bytes]:
    """The files behind a manifest, by relative path."""
    manifest: dict[str, dict[str, Digest]] = json.loads(store.get(digest))
    return {name: store.get(content) for name, content in manifest["files"].items()}


def materialise(store: Store, digest: Digest, folder: Path) -> Path:
    """Writes the program named `digest` as `folder`, replacing what was there, and returns `folder`.

    The folder appears whole or not at all: it is written beside its place and renamed. One that is as it should be is left
    alone: several threads may ask for the same program, and one of them may be building it already.
    """
    files = get_tree(store, digest)
    with writing(folder), _materialising:
        if folder.is_dir() and _content(folder) == files:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".tmp-"))
        try:
            fresh.chmod(0o755)
            for name, content in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(fresh, folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return folder


def _content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class SessionRecord(Record):
    """What a session was asked to do, as its session.json says. Only its budgets may change later."""

    name: str
    reference: Digest                      # the reference's bytes
    reference_name: str                    # file name of the reference's copy in the session's folder
    reference_path: str = ""               # where it came from, relative to the workspace; "" for a module given in Python
    source: Digest                         # readable source text of the reference
    device: str = "auto"                   # as asked: resolved again on each machine
    settings: Settings
    created: str = ""                      # UTC, ISO 8601


class SessionLock:
    """Exclusive ownership of one session by one process. The kernel drops it when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> SessionLock:
        with writing(self._path):
            file = self._path.open("a+")
        if not _locked(file):
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise SessionBusy(
                f"session {self._path.parent.name!r} is being run by process {owner}: wait for it or stop it, then try again"
            )
        with writing(self._path):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        self._file = file
        return self

    @property
    def held(self) -> bool:
        """Whether some process owns the session now."""
        if not self._path.exists():
            return False
        with self._path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _locked(file: IO[str]) -> bool:
    """Tries for a moment: somebody who only asks whether the session runs holds the lock for microseconds."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False


class Workspace:
    """One workspace folder. `create=False` refuses a folder that is not there yet."""

    def __init__(self, folder: Path | str | None = None, *, create: bool = True) -> None:
        self.root = Path(folder).expanduser().resolve() if folder else self.default()
        if create:
            with writing(self.root):
                (self.root / "sessions").mkdir(parents=True, exist_ok=True)
        elif not (self.root / "sessions").is_dir():
            raise BadInput(f"there is no workspace at {self.root}: run optimize there first, or name another with --workspace")
        self.store = FolderStore(self.root)

    @staticmethod
    def default() -> Path:
        """STITCHCUDA_WORKSPACE, else `.stitchcuda` in the current folder."""
        return Path(os.environ.get("STITCHCUDA_WORKSPACE") or ".stitchcuda").expanduser().resolve()

    @property
    def option(self) -> str:
        """What a command typed here must say to mean this workspace: "" for the default one."""
        return "" if self.root == self.default() else f" --workspace {shlex.quote(str(self.root))}"

    @property
    def cache(self) -> Path:
        """Builds by content. May be deleted at any time."""
        return self.root / "cache"

    def folder(self, session: str) -> Path:
        return self.root / "sessions" / session

    def sessions(self) -> tuple[SessionRecord, ...]:
        """All sessions of this workspace, oldest first."""
        return tuple(sorted(map(self.record, self._names()), key=lambda record: (record.created, record.name)))

    def _names(self) -> list[str]:
        found = (path.parent.name for path in (self.root / "sessions").glob("*/session.json"))
        return sorted(name for name in found if not name.startswith("."))

    def record(self, session: str) -> SessionRecord:
        """Raises BadInput for a session that this workspace does not have."""
        path = self.folder(session) / "session.json"
        if not _NAME.fullmatch(session) or not path.is_file():
            known = ", ".join(self._names()) or "none yet"
            raise BadInput(f"there is no session {session!r} in {self.root}: it has {known}")
        return SessionRecord.model_validate_json(path.read_bytes())

    def create(self, record: SessionRecord) -> SessionRecord:
        """Makes the session's folder, whole or not at all. An empty tail "-" of the name is numbered: `mlp-` → `mlp-1`.

        Raises BadInput for a name that is taken or cannot be a folder's name.
        """
        numbered = record.name.endswith("-")
        for number in range(1, 1_000_000):
            named = record.model_copy(update={"name": f"{record.name}{number}" if numbered else record.name})
            if not _NAME.fullmatch(named.name):
                raise BadInput(f"{named.name!r} cannot name a session: use up to 64 letters, digits, dots, dashes, underscores")
            folder = self.folder(named.name)
            with writing(folder):
                fresh = Path(tempfile.mkdtemp(dir=self.root / "sessions", prefix=".tmp-"))
            try:
                fresh.chmod(0o755)
                write_atomically(fresh / "session.json", named.model_dump_json(indent=1).encode())
                write_atomically(fresh / record.reference_name, self.store.get(record.reference))
                os.rename(fresh, folder)
                return named
            except OSError as error:
                shutil.rmtree(fresh, ignore_errors=True)
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                if not numbered:
                    raise BadInput(
                        f"session {named.name!r} exists already in {self.root}: resume it, or choose another name"
                    ) from error
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
        raise Unavailable(f"{self.root} has no free name left for {record.name!r}")

    def with_settings(self, record: SessionRecord, settings: Settings) -> SessionRecord:
        """Writes the session's record anew, with other budgets. Raises `SessionBusy` while it runs."""
        changed = record.model_copy(update={"settings": settings})
        folder = self.folder(record.name)
        with SessionLock(folder), writing(folder):
            write_atomically(folder / "session.json", changed.model_dump_json(indent=1).encode())
        return changed

    def discard(self, session: str) -> None:
        """Forgets a session that never came to a baseline, so that its name is free again."""
        shutil.rmtree(self.folder(session), ignore_errors=True)
