"""Saves a session's graph checkpoints in PostgreSQL, thinned to one per attempt as in SQLite.

Each write is in a transaction that first checks that this process still owns the session; it is repeated, with the same result,
if the connection was lost. Tables are LangGraph's own. They are made by whoever writes first; reading makes none. A value that
only deleted checkpoints had is deleted with them.

Where to look next: `store/checkpoints.py` (the same in SQLite), `store/postgres_store.py` (the session's other tables).
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
from stitchcuda.store.serializer import explain_damage, serializer

_STEPS = "thread_id = %s AND checkpoint_ns = ''"

T = TypeVar("T")


class _OneByOne(Cursor[Any]):
    """Executes statements one by one. psycopg sends many in a pipeline, after which the server's timeout for open transactions
    does not apply: others would wait for the locks of a paused owner without end."""

    def executemany(self, query: Any, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        for values in params_seq:
            self.execute(query, values)


class PostgresCheckpoints(PostgresSaver):
    """The checkpoints of the sessions in `store`; a context manager that closes its connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._connection = Connection(store.database, self._open_connection)
        super().__init__(cast(Any, None), serde=serializer())
        self.supports_pipeline = False
        self._version = -1                 # of LangGraph's tables; -1: there are none
        store.names()                      # raises for a database of a newer StitchCUDA
        try:
            self._connection.do(self._begin, store.timeout_s)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> PostgresCheckpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        def act(connection: Any) -> CheckpointTuple | None:
            if not self._has_tables(connection):
                return None
            self.conn = connection
            return super(PostgresCheckpoints, self).get_tuple(config)

        with explain_damage(self._store):
            return self._connection.do(act, self._store.timeout_s)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Stores a checkpoint. The first one with a new attempt as its head replaces the steps since the attempt before."""
        thread = str(config["configurable"]["thread_id"])

        def act(cursor: Any) -> RunnableConfig:
            stored = super(PostgresCheckpoints, self).put(config, checkpoint, metadata, new_versions)
            head = checkpoint["channel_values"].get("head")
            if head and not config["configurable"].get("checkpoint_ns"):
                self._thin(cursor, thread, head, checkpoint["id"])
            return stored

        return self._write(thread, act)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        def act(cursor: Any) -> None:
            super(PostgresCheckpoints, self).put_writes(config, writes, task_id, task_path)

        self._write(str(config["configurable"]["thread_id"]), act)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None, before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        with explain_damage(self._store):
            if not self._connection.do(self._use):
                return
            yield from super().list(config, filter=filter, before=before, limit=limit)

    def newest(self, session: str) -> str | None:
        """The id of the session's newest checkpoint; None if there is none."""
        rows = self._read("SELECT max(checkpoint_id) AS newest FROM checkpoints WHERE thread_id = %s", session)
        newest: str | None = rows[0]["newest"] if rows else None
        return newest

    def milestones(self, session: str) -> dict[str, str]:
        """By attempt, the id of the checkpoint that holds the state right after its verdict: where a fork starts."""
        rows = self._read("SELECT attempt, checkpoint_id FROM stitchcuda_milestone WHERE thread_id = %s", session)
        return {row["attempt"]: row["checkpoint_id"] for row in rows}

    def roll_back(self, session: str, checkpoint: str) -> None:
        """Deletes every checkpoint after this one, and its pending writes; "" deletes all."""
        def act(cursor: Any) -> None:
            for table in ("checkpoints", "checkpoint_writes", "stitchcuda_milestone"):
                cursor.execute(f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_id > %s", (session, checkpoint))
            cursor.execute("DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s", (session, checkpoint))
            if not checkpoint:
                cursor.execute("DELETE FROM checkpoint_blobs WHERE thread_id = %s", (session,))

        self._write(session, act)

    def stored_bytes(self, session: str) -> Iterator[bytes]:
        """All values in the session's checkpoints, as they are stored."""
        whole = "convert_to(checkpoint::text, 'UTF8')"
        for column, table in ((whole, "checkpoints"), ("blob", "checkpoint_blobs"), ("blob", "checkpoint_writes")):
            for row in self._read(f"SELECT {column} AS found FROM {table} WHERE thread_id = %s", session):
                if row["found"] is not None:
                    yield bytes(row["found"])

    def _open_connection(self) -> Any:
        connection = self._store.connect()
        connection.cursor_factory = _OneByOne
        return connection

    def _use(self, connection: Any) -> bool:
        """Makes LangGraph's methods use the connection; False if there are no tables."""
        self.conn = connection
        connection.execute("SELECT 1")
        return self._has_tables(connection)

    def _begin(self, connection: Any) -> None:
        """Migrates tables of an older LangGraph; without the right to do so they are read as they are."""
        self._find_version(connection)
        if 0 <= self._version < len(self.MIGRATIONS) - 1:
            with suppress(InsufficientPrivilege, ReadOnlySqlTransaction):
                self._set_up(connection)

    def _has_tables(self, connection: Any) -> bool:
        if self._version < 0:
            self._find_version(connection)
        return self._version >= 0

    def _find_version(self, connection: Any) -> None:
        if connection.execute("SELECT to_regclass('checkpoint_migrations') AS there").fetchone()["there"]:
            row = connection.execute("SELECT max(v) AS version FROM checkpoint_migrations").fetchone()
            self._version = -1 if row["version"] is None else row["version"]

    def _set_up(self, connection: Any) -> None:
        self._find_version(connection)
        if self._version >= len(self.MIGRATIONS) - 1:  # another process has made them meanwhile
            return
        self.conn = connection
        with self._store.database.setting_up(connection):
            self.setup()
        self._find_version(connection)

    def _read(self, statement: str, *values: Any) -> Sequence[Any]:
        def act(connection: Any) -> Sequence[Any]:
            return list(connection.execute(statement, values).fetchall()) if self._has_tables(connection) else []

        return self._connection.do(act)

    def _write(self, thread: str, act: Callable[[Any], T]) -> T:
        """Returns `act(cursor)` from a transaction of the session's owner. `act` may run twice, if the connection was lost."""
        def once(connection: Any) -> T:
            if self._version < len(self.MIGRATIONS) - 1:
                self._set_up(connection)
            self.conn = connection
            with connection.transaction(), connection.cursor() as cursor:
                self._store.check(cursor, thread)
                return act(cursor)

        return self._connection.do(once, self._store.timeout_s)

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
