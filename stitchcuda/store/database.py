"""Connects to a PostgreSQL database by its URL, reconnects, makes tables once, and reports errors without the password.

A URL that can be read in two ways is not used, and nothing of it is shown. psycopg is an extra (`postgres`), imported on first
use. Tables are made under an advisory lock that is polled for, since waiting inside a statement would block the index that
another process is building. It knows no tables.

Where to look next: `store/postgres_store.py` (sessions), `memory/postgres_memory.py` (lessons), `store/lease.py` (ownership).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from stitchcuda import remedies
from stitchcuda.errors import Unavailable

SCHEMES = ("postgresql://", "postgres://")
WAIT_S = 30.0
_LOCK = 0x57177C4
_POLL_S = 0.05
_NOT_ALLOWED = {"42501", "25006"}          # SQLSTATE: no such right; a server or transaction that is read-only
_SILENT_S = 30                             # seconds without an answer from the network after which a connection is lost
_HOST = r"(?:[^:/?#@\[\],\s]*|\[[0-9a-fA-F:.%]*\])(?::\d*)?"
_OPTION = r"\w+=[^@&=\s]*"
_URL = re.compile(
    r"\w+://(?:(?P<user>[^:/?#@\[\]\s]*)(?::(?P<password>[^/?@\s]*))?@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[^:/?#@\s]*)?)(?:\?(?P<options>{_OPTION}(?:&{_OPTION})*)?)?"
)
_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_QUOTING = (
    "write % in its password as %25, @ as %40, / as %2F, : as %3A, ? as %3F and # as %23, "
    "or keep the password in ~/.pgpass"
)

T = TypeVar("T")


class _Url(NamedTuple):
    """The parts of a URL that may be shown, and its secrets."""

    user: str
    place: str                             # hosts, ports and the database
    secrets: tuple[str, ...]


def _parse(url: str) -> _Url | None:
    """None for a URL that could be read in two ways: some of its password may stand where a host is expected."""
    found = _URL.fullmatch(url)
    if found is None or _PERCENT.search(url):
        return None
    options = dict(option.split("=") for option in (found["options"] or "").split("&") if option)
    hidden = (found["password"] or "", *(value for name, value in options.items() if "password" in name or "secret" in name))
    secrets = {part for secret in hidden for part in (secret, unquote(secret)) if part}
    return _Url(found["user"] or "", found["place"], tuple(sorted(secrets, key=len, reverse=True)))


class Database:
    """The database behind `url`. Errors of the driver or the server become `Unavailable`.

    For the sentences of errors: `what` it is called ("the memory"), what a user can do to `correct` a wrong URL or to go on
    `without` it, and the function `advice`, which returns how to go on with what is stored in it, or "". `wait_s`: seconds that
    connecting and making tables may take.
    """

    def __init__(self, url: str, *, what: str, correct: str, without: str, wait_s: float = WAIT_S) -> None:
        self.url, self.wait_s = url, wait_s
        self._what, self._correct, self._without = what, correct, without
        self.advice: Callable[[], str] = str
        self._scheme, self._url = url.partition("://")[0], _parse(url)

    def __str__(self) -> str:
        """The URL without user, password and options."""
        return f"{self._scheme}://{self._url.place if self._url else '…'}"

    @property
    def shown(self) -> str:
        """The URL to type again: with its user, without its password."""
        if self._url is None or not self._url.user:
            return str(self)
        return f"{self._scheme}://{self._url.user}@{self._url.place}"

    def connect(self) -> Any:
        """Opens a new connection, in autocommit, whose rows are dicts."""
        driver = self.driver()
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
        from psycopg.rows import dict_row

        if self._url is None:
            raise Unavailable(f"{self._what} {self} has a URL that cannot be read: {self._correct} ({_QUOTING})")
        with self.explain_errors():
            options = {
                "connect_timeout": max(2, round(self.wait_s)), "tcp_user_timeout": 1000 * _SILENT_S,
                "keepalives_idle": _SILENT_S // 2, "keepalives_interval": _SILENT_S // 6, "keepalives_count": 3,
            } | conninfo_to_dict(self.url)  # fmt: skip
            return driver.Connection.connect(
                make_conninfo("", **options), autocommit=True, prepare_threshold=0, row_factory=dict_row
            )

    @contextmanager
    def setting_up(self, connection: Any) -> Iterator[None]:
        """Inside, no other process makes tables in this database. Raises `Unavailable` if one does for longer than `wait_s`."""
        deadline = time.monotonic() + self.wait_s
        while not connection.execute("SELECT pg_try_advisory_lock(%s) AS held", (_LOCK,)).fetchone()["held"]:
            if time.monotonic() > deadline:
                raise Unavailable(f"another process has been setting up {self._what} {self} for {self.wait_s:g} s: try again")
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Inside, an error of the driver or the server becomes `Unavailable` with a sentence that says what to do."""
        driver = self.driver()
        try:
            yield
        except driver.Error as error:
            reason = self._reason(error)
            if getattr(error, "sqlstate", None) in _NOT_ALLOWED or "permission denied" in reason:
                remedy = f"have its owner grant the right, or {self._correct}"
            else:
                remedy = f"start that server, {self.advice() or f'or {self._correct}'}"
            raise Unavailable(f"{self._what} {self} cannot be used ({reason}): {remedy}") from error

    def driver(self) -> Any:
        """Imports psycopg. Raises `Unavailable` if it is not installed."""
        try:
            import psycopg
            from langgraph.checkpoint.postgres import PostgresSaver  # noqa: F401
        except ImportError as error:
            raise Unavailable(
                f"{self._what} {self} needs a package that is not installed ({error.name or 'libpq'}): "
                f"{remedies.extra('postgres')}, or {self._without}"
            ) from error
        return psycopg

    def _reason(self, error: Exception) -> str:
        """The server's message, or the first line of the driver's, without the secrets of the URL."""
        message = getattr(getattr(error, "diag", None), "message_primary", None) or next(
            (line for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        message = message.replace(self.url, str(self))
        for secret in self._url.secrets if self._url else ():
            message = message.replace(secret, "***")
        return str(message)


class Connection:
    """One connection to `database`, opened by `connect` on first use, and again when it was lost. Threads take turns."""

    def __init__(self, database: Database, connect: Callable[[], Any]) -> None:
        self._database, self._connect = database, connect
        self._turn = threading.RLock()
        self._connection: Any = None
        self._gave_up = False              # the last wait for the server timed out: the next caller does not wait again

    def do(self, act: Callable[[Any], T], timeout_s: float = 0.0) -> T:
        """Returns `act(connection)`. If the connection was lost, `act` is called again on a new one, so it may run twice.

        `timeout_s`: how long to wait for a server that cannot be reached. Raises `Unavailable` for an error of driver or
        server.
        """
        driver = self._database.driver()
        with self._turn, self._database.explain_errors():
            deadline = time.monotonic() + (0.0 if self._gave_up else timeout_s)
            for number in count():
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                    result = act(self._connection)
                    self._gave_up = False
                    return result
                except (driver.Error, Unavailable) as error:
                    connected = self._connection is not None
                    away = isinstance(error, driver.OperationalError) or isinstance(error.__cause__, driver.OperationalError)
                    if not away and not (connected and self._connection.closed):
                        raise
                    self.close()
                    if connected and number == 0:
                        continue
                    if time.monotonic() > deadline:
                        self._gave_up = timeout_s > 0
                        raise
                    time.sleep(_POLL_S)
        raise AssertionError

    def close(self) -> None:
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(self._database.driver().Error):
                    connection.close()
