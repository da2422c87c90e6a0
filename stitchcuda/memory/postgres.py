"""A PostgreSQL database as the place of a memory, through LangGraph's PostgresStore. Knows no lessons.

The package is an extra (`stitchcuda[postgres]`), imported on first use. The URL may hold a password: nothing printed does. The
tables are made under an advisory lock that is polled for, since waiting inside a statement would block the index that another
process is building.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from langgraph.store.base import BaseStore

from stitchcuda.errors import Unavailable

if TYPE_CHECKING:
    from langgraph.store.postgres import PostgresStore

SCHEMES = ("postgresql://", "postgres://")
_LOCK = 0x57177C4
_POLL_S = 0.05


class PostgresPlace:
    """The database behind `url`, connected to on first use; `wait_s` is how long connecting and setting up may take."""

    def __init__(self, url: str, wait_s: float) -> None:
        self._url = url
        self._wait_s = wait_s
        self._open_things: ExitStack | None = None
        self._store: PostgresStore | None = None

    def __str__(self) -> str:
        """The URL without user, password and options."""
        parts = self._parts()
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def is_there(self) -> bool:
        return True

    @contextmanager
    def opened(self) -> Iterator[BaseStore]:
        """The store; an error of the driver's or the server's becomes a sentence, and the connection is closed."""
        psycopg = self._driver()
        try:
            if self._store is None:
                self._connect(psycopg)
            assert self._store is not None
            yield self._store
        except psycopg.Error as error:
            self.close()
            raise Unavailable(
                f"the memory {self} cannot be used ({self._reason(error)}): start that server, or correct STITCHCUDA_MEMORY"
            ) from error

    def close(self) -> None:
        things, self._open_things, self._store = self._open_things, None, None
        if things is not None:
            things.close()

    def _driver(self) -> Any:
        try:
            import psycopg
            from langgraph.store.postgres import PostgresStore  # noqa: F401
        except ImportError as error:
            raise Unavailable(
                f"the memory {self} needs a package that is not installed ({error.name or 'libpq'}): "
                "pip install 'stitchcuda[postgres]', or unset STITCHCUDA_MEMORY"
            ) from error
        return psycopg

    def _connect(self, psycopg: Any) -> None:
        from langgraph.store.postgres import PostgresStore
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
        from psycopg.rows import dict_row

        asked = conninfo_to_dict(self._url)
        asked.setdefault("connect_timeout", max(2, round(self._wait_s)))
        self._open_things = ExitStack()
        connection = self._open_things.enter_context(
            psycopg.Connection.connect(make_conninfo("", **asked), autocommit=True, prepare_threshold=0, row_factory=dict_row)
        )
        store = PostgresStore(connection)
        deadline = time.monotonic() + self._wait_s
        while not connection.execute("SELECT pg_try_advisory_lock(%s) AS held", (_LOCK,)).fetchone()["held"]:
            if time.monotonic() > deadline:
                self.close()
                raise Unavailable(f"another process has been setting up the memory {self} for {self._wait_s:g} s: try again")
            time.sleep(_POLL_S)
        try:
            store.setup()
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
        self._store = store

    def _reason(self, error: Exception) -> str:
        """The driver's first line, without what the URL keeps secret."""
        said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        password = self._parts().password
        said = said.replace(self._url, str(self))
        return said.replace(password, "***") if password else said

    def _parts(self) -> SplitResult:
        try:
            return urlsplit(self._url)
        except ValueError:                 # such as a bracket that is not closed
            return urlsplit(self._url.partition("://")[0] + "://")
