"""Defines what the folder store and the PostgreSQL store have in common: artefacts, ledgers, and programs as trees of files.

Two stores keep it: `store/folder_store.py` and `store/postgres_store.py`. Nothing here knows what a session means.
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
MENDED = "mended-"


class IntactRecords(NamedTuple):
    """What is whole of a session's ledger and transcript."""

    attempts: tuple[Attempt, ...]
    calls: tuple[Call, ...]
    damage: tuple[str, ...] = ()           # "WHAT is damaged" for each record that cannot be read


class Store(Protocol):
    """Where sessions, their artefacts and ledgers live. Digests resolve wherever the same store is reachable.

    Reading needs no ownership. In a store that several machines share, what belongs to a session is written by its owner only:
    every write checks that it still is, and raises `SessionLost` where somebody else has taken over.
    """

    def put(self, data: bytes) -> Digest:
        """Stores `data` and returns its SHA-256; storing the same bytes again changes nothing."""
        ...

    def get(self, digest: Digest) -> bytes:
        """The bytes named `digest`. Raises Damaged when they are missing or not what was written."""
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

    def names(self) -> list[str]:
        """Of all sessions, in alphabetical order."""
        ...

    def session(self, name: str) -> SessionRecord | None:
        """What a session was asked to do; None for one that is not here."""
        ...

    def open(self, record: SessionRecord) -> bool:
        """Adds a session, whole or not at all; False where its name is taken."""
        ...

    def settle(self, record: SessionRecord) -> None:
        """Replaces a session's record. For its owner."""
        ...

    def forget(self, session: str) -> None:
        """Removes a session with its ledger, transcript and checkpoints; artefacts stay. For its owner, or nobody."""
        ...

    def whole(self, session: str) -> IntactRecords:
        """What can be read of a session's ledger and transcript, and what cannot."""
        ...

    def cut(self, session: str, whole: IntactRecords) -> None:
        """Replaces ledger and transcript by these; what was there is kept beside it, for people. For its owner."""
        ...

    def adding(self) -> AbstractContextManager[object]:
        """For who puts artefacts that no session names yet: nothing is swept meanwhile. An owner needs none."""
        ...

    def sweeping(self) -> AbstractContextManager[bool]:
        """Alone with the artefacts inside, or False where somebody owns a session or is adding."""
        ...

    def artefacts(self) -> Iterator[tuple[Digest, int]]:
        """All artefacts with their sizes in bytes."""
        ...

    def drop(self, digest: Digest) -> None:
        """Removes an artefact. Inside `sweeping` only."""
        ...

    def owning(self, session: str) -> AbstractContextManager[object]:
        """Exclusive ownership inside; ends by itself when the process dies. Raises `SessionBusy` at once where it is taken."""
        ...

    def owner(self, session: str) -> str:
        """Who runs the session now, for people; "" for nobody."""
        ...

    def failure(self, session: str) -> str | None:
        """Why its last run failed; None where it did not."""
        ...

    def fail(self, session: str, why: str | None) -> None:
        """Says why the run failed, or with None that it did not. For its owner."""
        ...


class Kept(Protocol[R]):
    """The records of one kind of one session, by id: lines of a file, or rows of a table."""

    def append(self, record: R) -> R:
        """Adds a record and returns what is kept under its id: the first one stays."""
        ...

    def records(self) -> Mapping[str, R]:
        """All by id, oldest first. Raises Damaged for one that is not what was written."""
        ...

    def readable(self) -> tuple[tuple[R, ...], tuple[str, ...]]:
        """The records that are what was written, oldest first, and for each that is not what to say of it."""
        ...

    def replace(self, records: Iterable[R]) -> None:
        """Leaves these alone; what else was there is kept beside them, for people."""
        ...


class Ledgers(ABC):
    """The ledgers and transcripts of a store's sessions: a `Store` inherits this, and says where records are kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Kept[Any]] = {}

    @abstractmethod
    def _kept_by(self, session: str, field: str, kind: type[R]) -> Kept[R]:
        """The session's records of `kind`, which is called `field` where it is kept."""

    def append(self, session: str, attempt: Attempt) -> Attempt:
        return self._ledger(session).append(attempt)

    def attempts(self, session: str) -> Mapping[str, Attempt]:
        return self._ledger(session).records()

    def record(self, session: str, call: Call) -> Call:
        return self._transcript(session).append(call)

    def calls(self, session: str) -> Mapping[str, Call]:
        return self._transcript(session).records()

    def whole(self, session: str) -> IntactRecords:
        attempts, torn = self._ledger(session).readable()
        calls, broken = self._transcript(session).readable()
        return IntactRecords(attempts, calls, (*torn, *broken))

    def cut(self, session: str, whole: IntactRecords) -> None:
        self._ledger(session).replace(whole.attempts)
        self._transcript(session).replace(whole.calls)

    def _close_ledgers(self, session: str) -> None:
        """Another session may have this name from now on."""
        for field in ("attempt", "call"):
            self._open.pop((session, field), None)

    def _ledger(self, session: str) -> Kept[Attempt]:
        return self._open.setdefault((session, "attempt"), self._kept_by(session, "attempt", Attempt))

    def _transcript(self, session: str) -> Kept[Call]:
        return self._open.setdefault((session, "call"), self._kept_by(session, "call", Call))


def remember(store: Store, session: str, said: Sequence[str]) -> None:
    """Keeps in the session's transcript what was found damaged and done about it. For its owner."""
    if said:
        nothing, number = store.put(b"{}"), sum(name.startswith(MENDED) for name in store.calls(session))
        for text in said:
            call = Call(id=f"{MENDED}{number}", model="", request=nothing, reply=None, outcome=text, created=now())
            store.record(session, call)
            number += 1


def mended(store: Store, session: str) -> tuple[str, ...]:
    """What was ever found damaged of a session and done about it, each with its day, oldest first."""
    calls = store.calls(session).items()
    return tuple(f"{call.created[:10]}: {call.outcome}" for name, call in calls if name.startswith(MENDED))


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
