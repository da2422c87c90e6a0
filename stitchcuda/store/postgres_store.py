"""Stores a workspace that several machines share in PostgreSQL: sessions, artefacts, ledgers and transcripts.

A session has one owner at a time: a row with a heartbeat and a token that grows with each owner (`store/lease.py`). Whatever
belongs to a session is written in a transaction that checks the token first, so a former owner that wakes up writes nothing.
Tables are made by whoever writes first; reading makes none. psycopg is an extra (`postgres`). Checkpoints are in the same
database.

Where to look next: `store/store.py` (what the methods promise), `store/lease.py` (ownership), `store/database.py`.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from stitchcuda.errors import Damaged, Unavailable
from stitchcuda.state import Digest
from stitchcuda.store.database import Connection, Database
from stitchcuda.store.lease import Lease, describe_owner, lease_s
from stitchcuda.store.lines import R
from stitchcuda.store.session_record import SessionRecord
from stitchcuda.store.store import Store

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS stitchcuda_format (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS stitchcuda_session (name TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL, failure TEXT);
CREATE TABLE IF NOT EXISTS stitchcuda_owner (
    session TEXT PRIMARY KEY, token BIGINT NOT NULL, owner TEXT NOT NULL, lease_s DOUBLE PRECISION NOT NULL, beat TIMESTAMPTZ
);
CREATE TABLE IF NOT EXISTS stitchcuda_artefact (digest TEXT PRIMARY KEY, data BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS stitchcuda_line (
    number BIGSERIAL, session TEXT NOT NULL, field TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (session, field, key)
);
CREATE TABLE IF NOT EXISTS stitchcuda_milestone (
    thread_id TEXT NOT NULL, attempt TEXT NOT NULL, checkpoint_id TEXT NOT NULL, PRIMARY KEY (thread_id, attempt)
);
"""

_NAMES = re.findall(r"EXISTS (\w+)", _TABLES)
_LIST = "WHERE session = %s AND field = %s"
SWEEP = 0x57177C5                          # advisory lock: shared while artefacts are added, exclusive while they are swept

T = TypeVar("T")


