"""Checkpoints in the database that keeps the sessions (`workspace/postgres.py`), thinned to one per attempt as in SQLite.

Each write is in a transaction that first checks that this process still owns the session. LangGraph's own tables; what a value
was between two attempts goes with the checkpoints that had it. """

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres import PostgresSaver

from stitchcuda.graph.checkpoints import serializer
from stitchcuda.workspace.postgres import PostgresStore

_STEPS = "thread_id = %s AND checkpoint_ns = ''"


class PostgresCheckpoints(PostgresSaver):
    """The checkpoints of the sessions in `store`; a context manager that closes its connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._sessions = store
        self._one = threading.RLock()      # a transaction is the connection's, not a thread's
        self._connection = connection = store.database.connect()
        try:
            super().__init__(connection, serde=serializer())
            store.names()                  # our own tables are there
            with store.database.setting_up(connection):
                self.setup()
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> PostgresCheckpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Stores a checkpoint; the first one that has an attempt for its head replaces the steps that led there."""
        thread = str(config["configurable"]["thread_id"])
        with self._written(thread) as cursor:
            stored = super().put(config, checkpoint, metadata, new_versions)
            head = checkpoint["channel_values"].get("head")
            if head and not config["configurable"].get("checkpoint_ns"):
                self._thin(cursor, thread, head, checkpoint["id"])
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with self._written(str(config["configurable"]["thread_id"])):
            super().put_writes(config, writes, task_id, task_path)

    def milestone(self, session: str, attempt: str) -> str | None:
        """The id of the checkpoint that holds the state right after an attempt's verdict: where a fork starts."""
        with self._sessions.database.told():
            row = self._connection.execute(
                "SELECT checkpoint_id FROM stitchcuda_milestone WHERE thread_id = %s AND attempt = %s", (session, attempt)
            ).fetchone()
        return str(row["checkpoint_id"]) if row else None

    def milestones(self, session: str) -> dict[str, str]:
        """The same for all attempts that have one."""
        rows = self._connection.execute(
            "SELECT attempt, checkpoint_id FROM stitchcuda_milestone WHERE thread_id = %s", (session,)
        )
        return {row["attempt"]: row["checkpoint_id"] for row in rows.fetchall()}

    def back_to(self, session: str, checkpoint: str) -> None:
        """Forgets every checkpoint after this one; "" for all."""
        with self._written(session) as cursor:
            for table in ("checkpoints", "checkpoint_writes", "stitchcuda_milestone"):
                cursor.execute(f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_id > %s", (session, checkpoint))
            cursor.execute("DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s", (session, checkpoint))
            if not checkpoint:
                cursor.execute("DELETE FROM checkpoint_blobs WHERE thread_id = %s", (session,))

    def contents(self, session: str) -> Iterator[bytes]:
        """All that the checkpoints hold, as it is stored."""
        whole = "convert_to(checkpoint::text, 'UTF8')"
        for column, table in ((whole, "checkpoints"), ("blob", "checkpoint_blobs"), ("blob", "checkpoint_writes")):
            rows = self._connection.execute(f"SELECT {column} AS found FROM {table} WHERE thread_id = %s", (session,))
            for row in rows.fetchall():
                if row["found"] is not None:
                    yield bytes(row["found"])

    @contextmanager
    def _written(self, thread: str) -> Iterator[Any]:
        """A transaction of the session's owner."""
        with self._one, self._sessions.database.told(), self._connection.transaction(), self._connection.cursor() as cursor:
            self._sessions.check(cursor, thread)
            yield cursor

    def _thin(self, cursor: Any, thread: str, head: str, checkpoint: str) -> None:
        cursor.execute(
            "INSERT INTO stitchcuda_milestone VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (thread, head, checkpoint)
        )
        if not cursor.rowcount:
            return
        cursor.execute(
            "SELECT max(checkpoint_id) AS previous FROM stitchcuda_milestone WHERE thread_id = %s AND checkpoint_id < %s",
            (thread, checkpoint),
        )
        previous = cursor.fetchone()["previous"]
        cursor.execute(
            f"WITH gone AS (DELETE FROM checkpoints WHERE {_STEPS} AND checkpoint_id < %s AND checkpoint_id NOT IN "
            "(SELECT checkpoint_id FROM stitchcuda_milestone WHERE thread_id = %s) "
            "RETURNING checkpoint -> 'channel_versions' AS had), "
            "was AS (SELECT DISTINCT key, value FROM gone, jsonb_each_text(had)), "
            f"stays AS (SELECT key, value FROM checkpoints, jsonb_each_text(checkpoint -> 'channel_versions') WHERE {_STEPS} "
            "AND checkpoint_id IN (%s, %s)) "
            f"DELETE FROM checkpoint_blobs USING was WHERE {_STEPS} AND channel = was.key AND version = was.value "
            "AND NOT EXISTS (SELECT 1 FROM stays WHERE stays.key = was.key AND stays.value = was.value)",
            (thread, checkpoint, thread, thread, checkpoint, previous, thread),
        )
        cursor.execute(f"DELETE FROM checkpoint_writes WHERE {_STEPS} AND checkpoint_id < %s", (thread, checkpoint))
        cursor.execute(
            f"UPDATE checkpoints SET parent_checkpoint_id = %s WHERE {_STEPS} AND checkpoint_id = %s",
            (previous, thread, checkpoint),
        )
