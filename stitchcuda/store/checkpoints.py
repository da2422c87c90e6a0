"""Saves a session's graph checkpoints in one SQLite file, thinned to one per attempt once its verdict is stored.

The saver writes the whole state at every step, so without thinning 500 attempts of eight nodes cost tens of megabytes. All
steps since the last verdict are kept. Write-ahead logging with synchronous=NORMAL: a killed process loses no committed step,
and after a power cut the ledger, which is fsynced first, still knows every attempt.

Where to look next: `store/serializer.py` (values), `store/postgres_checkpoints.py`, `store/session_snapshot.py` (who reads).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.sqlite import SqliteSaver

from stitchcuda.errors import Damaged
from stitchcuda.store import Workspace, writing
from stitchcuda.store.serializer import FILE, explain_damage, serializer

if TYPE_CHECKING:
    from stitchcuda.store.postgres_checkpoints import PostgresCheckpoints

_MIN_FREE = 1 << 20                        # free bytes of a disk below which a file is copied elsewhere to be read
_STEPS = "thread_id = ? AND checkpoint_ns = ''"


@contextmanager
def open_checkpoints(home: Workspace, session: str, *, reading: bool = False) -> Iterator[Checkpoints | PostgresCheckpoints]:
    """Opens a session's checkpoints: those in its folder, or in the database. Inside, errors of the database become
    `Unavailable`.

    `reading`: if there is no file, none is made, and the folder need not be writable.
    """
    if home.database is None:
        with Checkpoints(home.folder(session), reading=reading) as saver:
            yield saver
        return
    from stitchcuda.store.postgres_checkpoints import PostgresCheckpoints

    with home.database.database.explain_errors(), PostgresCheckpoints(home.database) as shared:
        yield shared


def copy_checkpoints(
    source: BaseCheckpointSaver[Any], name: str, target: BaseCheckpointSaver[Any], to: str, *, before: str = "~"
) -> None:
    """Copies the checkpoints of session `name` to another saver, oldest first, as those of session `to`.

    `before`: only checkpoints with a smaller id; by default all.
    """

    def renamed(channel: str, value: Any) -> Any:
        if channel == "session" and value == name:
            return to
        if channel == "report" and str(value or "").startswith(f"sessions/{name}/"):
            return f"sessions/{to}/{value.rpartition('/')[2]}"
        return value

    found = source.list({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
    for saved in reversed([saved for saved in found if saved.checkpoint["id"] < before]):
        values = {channel: renamed(channel, value) for channel, value in saved.checkpoint["channel_values"].items()}
        place: RunnableConfig = {"configurable": {"thread_id": to, "checkpoint_ns": ""}}
        if saved.parent_config:
            place["configurable"]["checkpoint_id"] = saved.parent_config["configurable"]["checkpoint_id"]
        checkpoint = saved.checkpoint.copy() | {"channel_values": values}
        stored = target.put(place, cast(Checkpoint, checkpoint), saved.metadata, saved.checkpoint["channel_versions"])
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in saved.pending_writes or ():
            by_task.setdefault(task, []).append((channel, renamed(channel, value)))
        for task, writes in by_task.items():
            target.put_writes(stored, writes, task)


def continue_ids_after(latest: str) -> None:
    """Makes ids of new checkpoints sort after `latest`, even if the clock was set back since: LangGraph takes the greatest id
    for the newest checkpoint, and keeps its own clock from going back within one process only."""
    clock: Any = ids
    with suppress(ValueError):             # `latest` is no UUID: it is damaged, and repair goes back to one before it
        clock._last_v6_timestamp = max(clock._last_v6_timestamp or 0, ids.UUID(latest).time)


class Checkpoints(SqliteSaver):
    """A session's checkpoints in its folder; a context manager that closes the file, which is made on first use.

    Reading raises `Damaged` for a value that is not what was written.
    """

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self.path = folder / FILE
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        connection = sqlite3.connect(self._read_from() if reading else self.path, check_same_thread=False, timeout=30)
        super().__init__(connection, serde=serializer())
        try:
            with explain_damage(self.path), self.cursor() as cursor:
                cursor.execute("PRAGMA synchronous=NORMAL")
                cursor.execute(
                    "CREATE TABLE IF NOT EXISTS milestones (thread_id TEXT NOT NULL, attempt TEXT NOT NULL, "
                    "checkpoint_id TEXT NOT NULL, PRIMARY KEY (thread_id, attempt))"
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _read_from(self) -> Path | str:
        """The file, or a temporary copy of it and its log: SQLite reads no file with a log if it cannot write beside it."""
        if not self.path.exists():
            return ":memory:"
        if os.access(self.path.parent, os.W_OK) and shutil.disk_usage(self.path.parent).free >= _MIN_FREE:
            return self.path
        place = Path(tempfile.gettempdir())
        with writing(place):
            self._copy = tempfile.TemporaryDirectory(prefix="stitchcuda-read-")
            for part in ("", "-wal"):
                if (file := Path(f"{self.path}{part}")).exists():
                    shutil.copyfile(file, Path(self._copy.name, file.name))
        return Path(self._copy.name, FILE)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.conn.close()
        if self._copy is not None:
            self._copy.cleanup()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with explain_damage(self.path):
            return super().get_tuple(config)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None, before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        with explain_damage(self.path):
            yield from super().list(config, filter=filter, before=before, limit=limit)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Stores a checkpoint. The first one with a new attempt as its head replaces the steps since the attempt before."""
        stored = super().put(config, checkpoint, metadata, new_versions)
        head = checkpoint["channel_values"].get("head")
        if head and not config["configurable"].get("checkpoint_ns"):
            self._thin(str(config["configurable"]["thread_id"]), head, checkpoint["id"])
        return stored

    def check_file(self) -> None:
        """Raises Damaged if the file is not what was written."""
        with explain_damage(self.path), self.cursor(transaction=False) as cursor:
            found = cursor.execute("PRAGMA quick_check(1)").fetchone()
        if found[0] != "ok":
            raise Damaged(f"{self.path} is damaged ({str(found[0]).splitlines()[0]})")

    def newest(self, session: str) -> str | None:
        """The id of the session's newest checkpoint; None if there is none."""
        with explain_damage(self.path), self.cursor(transaction=False) as cursor:
            (found,) = cursor.execute(
                "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ''", (session,)
            ).fetchone()
        return None if found is None else str(found)

    def milestones(self, session: str) -> dict[str, str]:
        """By attempt, the id of the checkpoint that holds the state right after its verdict: where a fork starts."""
        with explain_damage(self.path), self.cursor(transaction=False) as cursor:
            cursor.execute("SELECT attempt, checkpoint_id FROM milestones WHERE thread_id = ?", (session,))
            return dict(cursor.fetchall())

    def roll_back(self, session: str, checkpoint: str) -> None:
        """Deletes every checkpoint after this one, and its pending writes; "" deletes all."""
        with self.cursor() as cursor:
            for table in ("checkpoints", "writes", "milestones"):
                cursor.execute(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id > ?", (session, checkpoint))
            cursor.execute("DELETE FROM writes WHERE thread_id = ? AND checkpoint_id = ?", (session, checkpoint))

    def stored_bytes(self, session: str) -> Iterator[bytes]:
        """All values in the session's checkpoints, as they are stored."""
        with explain_damage(self.path), self.cursor(transaction=False) as cursor:
            cursor.execute("SELECT checkpoint FROM checkpoints WHERE thread_id = ?", (session,))
            yield from (bytes(row[0]) for row in cursor.fetchall())
            cursor.execute("SELECT value FROM writes WHERE thread_id = ?", (session,))
            yield from (bytes(row[0]) for row in cursor.fetchall() if row[0] is not None)

    def _thin(self, thread: str, head: str, checkpoint: str) -> None:
        with self.cursor() as cursor:
            cursor.execute("INSERT OR IGNORE INTO milestones VALUES (?, ?, ?)", (thread, head, checkpoint))
            if not cursor.rowcount:
                return
            cursor.execute(
                "SELECT max(checkpoint_id) FROM milestones WHERE thread_id = ? AND checkpoint_id < ?", (thread, checkpoint)
            )
            (previous,) = cursor.fetchone()
            cursor.execute(
                f"DELETE FROM checkpoints WHERE {_STEPS} AND checkpoint_id < ? "
                "AND checkpoint_id NOT IN (SELECT checkpoint_id FROM milestones WHERE thread_id = ?)",
                (thread, checkpoint, thread),
            )
            cursor.execute(f"DELETE FROM writes WHERE {_STEPS} AND checkpoint_id < ?", (thread, checkpoint))
            cursor.execute(
                f"UPDATE checkpoints SET parent_checkpoint_id = ? WHERE {_STEPS} AND checkpoint_id = ?",
                (previous, thread, checkpoint),
            )
