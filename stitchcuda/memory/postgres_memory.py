"""A PostgreSQL database as the place of a memory, through LangGraph's PostgresStore. Knows no lessons.

What all our databases have in common is in `memory/postgres_memory.py`.
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
    """The database behind `url`, connected to on first use; `wait_s` is how long connecting and setting up may take."""

    def __init__(self, url: str, wait_s: float) -> None:
        self._database = Database(
            url, what="the memory", correct="correct STITCHCUDA_MEMORY", without="unset STITCHCUDA_MEMORY", wait_s=wait_s
        )
        self._open_things: ExitStack | None = None
        self._store: PostgresStore | None = None

    def __str__(self) -> str:
        """The URL without user, password and options."""
        return str(self._database)

    def is_there(self) -> bool:
        return True

    @contextmanager
    def opened(self) -> Iterator[BaseStore]:
        """The store; an error of the driver's or the server's becomes a sentence, and the connection is closed."""
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
        things, self._open_things, self._store = self._open_things, None, None
        if things is not None:
            things.close()

    def _connect(self) -> None:
        from langgraph.store.postgres import PostgresStore

        with ExitStack() as stack:
            connection = stack.enter_context(self._database.connect())
            store = PostgresStore(connection)
            with self._database.setting_up(connection):
                store.setup()
            self._open_things = stack.pop_all()
        self._store = store