class PostgresStore(Store):
    """The store in the database behind `url`, connected to on first use. Threads share one connection and take turns."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.database = Database(
            url, what="the database of sessions", correct="correct --checkpoint", without="leave --checkpoint out"
        )
        self.database.advice = self._advice
        self.option = ""                   # the options by which a command means this database and its workspace
        self._connection = Connection(self.database, self._open_connection)
        self._missing = set(_NAMES)        # tables that are not there, as far as is known
        self._awaited: set[str] = set()    # sessions that another process ran when `owner` was called last
        self._leases: dict[str, Lease] = {}

    def __str__(self) -> str:
        """The URL without user, password and options."""
        return str(self.database)

    def put(self, data: bytes) -> Digest:
        digest = hashlib.sha256(data).hexdigest()

        def act(cursor: Any) -> None:
            for session in list(self._leases):
                self.check(cursor, session)
            cursor.execute(
                "INSERT INTO stitchcuda_artefact VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET data = EXCLUDED.data "
                "WHERE stitchcuda_artefact.data IS DISTINCT FROM EXCLUDED.data",
                (digest, data),
            )

        self._write(act)
        return digest

    def get(self, digest: Digest) -> bytes:
        row = self._row("SELECT data FROM stitchcuda_artefact WHERE digest = %s", digest)
        if row is None:
            raise Damaged(f"{self} lacks the artefact {digest}: restore it from a backup")
        data = bytes(row["data"])
        if hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(f"the artefact {digest} in {self} is damaged: restore it from a backup")
        return data

    def names(self) -> list[str]:
        return [row["name"] for row in self._rows("SELECT name FROM stitchcuda_session ORDER BY name")]

    def session(self, name: str) -> SessionRecord | None:
        row = self._row("SELECT record FROM stitchcuda_session WHERE name = %s", name)
        if row is None:
            return None
        try:
            return SessionRecord.model_validate_json(row["record"])
        except ValidationError as error:
            raise Damaged(f"the record of session {name!r} in {self} cannot be read ({error.errors()[0]['msg']})") from error

    def open(self, record: SessionRecord) -> bool:
        def act(cursor: Any) -> bool:
            cursor.execute(
                "INSERT INTO stitchcuda_session (name, record) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (record.name, record.model_dump_json()),
            )
            added = cursor.rowcount == 1
            # After a lost connection the insertion may run twice: it is ours if the stored record is this one.
            cursor.execute("SELECT record FROM stitchcuda_session WHERE name = %s", (record.name,))
            return added or bool(record.created and cursor.fetchone()["record"] == record.model_dump_json())

        return self._write(act)

    def update(self, record: SessionRecord) -> None:
        statement = "UPDATE stitchcuda_session SET record = %s WHERE name = %s"
        self._execute(statement, record.model_dump_json(), record.name, owner=record.name)

    def delete(self, session: str) -> None:
        def act(cursor: Any) -> None:
            if session in self._leases:
                self.check(cursor, session)
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "stitchcuda_milestone"):
                cursor.execute("SELECT to_regclass(%s) AS there", (table,))
                if cursor.fetchone()["there"]:
                    cursor.execute(f"DELETE FROM {table} WHERE thread_id = %s", (session,))
            cursor.execute("DELETE FROM stitchcuda_line WHERE session = %s", (session,))
            cursor.execute("DELETE FROM stitchcuda_session WHERE name = %s", (session,))

        self._write(act)
        self._close_lists(session)

    @contextmanager
    def adding(self) -> Iterator[None]:
        with self._sweep_lock("pg_advisory_lock_shared"):
            yield

    @contextmanager
    def sweeping(self) -> Iterator[bool]:
        # Leases are checked as well: an owner whose connection was lost has no lock any more, but still its lease.
        with self._sweep_lock("pg_try_advisory_lock") as held:
            yield held and not any(self.owner(name) for name in self.names())

    def artefacts(self) -> Iterator[tuple[Digest, int]]:
        for row in self._rows("SELECT digest, octet_length(data) AS size FROM stitchcuda_artefact"):
            yield row["digest"], row["size"]

    def delete_artefact(self, digest: Digest) -> None:
        self._execute("DELETE FROM stitchcuda_artefact WHERE digest = %s", digest)

    @contextmanager
    def _sweep_lock(self, how: str) -> Iterator[bool]:
        with self.database.explain_errors(), self.connect() as connection:
            held = connection.execute(f"SELECT {how}(%s) AS held", (SWEEP,)).fetchone()["held"]
            yield held is not False        # the shared lock waits and returns no boolean

    @contextmanager
    def owning(self, session: str) -> Iterator[None]:
        self._write(lambda cursor: None)   # makes the tables
        with self.adding(), Lease(self.database, session, self._leases):
            yield

    def owner(self, session: str) -> str:
        # A caller that waits for an owner waits for a lost server as long as that owner does.
        timeout_s = max(self.timeout_s, lease_s() if session in self._awaited else 0.0)
        owner = self._read(lambda cursor: describe_owner(cursor, session), "", timeout_s)
        (self._awaited.add if owner else self._awaited.discard)(session)
        return owner

    def failure(self, session: str) -> str | None:
        row = self._row("SELECT failure FROM stitchcuda_session WHERE name = %s", session)
        return row["failure"] if row else None

    def set_failure(self, session: str, why: str | None) -> None:
        self._execute("UPDATE stitchcuda_session SET failure = %s WHERE name = %s", why, session, owner=session)

    def check(self, cursor: Any, session: str) -> None:
        """Inside a transaction: raises `SessionLost` unless this process is still the session's owner, and keeps it so until
        the transaction ends."""
        lease = self._leases.get(session)
        if lease is None:
            raise AssertionError(f"session {session!r} is written to by a process that does not own it")
        lease.check(cursor)

    def close(self) -> None:
        self._connection.close()

    def connect(self) -> Any:
        """Opens a new connection. The server ends it if a transaction is left open for the time of a lease: its owner is paused
        or cut off then, and others wait for its locks."""
        connection = self.database.connect()
        with self.database.explain_errors():
            connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, false), "
                "set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false), "
                "set_config('tcp_keepalives_count', '3', false)",
                (f"{lease_s():g}s",),
            )
        return connection

    @property
    def timeout_s(self) -> float:
        """Seconds to wait for a server that cannot be reached: the time of a lease for an owner, which then goes on; else 0."""
        return lease_s() if self._leases else 0.0

    def _row(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, *values)
        return rows[0] if rows else None

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        def act(cursor: Any) -> list[Any]:
            cursor.execute(statement, values)
            return list(cursor.fetchall())

        return self._read(act, [])

    def _read(self, act: Callable[[Any], T], nothing: T, timeout_s: float | None = None) -> T:
        """Returns `act(cursor)`, which only reads, from a transaction; `nothing` if there are no tables yet."""
        def once(connection: Any) -> T:
            if len(self._missing) == len(_NAMES):
                self._find_tables(connection)
            if len(self._missing) == len(_NAMES):
                return nothing
            with connection.transaction(), connection.cursor() as cursor:
                return act(cursor)

        return self._connection.do(once, self.timeout_s if timeout_s is None else timeout_s)

    def _execute(self, statement: str, *values: Any, owner: str = "") -> None:
        """Executes one statement in a transaction; with `owner`, as the owner of that session."""
        def act(cursor: Any) -> None:
            if owner:
                self.check(cursor, owner)
            cursor.execute(statement, values)

        self._write(act)

    def _write(self, act: Callable[[Any], T]) -> T:
        """Returns `act(cursor)` from a transaction. `act` may run twice, if the connection was lost."""
        def once(connection: Any) -> T:
            if self._missing:
                self._make_tables(connection)
            with connection.transaction(), connection.cursor() as cursor:
                return act(cursor)

        return self._connection.do(once, self.timeout_s)

    def _open_connection(self) -> Any:
        connection = self.connect()
        try:
            self._find_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _find_tables(self, connection: Any) -> None:
        """Finds out which tables are there. Raises Unavailable if a newer StitchCUDA has made them."""
        missing = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
        self._missing = {row["name"] for row in connection.execute(missing, (_NAMES,)).fetchall()}
        if _NAMES[0] in self._missing:
            return
        found = connection.execute("SELECT version FROM stitchcuda_format").fetchone()
        if found is not None and found["version"] > FORMAT:
            formats = f"(format {found['version']}, this one reads {FORMAT})"
            raise Unavailable(f"the database of sessions {self} was written by a newer StitchCUDA {formats}: update stitchcuda")

    def _make_tables(self, connection: Any) -> None:
        self._find_tables(connection)
        if not self._missing:              # another process has made them meanwhile
            return
        with self.database.setting_up(connection), connection.transaction():
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            if connection.execute("SELECT version FROM stitchcuda_format").fetchone() is None:
                connection.execute("INSERT INTO stitchcuda_format VALUES (%s)", (FORMAT,))
        self._find_tables(connection)

    def _advice(self) -> str:
        """How to go on with the sessions that this process runs; "" if it runs none."""
        how = [f"`stitchcuda resume {name}{self.option}`" for name in sorted(self._leases)]
        return f"then go on with {' and '.join(how)}: what was done is saved there" if how else ""

    def _list(self, session: str, field: str, kind: type[R]) -> _Lines[R]:
        return _Lines(self, session, kind, field)


class _Lines(Generic[R]):
    """The records of type `kind` of one session: rows of stitchcuda_line. Only new rows are read again."""

    def __init__(self, store: PostgresStore, session: str, kind: type[R], field: str) -> None:
        self._store, self._session, self._kind, self._field = store, session, kind, field
        self._guard = threading.Lock()
        self._known: dict[str, R] = {}
        self._last = -1

    def append(self, record: R) -> R:
        body = record.model_dump_json()
        self._store._execute(
            "INSERT INTO stitchcuda_line (session, field, key, body, sha256) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            self._session, self._field, record.id, body, hashlib.sha256(body.encode()).hexdigest(), owner=self._session,
        )  # fmt: skip
        return self.records()[record.id]

    def readable(self) -> tuple[tuple[R, ...], tuple[str, ...]]:
        found, damage = [], []
        for row in self._store._rows(f"SELECT * FROM stitchcuda_line {_LIST} ORDER BY number", self._session, self._field):
            try:
                found.append(self._parsed(row))
            except Damaged:
                damage.append(self._damaged(row))
        return tuple(found), tuple(damage)

    def replace(self, records: Iterable[R]) -> None:
        """Leaves these rows. The others stay in the table, under the session's name with `.damaged` appended."""
        self._store._execute(
            "UPDATE stitchcuda_line SET session = session || '.damaged', key = key || '@' || number "
            f"{_LIST} AND NOT key = ANY(%s)",
            self._session, self._field, [record.id for record in records], owner=self._session,
        )  # fmt: skip
        self._known, self._last = {}, -1

    def _parsed(self, row: Any) -> R:
        if hashlib.sha256(row["body"].encode()).hexdigest() != row["sha256"]:
            raise Damaged(f"{self._damaged(row)}: restore it from a backup, or resume without it")
        return cast(R, self._kind.model_validate_json(row["body"]))

    def _damaged(self, row: Any) -> str:
        return f"the {self._field} {row['key']} of session {self._session!r} in {self._store} is damaged"

    def records(self) -> Mapping[str, R]:
        def act(cursor: Any) -> list[Any]:
            key = (self._session, self._field)
            cursor.execute(f"SELECT count(*) AS number FROM stitchcuda_line {_LIST}", key)
            number = cursor.fetchone()["number"]
            columns = "number, key, body, sha256"
            cursor.execute(f"SELECT {columns} FROM stitchcuda_line {_LIST} AND number > %s ORDER BY number", (*key, self._last))
            fresh = cursor.fetchall()
            if len(self._known) + len(fresh) != number:  # another session had this name before
                self._known = {}
                cursor.execute(f"SELECT {columns} FROM stitchcuda_line {_LIST} ORDER BY number", key)
                fresh = cursor.fetchall()
            return list(fresh)

        nothing: list[Any] = []
        with self._guard:
            for row in self._store._read(act, nothing):
                self._known[row["key"]] = self._parsed(row)
                self._last = row["number"]
            return dict(self._known)
