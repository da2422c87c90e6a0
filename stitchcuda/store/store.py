"""Defines what the folder store and the PostgreSQL store have in common: artefacts, ledgers, and programs as trees of files.

An artefact is any bytes, named by their SHA-256 (its digest). A ledger is a session's list of attempts, a transcript its list
of calls to models; both are append-only, and the first record with an id stays. Nothing here knows what a session means.

Where to look next: `store/folder_store.py`, `store/postgres_store.py` (the two stores), `store/lines.py` (ledgers as files).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from stitchcuda.errors import BadInput
from stitchcuda.state import Attempt, Call, Digest
from stitchcuda.store.files import UNFINISHED, writing
from stitchcuda.store.lines import R
from stitchcuda.store.session_record import SessionRecord, now

_materialising = threading.Lock()
REPAIR = "mended-"                         # begins the id of a transcript entry that notes a repair, not a call


class IntactRecords(NamedTuple):
    """The records of a session's ledger and transcript that can be read."""

    attempts: tuple[Attempt, ...]
    calls: tuple[Call, ...]
    damage: tuple[str, ...] = ()           # "WHAT is damaged" for each record that cannot be read


class RecordList(Protocol[R]):
    """The attempts, or the calls, of one session by id: lines of a file, or rows of a table."""

    def append(self, record: R) -> R:
        """Adds a record and returns the one stored under its id, which is the first one that had it."""

    def records(self) -> Mapping[str, R]:
        """All records by id, oldest first. Raises Damaged for one that is not what was written."""

    def readable(self) -> tuple[tuple[R, ...], tuple[str, ...]]:
        """The undamaged records, oldest first, and a sentence for each damaged one."""

    def replace(self, records: Iterable[R]) -> None:
        """Leaves only these records. The former ones stay beside them, for people to look at."""


class Store(ABC):
    """Where sessions, their artefacts and ledgers are stored. Digests resolve wherever the same store is reachable.

    Reading needs no ownership. Only the owner of a session (`owning`) writes what belongs to it. In a store that several
    machines share, every write checks this, and raises `SessionLost` if another process has taken the session over.
    """

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], RecordList[Any]] = {}

    @abstractmethod
    def put(self, data: bytes) -> Digest:
        """Stores `data` and returns its SHA-256; storing the same bytes again changes nothing."""

    @abstractmethod
    def get(self, digest: Digest) -> bytes:
        """The bytes named `digest`. Raises Damaged when they are missing or not what was written."""

    def append(self, session: str, attempt: Attempt) -> Attempt:
        """Records an attempt and returns what the ledger holds: the first record with this id wins."""
        return self._ledger(session).append(attempt)

    def attempts(self, session: str) -> Mapping[str, Attempt]:
        """All recorded attempts of a session by id, oldest first."""
        return self._ledger(session).records()

    def record(self, session: str, call: Call) -> Call:
        """Records a call of a model and returns what the transcript holds: the first record with this id wins."""
        return self._transcript(session).append(call)

    def calls(self, session: str) -> Mapping[str, Call]:
        """All recorded calls of a session's models by id, oldest first."""
        return self._transcript(session).records()

    def readable_records(self, session: str) -> IntactRecords:
        """The records of a session's ledger and transcript that can be read, and a sentence for each that cannot."""
        attempts, torn = self._ledger(session).readable()
        calls, broken = self._transcript(session).readable()
        return IntactRecords(attempts, calls, (*torn, *broken))

    def replace_records(self, session: str, records: IntactRecords) -> None:
        """Leaves only these records; the former ones stay beside them, for people to look at. For the session's owner."""
        self._ledger(session).replace(records.attempts)
        self._transcript(session).replace(records.calls)

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all sessions, in alphabetical order."""

    @abstractmethod
    def session(self, name: str) -> SessionRecord | None:
        """The record of a session; None if there is no such session. Raises Damaged if it cannot be read."""

    @abstractmethod
    def open(self, record: SessionRecord) -> bool:
        """Adds a session, whole or not at all; False if its name is taken."""

    @abstractmethod
    def update(self, record: SessionRecord) -> None:
        """Replaces a session's record. For its owner."""

    @abstractmethod
    def delete(self, session: str) -> None:
        """Removes a session with its ledger, transcript and checkpoints; artefacts stay. For its owner, if it has one."""

    @abstractmethod
    def adding(self) -> AbstractContextManager[object]:
        """Inside, no artefact is swept: for a caller that puts artefacts which no session names yet. An owner needs none."""

    @abstractmethod
    def sweeping(self) -> AbstractContextManager[bool]:
        """Inside, True: nobody else uses the artefacts. False: somebody owns a session or is adding, so delete nothing."""

    @abstractmethod
    def artefacts(self) -> Iterator[tuple[Digest, int]]:
        """All artefacts with their sizes in bytes."""

    @abstractmethod
    def delete_artefact(self, digest: Digest) -> None:
        """Removes an artefact. Inside `sweeping` only."""

    @abstractmethod
    def owning(self, session: str) -> AbstractContextManager[object]:
        """Exclusive ownership inside; ends by itself when the process dies. Raises `SessionBusy` at once if it is taken."""

    @abstractmethod
    def owner(self, session: str) -> str:
        """Which process runs the session now, as text for people; "" if none does."""

    @abstractmethod
    def failure(self, session: str) -> str | None:
        """Why the session's last run failed; None if it did not."""

    @abstractmethod
    def set_failure(self, session: str, why: str | None) -> None:
        """Records why the run failed; None: it did not. For the session's owner."""

    @abstractmethod
    def _list(self, session: str, field: str, kind: type[R]) -> RecordList[R]:
        """Opens the session's records of `kind`; `field` ("attempt" or "call") is their name in the store."""

    def _close_lists(self, session: str) -> None:
        """Forgets what was read of a session: another one may get its name."""
        for field in ("attempt", "call"):
            self._lists.pop((session, field), None)

    def _ledger(self, session: str) -> RecordList[Attempt]:
        return self._lists.setdefault((session, "attempt"), self._list(session, "attempt", Attempt))

    def _transcript(self, session: str) -> RecordList[Call]:
        return self._lists.setdefault((session, "call"), self._list(session, "call", Call))


def record_repairs(store: Store, session: str, repairs: Sequence[str]) -> None:
    """Notes in the session's transcript what was found damaged and what was done about it, a sentence each. For its owner."""
    if repairs:
        nothing, number = store.put(b"{}"), sum(name.startswith(REPAIR) for name in store.calls(session))
        for offset, text in enumerate(repairs):
            name = f"{REPAIR}{number + offset}"
            store.record(session, Call(id=name, model="", request=nothing, reply=None, outcome=text, created=now()))


def list_repairs(store: Store, session: str) -> tuple[str, ...]:
    """Every repair of a session that `record_repairs` noted, each with its day, oldest first."""
    calls = store.calls(session).items()
    return tuple(f"{call.created[:10]}: {call.outcome}" for name, call in calls if name.startswith(REPAIR))


def put_tree(store: Store, files: Mapping[str, str | bytes]) -> Digest:
    """Stores a program's files, by relative path, and returns the digest of their manifest: the same for the same files.

    Raises BadInput for a path that is absolute or leaves the program's folder.
    """
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

    The folder appears whole or not at all: it is written under a temporary name and renamed. A folder that has the right
    content is left alone: several threads may ask for the same program, and another may be building in it.
    """
    files = get_tree(store, digest)
    with writing(folder), _materialising:
        if folder.is_dir() and _content(folder) == files:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=UNFINISHED))
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
