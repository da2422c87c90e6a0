"""Keeps a memory in an SQLite file, through LangGraph's SqliteStore.

Several processes may use the file: each waits up to `wait_s` for the others' short transactions. The tables are created in one
transaction, since LangGraph's set-up uses none and would fail where two processes open a new file at once. The journal is
SQLite's default: a rollback journal works on more file systems than a write-ahead log, and a copied file is complete. No error
leaves a transaction open. It knows nothing of lessons.

Where to look next: `memory/__init__.py` (reads and writes lessons).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langgraph.store.base import BaseStore
from langgraph.store.sqlite import SqliteStore

from stitchcuda.errors import BadInput, StitchError, Unavailable

_REMEDY = "name another file with STITCHCUDA_MEMORY"


class SqlitePlace:
    """Implements `Place` for a file, opened on first use. `wait_s` is how long to wait for another process."""

    def __init__(self, path: Path, wait_s: float) -> None:
        self.path = path
        self._wait_s = wait_s
        self._connection: sqlite3.Connection | None = None
        self._store: SqliteStore | None = None

    def __str__(self) -> str:
        return str(self.path)

    def is_there(self) -> bool:
        """Whether there is a file; reading does not create one."""
        return self._store is not None or self.path.exists()

    @contextmanager
    def open_store(self) -> Iterator[BaseStore]:
        """Yields the store. An error of SQLite becomes a `StitchError`, and the file is closed."""
        try:
            if self._store is None:
                self._open()
            assert self._store is not None
            yield self._store
        except (sqlite3.Error, ValueError) as error:  # SqliteStore.get wraps errors of SQLite in a ValueError
            cause = error if isinstance(error, sqlite3.Error) else error.__cause__
            if not isinstance(cause, sqlite3.Error):
                raise
            self.close()
            raise self._explain(cause) from error

    def close(self) -> None:
        connection, self._connection, self._store = self._connection, None, None
        if connection is not None:
            connection.close()

    def _open(self) -> None:
        if self.path.is_dir():
            raise BadInput(f"the memory {self.path} is a folder: {_REMEDY}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the memory {self.path} cannot be made ({(error.strerror or '').lower()}): {_REMEDY}") from error
        connection = sqlite3.connect(
            self.path, timeout=self._wait_s, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        self._connection = connection
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "store" not in tables:
            self.close()
            raise BadInput(f"{self.path} is an SQLite file of something else and was left alone: {_REMEDY}")
        store = SqliteStore(connection)
        connection.execute("BEGIN" if _is_current(connection, tables) else "BEGIN IMMEDIATE")
        store.setup()
        connection.execute("COMMIT")
        self._store = store

    def _explain(self, error: sqlite3.Error) -> StitchError:
        while isinstance(error.__context__, sqlite3.Error):  # the first error is the cause, not a COMMIT that failed after it
            error = error.__context__
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(f"another process has held the memory {self.path} for {self._wait_s:g} s: try again")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Unavailable(
                f"the memory {self.path} is damaged ({error}) and was left as it is: restore it from a copy, or {_REMEDY}"
            )
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(f"no space left to write the memory {self.path}: free some, or {_REMEDY}")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return BadInput(f"the memory {self.path} cannot be written or opened ({error}): {_REMEDY}")
        return Unavailable(f"the memory {self.path} cannot be used ({error}) and was left as it is: {_REMEDY}")


class _Connection(sqlite3.Connection):
    """Runs scripts inside the open transaction, which sqlite3's own `executescript` would commit first."""

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        cursor, statement = self.cursor(), ""
        for piece in sql_script.split(";"):
            statement += f"{piece};"
            if sqlite3.complete_statement(statement):
                cursor.execute(statement)
                statement = ""
        return cursor


def _is_current(connection: sqlite3.Connection, tables: set[str]) -> bool:
    """Whether the tables are up to date: then a read-only file can be used too."""
    if "store_migrations" not in tables:
        return False
    (version,) = connection.execute("SELECT max(v) FROM store_migrations").fetchone()
    return version is not None and version + 1 >= len(SqliteStore.MIGRATIONS)
