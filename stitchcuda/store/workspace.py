"""Defines a workspace: one relocatable folder with sessions, or that folder beside a database that several machines share.

    WORKSPACE/cache/                      builds; may be deleted at any time
    WORKSPACE/memory.sqlite               lessons of its sessions
    WORKSPACE/sessions/NAME/program/      what the session ended with  .../report.md          its summary
    WORKSPACE/sessions/NAME/programs/     what it tried, written out   .../NAME.py            its copy of the reference

All else that a session rests on is in its store: the same folder, or PostgreSQL. With PostgreSQL the folder is
WORKSPACE/shared/NUMBER, and everything in it can be written again. No path is absolute, so a copy on another machine goes on
from where it was. This module never decides anything about attempts and knows no graph.

Where to look next: `store/folder_store.py`, `store/postgres_store.py` (the stores), `sessions/session.py` (the sessions).
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from pathlib import Path

from stitchcuda.errors import BadInput, Damaged, Unavailable
from stitchcuda.state import Settings
from stitchcuda.store.database import SCHEMES
from stitchcuda.store.files import write_atomically, writing
from stitchcuda.store.folder_store import FolderStore
from stitchcuda.store.postgres_store import PostgresStore
from stitchcuda.store.session_record import SessionRecord
from stitchcuda.store.store import Store

CHECKPOINT = "STITCHCUDA_CHECKPOINT"
_BEGINS = re.compile(r"[a-z][a-z0-9+.-]{0,20}://|(?:host|hostaddr|port|dbname|user|service)(?==)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Workspace:
    """One workspace.

    `folder`: by default that of `default()`. `create=False` raises BadInput for a folder that is not there yet; beside a
    database the folder is made when something is written to it. `checkpoint`: URL of the database with its sessions; by default
    the one in STITCHCUDA_CHECKPOINT; without either, sessions are in the folder.
    """

    def __init__(self, folder: Path | str | None = None, *, create: bool = True, checkpoint: str | None = None) -> None:
        self.root = Path(folder).expanduser().resolve() if folder else self.default()
        # The options by which a command typed here means this workspace; "" for the default one.
        self.option = "" if self.root == self.default() else f" --workspace {shlex.quote(str(self.root))}"
        self.database: PostgresStore | None = None
        self.store: Store
        if url := checkpoint or os.environ.get(CHECKPOINT, "").strip():
            if not url.startswith(SCHEMES):
                raise BadInput(f"--checkpoint cannot be {_shown(url)}: give postgresql://USER@HOST/DATABASE, or leave it out")
            self.store = self.database = PostgresStore(url)
            if url != os.environ.get(CHECKPOINT, "").strip():
                self.option += f" --checkpoint {shlex.quote(self.database.database.shown)}"
            self.database.option = self.option
            self.root = self.root / "shared" / hashlib.sha256(str(self.database).encode()).hexdigest()[:8]
        elif create:
            with writing(self.root):
                (self.root / "sessions").mkdir(parents=True, exist_ok=True)
        elif not (self.root / "sessions").is_dir():
            near = self._above()
            example = f", such as {near}" if near else ""
            raise BadInput(
                f"there is no workspace at {self.root}: run optimize there first, or name another with --workspace{example}"
            )
        if self.database is None:
            self.store = FolderStore(self.root)

    def _above(self) -> Path | None:
        """Returns the workspace of the nearest folder above the one that this would be in; None if there is none."""
        places = (folder / self.root.name for folder in self.root.parent.parents)
        return next((place for place in places if (place / "sessions").is_dir()), None)

    @classmethod
    def at(cls, place: Workspace | Path | str | None, *, create: bool = True) -> Workspace:
        """The workspace itself, or the one at this folder."""
        return place if isinstance(place, Workspace) else cls(place, create=create)

    @staticmethod
    def default() -> Path:
        """STITCHCUDA_WORKSPACE, else `.stitchcuda` in the current folder."""
        return Path(os.environ.get("STITCHCUDA_WORKSPACE") or ".stitchcuda").expanduser().resolve()

    @property
    def where(self) -> str:
        """Where its sessions are stored, as text for people: the folder, or the database's URL without its password."""
        return str(self.database or self.root)

    @property
    def cache(self) -> Path:
        """The folder of builds, by content. It may be deleted at any time."""
        return self.root / "cache"

    def folder(self, session: str) -> Path:
        """The session's folder on this machine. It may not exist yet if only other machines have run it (see `prepared`)."""
        return self.root / "sessions" / session

    def prepared(self, record: SessionRecord) -> Path:
        """The session's folder, with its copy of the reference: written now if only other machines have run the session."""
        folder = self.folder(record.name)
        if not (folder / record.reference_name).exists():
            write_atomically(folder / record.reference_name, self.store.get(record.reference))
        return folder

    def sessions(self) -> tuple[SessionRecord, ...]:
        """The records of all sessions that can be read, oldest first; `unreadable` has the others."""
        found = (self._record(name) for name in self.store.names())
        known = [record for record in found if isinstance(record, SessionRecord)]
        return tuple(sorted(known, key=lambda record: (record.created, record.name)))

    def unreadable(self) -> dict[str, str]:
        """By session name, a sentence for each record that is damaged."""
        found = {name: self._record(name) for name in self.store.names()}
        return {name: str(record) for name, record in found.items() if isinstance(record, Damaged)}

    def _record(self, name: str) -> SessionRecord | Damaged | None:
        try:
            return self.store.session(name)
        except Damaged as error:
            return error

    def record(self, session: str) -> SessionRecord:
        """The record of a session. Raises BadInput if this workspace does not have it, Damaged if it cannot be read."""
        found = self.store.session(session) if _NAME.fullmatch(session) else None
        if found is None:
            known = ", ".join(self.store.names()) or "none yet"
            raise BadInput(f"there is no session {session!r} in {self.where}: it has {known}")
        return found

    def create(self, record: SessionRecord) -> SessionRecord:
        """Adds a session, whole or not at all, and returns its record. A name that ends with "-" is numbered: `mlp-` → `mlp-1`.

        Raises BadInput for a name that is taken or cannot be a folder's name.
        """
        numbered = record.name.endswith("-")
        for number in range(1, 1_000_000):
            named = record.model_copy(update={"name": f"{record.name}{number}" if numbered else record.name})
            self._check_name(named.name)
            if self.store.open(named):
                self.prepared(named)
                return named
            if not numbered:
                raise self._taken(named.name)
        raise Unavailable(f"{self.where} has no free name left for {record.name!r}")

    def check_free(self, name: str) -> None:
        """Raises BadInput for a name that `create` would refuse now."""
        self._check_name(name)
        if not name.endswith("-") and name in self.store.names():
            raise self._taken(name)

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} cannot name a session: use up to 64 letters, digits, dots, dashes, underscores")

    def _taken(self, name: str) -> BadInput:
        return BadInput(f"session {name!r} exists already in {self.where}: resume it, or choose another name")

    def with_settings(self, record: SessionRecord, settings: Settings) -> SessionRecord:
        """Stores the session's record with other settings, and returns it. Raises `SessionBusy` while the session runs."""
        changed = record.model_copy(update={"settings": settings})
        with self.store.owning(record.name):
            self.store.update(changed)
        return changed

    def discard(self, session: str) -> None:
        """Removes a session: its ledger, checkpoints and files here. Artefacts that only it used stay until a sweep."""
        self.store.delete(session)
        if self.database is not None:      # a folder store has removed the files, and a new session may have the name by now
            shutil.rmtree(self.folder(session), ignore_errors=True)

    def close(self) -> None:
        """Closes the connection to the database, if there is one."""
        if self.database is not None:
            self.database.close()


def _shown(text: str) -> str:
    """The beginning of a text that is no URL of a database, as far as it cannot be part of a password."""
    found = _BEGINS.match(text)
    return f"{found[0]}…" if found else "that"
