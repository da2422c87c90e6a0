"""Keeps a memory in a PostgreSQL database, through LangGraph's PostgresStore.

It connects on first use, and again after an error. It knows nothing of lessons.

Where to look next: `store/database.py` (connecting, errors as sentences), `memory/__init__.py` (reads and writes lessons).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from langgraph.store.base import BaseStore

from stitchcuda.store.database import Database

if TYPE_CHECKING:
    from langgraph.store.postgres import PostgresStore


class PostgresPlace:
    """Implements `Place` for a database URL. `wait_s` is how long connecting and creating the tables may take."""

    def __init__(self, url: str, wait_s: float) -> None:
        self._database = Database(
            url, what="the memory", correct="correct STITCHCUDA_MEMORY", without="unset STITCHCUDA_MEMORY", wait_s=wait_s
        )
        self._resources: ExitStack | None = None
        self._store: PostgresStore | None = None

    def __str__(self) -> str:
        """Returns the URL without user, password and options."""
        return str(self._database)

    def is_there(self) -> bool:
        return True

    @contextmanager
    def open_store(self) -> Iterator[BaseStore]:
        """Yields the store. An error of driver or server becomes a `StitchError`, and the connection is closed."""
        driver = self._database.driver()
        with self._database.explain_errors():
            try:
                if self._store is None:
                    self._connect()
                assert self._store is not None
                yield self._store
            except driver.Error:
                self.close()
                raise

    def close(self) -> None:
        resources, self._resources, self._store = self._resources, None, None
        if resources is not None:
            resources.close()

    def _connect(self) -> None:
        from langgraph.store.postgres import PostgresStore

        with ExitStack() as stack:
            connection = stack.enter_context(self._database.connect())
            store = PostgresStore(connection)
            with self._database.setting_up(connection):
                store.setup()
            self._resources = stack.pop_all()
        self._store = store
