"""The default saver: one SQLite file per session, thinned to one checkpoint per attempt once its verdict is stored.

SQLite writes the whole state at every step, so without thinning 500 attempts of eight nodes cost tens of megabytes. Write-ahead
logging with synchronous=NORMAL: a killed process loses no committed step, and after a power cut the ledger, which is fsynced
first, still knows every attempt. The steps since the last verdict are all kept. Only our own records are read back from the
file (strict msgpack), since a workspace may come from another machine.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from stitchcuda.state import Record

FILE = "checkpoints.sqlite"
_STEPS = "thread_id = ? AND checkpoint_ns = ''"


class Checkpoints(SqliteSaver):
    """A session's checkpoints; a context manager that closes the file. Made in the session's folder on first use."""

    def __init__(self, folder: Path) -> None:
        connection = sqlite3.connect(folder / FILE, check_same_thread=False, timeout=30)
        allowed = [(kind.__module__, kind.__name__) for kind in Record.__subclasses__()]
        super().__init__(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=allowed))
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
