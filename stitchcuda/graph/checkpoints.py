"""The default saver: one SQLite file per session, thinned to one checkpoint per attempt once its verdict is stored.

SQLite writes the whole state at every step, so without thinning 500 attempts of eight nodes cost tens of megabytes. Write-ahead
logging with synchronous=NORMAL: a killed process loses no committed step, and after a power cut the ledger, which is fsynced
first, still knows every attempt. The steps since the last verdict are all kept. Only our own records are read back from the
file (strict msgpack), since a workspace may come from another machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Record
from stitchcuda.workspace import Workspace

if TYPE_CHECKING:
    from stitchcuda.graph.postgres_checkpoints import PostgresCheckpoints

FILE = "checkpoints.sqlite"
_STEPS = "thread_id = ? AND checkpoint_ns = ''"


def open_checkpoints(home: Workspace, session: str) -> Checkpoints | PostgresCheckpoints:
    """A session's checkpoints, beside its ledger: in its folder, or in the database. Close them when done."""
    if home.database is None:
        return Checkpoints(home.folder(session))
    from stitchcuda.graph.postgres_checkpoints import PostgresCheckpoints

    return PostgresCheckpoints(home.database)


def serializer() -> JsonPlusSerializer:
    """Reads back only our own records: a workspace may come from another machine."""
    return JsonPlusSerializer(allowed_msgpack_modules=[(kind.__module__, kind.__name__) for kind in Record.__subclasses__()])


def carry(source: BaseCheckpointSaver[Any], name: str, target: BaseCheckpointSaver[Any], to: str) -> None:
    """Copies a session's checkpoints from one saver to another, oldest first, under the name `to`."""
    for one in reversed(list(source.list({"configurable": {"thread_id": name, "checkpoint_ns": ""}}))):
        values = dict(one.checkpoint["channel_values"])
        if values.get("session") == name:
            values["session"] = to
        if str(values.get("report") or "").startswith(f"sessions/{name}/"):
            values["report"] = f"sessions/{to}/{values['report'].rpartition('/')[2]}"
        place: RunnableConfig = {"configurable": {"thread_id": to, "checkpoint_ns": ""}}
        if one.parent_config:
            place["configurable"]["checkpoint_id"] = one.parent_config["configurable"]["checkpoint_id"]
        checkpoint = one.checkpoint.copy() | {"channel_values": values}
        stored = target.put(place, cast(Checkpoint, checkpoint), one.metadata, one.checkpoint["channel_versions"])
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in one.pending_writes or ():
            by_task.setdefault(task, []).append((channel, value))
        for task, writes in by_task.items():
            target.put_writes(stored, writes, task)


def after(latest: str) -> None:
    """Makes ids of new checkpoints sort after `latest`, even where the clock was set back since: LangGraph takes the greatest
    id for the newest checkpoint, and keeps its own clock from going back within one process only."""
    clock: Any = ids
    clock._last_v6_timestamp = max(clock._last_v6_timestamp or 0, ids.UUID(latest).time)


class Checkpoints(SqliteSaver):
    """A session's checkpoints; a context manager that closes the file. Made in the session's folder on first use."""

    def __init__(self, folder: Path) -> None:
        connection = sqlite3.connect(folder / FILE, check_same_thread=False, timeout=30)
        super().__init__(connection, serde=serializer())
        with self.cursor() as cursor:
            cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS milestones (thread_id TEXT NOT NULL, attempt TEXT NOT NULL, "
                "checkpoint_id TEXT NOT NULL, PRIMARY KEY (thread_id, attempt))"
            )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.conn.close()

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Stores a checkpoint; the first one that has an attempt for its head replaces the steps that led there."""
        stored = super().put(config, checkpoint, metadata, new_versions)
        head = checkpoint["channel_values"].get("head")
        if head and not config["configurable"].get("checkpoint_ns"):
            self._thin(str(config["configurable"]["thread_id"]), head, checkpoint["id"])
        return stored

    def milestone(self, session: str, attempt: str) -> str | None:
        """The id of the checkpoint that holds the state right after an attempt's verdict: where a fork starts."""
        with self.cursor(transaction=False) as cursor:
            cursor.execute("SELECT checkpoint_id FROM milestones WHERE thread_id = ? AND attempt = ?", (session, attempt))
            row = cursor.fetchone()
        return str(row[0]) if row else None

    def look(self) -> None:
        """Raises sqlite3.DatabaseError where the file is not what was written."""
        with self.cursor(transaction=False) as cursor:
            found = cursor.execute("PRAGMA quick_check(1)").fetchone()
        if found[0] != "ok":
            raise sqlite3.DatabaseError(str(found[0]).splitlines()[0])

    def milestones(self, session: str) -> dict[str, str]:
        """The same for all attempts that have one."""
        with self.cursor(transaction=False) as cursor:
            cursor.execute("SELECT attempt, checkpoint_id FROM milestones WHERE thread_id = ?", (session,))
            return dict(cursor.fetchall())

    def back_to(self, session: str, checkpoint: str) -> None:
        """Forgets every checkpoint after this one; "" for all."""
        with self.cursor() as cursor:
            for table in ("checkpoints", "writes", "milestones"):
                cursor.execute(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id > ?", (session, checkpoint))
            cursor.execute("DELETE FROM writes WHERE thread_id = ? AND checkpoint_id = ?", (session, checkpoint))

    def contents(self, session: str) -> Iterator[bytes]:
        """All that the checkpoints hold, as it is stored."""
        with self.cursor(transaction=False) as cursor:
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


def disk_trouble(folder: Path, error: sqlite3.OperationalError) -> StitchError:
    """What SQLite says of a disk, as a sentence for people."""
    path = folder / FILE
    if "full" in str(error) or "disk" in str(error):
        return Unavailable(f"no space left to write {path}: free some, then resume the session")
    return BadInput(f"cannot write {path} ({error}): the session needs a folder that may be written to")
