"""Saves a session's graph checkpoints in PostgreSQL, thinned to one per attempt as in SQLite.

Each write is in a transaction that first checks that this process still owns the session; it is written once more, to the same
end, where the connection was lost. LangGraph's own tables; what a value was between two attempts goes with the checkpoints that
had it. The tables are made by whoever writes first; reading makes none, and finds nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import Cursor
from psycopg.abc import Params
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction

from stitchcuda.store.database import Connection
from stitchcuda.store.postgres_store import PostgresStore
from stitchcuda.store.serializer import serializer, told

_STEPS = "thread_id = %s AND checkpoint_ns = ''"

T = TypeVar("T")


class _OneByOne(Cursor[Any]):
    """Says each statement alone. The server does not see that a transaction is left open after statements in a pipeline, which
    is psycopg's way to say many: that of an owner that is paused would be waited for without end."""

    def executemany(self, query: Any, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        for values in params_seq:
            self.execute(query, values)


class PostgresCheckpoints(PostgresSaver):
    """The checkpoints of the sessions in `store`; a context manager that closes its connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._sessions = store
        self._line = Connection(store.database, self._opened)
        super().__init__(cast(Any, None), serde=serializer())
        self.supports_pipeline = False
        self._version = -1                 # of LangGraph's tables; -1 where there are none
        store.names()                      # that it is no newer database
        try:
            self._line.do(self._begin, store.patience_s)
        except BaseException:
            self._line.close()
            raise

    def __enter__(self) -> PostgresCheckpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        def act(connection: Any) -> CheckpointTuple | None:
            if not self._there(connection):
                return None
            self.conn = connection
            return super(PostgresCheckpoints, self).get_tuple(config)

        with told(self._sessions):
            return self._line.do(act, self._sessions.patience_s)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Stores a checkpoint; the first one that has an attempt for its head replaces the steps that led there."""
        thread = str(config["configurable"]["thread_id"])

        def act(cursor: Any) -> RunnableConfig:
            stored = super(PostgresCheckpoints, self).put(config, checkpoint, metadata, new_versions)
            head = checkpoint["channel_values"].get("head")
            if head and not config["configurable"].get("checkpoint_ns"):
                self._thin(cursor, thread, head, checkpoint["id"])
            return stored

        return self._written(thread, act)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        def act(cursor: Any) -> None:
            super(PostgresCheckpoints, self).put_writes(config, writes, task_id, task_path)

        self._written(str(config["configurable"]["thread_id"]), act)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        with told(self._sessions):
            if not self._line.do(self._take):
                return
            yield from super().list(config, filter=filter, before=before, limit=limit)

    def newest(self, session: str) -> str | None:
        """The id of the newest checkpoint."""
        rows = self._read("SELECT max(checkpoint_id) AS newest FROM checkpoints WHERE thread_id = %s", session)
        newest: str | None = rows[0]["newest"] if rows else None
        return newest

    def milestones(self, session: str) -> dict[str, str]:
        """By attempt, the id of the checkpoint that holds the state right after its verdict: where a fork starts."""
        rows = self._read("SELECT attempt, checkpoint_id FROM stitchcuda_milestone WHERE thread_id = %s", session)
        return {row["attempt"]: row["checkpoint_id"] for row in rows}

    def back_to(self, session: str, checkpoint: str) -> None:
        """Forgets every checkpoint after this one; "" for all."""
        def act(cursor: Any) -> None:
            for table in ("checkpoints", "checkpoint_writes", "stitchcuda_milestone"):
                cursor.execute(f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_id > %s", (session, checkpoint))
            cursor.execute("DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s", (session, checkpoint))
            if not checkpoint:
                cursor.execute("DELETE FROM checkpoint_blobs WHERE thread_id = %s", (session,))

        self._written(session, act)

    def contents(self, session: str) -> Iterator[bytes]:
        """All that the checkpoints hold, as it is stored."""
        whole = "convert_to(checkpoint::text, 'UTF8')"
        for column, table in ((whole, "checkpoints"), ("blob", "checkpoint_blobs"), ("blob", "checkpoint_writes")):
            for row in self._read(f"SELECT {column} AS found FROM {table} WHERE thread_id = %s", session):
                if row["found"] is not None:
                    yield bytes(row["found"])

    def _opened(self) -> Any:
        connection = self._sessions.connect()
        connection.cursor_factory = _OneByOne
        return connection

    def _take(self, connection: Any) -> bool:
        """LangGraph makes copies of its savers: each is told the connection that they share now. False without tables."""
        self.conn = connection
        connection.execute("SELECT 1")
        return self._there(connection)

    def _begin(self, connection: Any) -> None:
        """Tables of an older LangGraph are brought up to date, or read as they are by who may do no more."""
        self._find(connection)
        if 0 <= self._version < len(self.MIGRATIONS) - 1:
            with suppress(InsufficientPrivilege, ReadOnlySqlTransaction):
                self._set_up(connection)

    def _there(self, connection: Any) -> bool:
        if self._version < 0:
            self._find(connection)
        return self._version >= 0

    def _find(self, connection: Any) -> None:
        if connection.execute("SELECT to_regclass('checkpoint_migrations') AS there").fetchone()["there"]:
            row = connection.execute("SELECT max(v) AS version FROM checkpoint_migrations").fetchone()
            self._version = -1 if row["version"] is None else row["version"]

    def _set_up(self, connection: Any) -> None:
        self._find(connection)
        if self._version >= len(self.MIGRATIONS) - 1:  # somebody else has made them meanwhile
            return
        self.conn = connection
        with self._sessions.database.setting_up(connection):
            self.setup()
        self._find(connection)

    def _read(self, statement: str, *values: Any) -> Sequence[Any]:
        def act(connection: Any) -> Sequence[Any]:
            return list(connection.execute(statement, values).fetchall()) if self._there(connection) else []

        return self._line.do(act)

    def _written(self, thread: str, act: Callable[[Any], T]) -> T:
        """`act` in a transaction of the session's owner."""
        def once(connection: Any) -> T:
            if self._version < len(self.MIGRATIONS) - 1:
                self._set_up(connection)
            self.conn = connection
            with connection.transaction(), connection.cursor() as cursor:
                self._sessions.check(cursor, thread)
                return act(cursor)

        return self._line.do(once, self._sessions.patience_s)

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
