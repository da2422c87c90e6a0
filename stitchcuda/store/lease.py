"""Decides which machine owns a session in a shared database: a row with a heartbeat, and a token that grows with each owner.

An owner that gives no sign of life for `LEASE_S` seconds may be replaced, and each of its writes checks in its own transaction
that it was not. (An advisory lock would stay with a paused machine, and be lost by one whose network fails for a moment.) Only
the database's clock counts.

Where to look next: `store/postgres_store.py` (the writes that check it), `store/database.py` (the connection).
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from types import TracebackType
from typing import Any

from stitchcuda.errors import BadInput, SessionBusy, SessionLost, Unavailable
from stitchcuda.store.database import Connection, Database

LEASE = "STITCHCUDA_LEASE_S"
LEASE_S = 15.0                             # seconds without a heartbeat after which another process may take over
_ALIVE = (
    "stitchcuda_owner.beat IS NOT NULL "
    "AND stitchcuda_owner.beat > clock_timestamp() - make_interval(secs => stitchcuda_owner.lease_s)"
)


class Lease:
    """Ownership of one session; a context manager. Entering raises `SessionBusy` if another process owns the session.

    While it is held it is in `held`, by session name: the store finds the leases of this process there.
    """

    def __init__(self, database: Database, session: str, held: dict[str, Lease]) -> None:
        self._session, self._held = session, held
        self._lease_s = lease_s()
        self._token = 0
        self._over = threading.Event()
        self._connection = Connection(database, database.connect)
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {session}", daemon=True)

    def __enter__(self) -> Lease:
        who = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            row = self._connection.do(lambda connection: connection.execute(
                "INSERT INTO stitchcuda_owner VALUES (%s, 1, %s, %s, clock_timestamp()) ON CONFLICT (session) "
                "DO UPDATE SET token = stitchcuda_owner.token + 1, owner = EXCLUDED.owner, "
                "lease_s = EXCLUDED.lease_s, beat = EXCLUDED.beat "
                f"WHERE NOT ({_ALIVE}) RETURNING token",
                (self._session, who, self._lease_s),
            ).fetchone())  # fmt: skip
            if row is None:
                owner = self._connection.do(lambda connection: describe_owner(connection, self._session)) or "another process"
                raise SessionBusy(
                    f"session {self._session!r} is being run by {owner}: wait for it (--wait) or stop it, then try again"
                )
        except BaseException:
            self._connection.close()
            raise
        self._token = row["token"]
        self._held[self._session] = self
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._held.pop(self._session, None)
        with contextlib.suppress(Unavailable):  # the lease ends by itself if the server cannot be reached
            self._execute("UPDATE stitchcuda_owner SET beat = NULL WHERE session = %s AND token = %s")
        self._connection.close()

    def check(self, cursor: Any) -> None:
        """Inside a transaction: raises `SessionLost` unless this process is still the owner, and keeps it so until the end."""
        cursor.execute(
            "SELECT 1 FROM stitchcuda_owner WHERE session = %s AND token = %s FOR SHARE", (self._session, self._token)
        )
        if cursor.fetchone() is None:
            owner = describe_owner(cursor, self._session) or "another process, which has ended since"
            raise SessionLost(
                f"session {self._session!r} was taken over by {owner}, since this process gave no sign of life for "
                f"{self._lease_s:g} s: nothing more is written here"
            )

    def _beat(self) -> None:
        while not self._over.wait(self._lease_s / 4):
            with contextlib.suppress(Unavailable):  # the next beat tries again
                self._execute("UPDATE stitchcuda_owner SET beat = clock_timestamp() WHERE session = %s AND token = %s")

    def _execute(self, statement: str) -> None:
        self._connection.do(lambda connection: connection.execute(statement, (self._session, self._token)))


def lease_s() -> float:
    """Seconds that an owner may be silent: STITCHCUDA_LEASE_S, else `LEASE_S`. Raises `BadInput` unless it is 1 to 3600."""
    text = os.environ.get(LEASE, "").strip()
    try:
        seconds = float(text or LEASE_S)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= 3600:
        raise BadInput(f"{LEASE} cannot be {text!r}: give seconds from 1 to 3600, or unset it for {LEASE_S:g}")
    return seconds


def describe_owner(cursor: Any, session: str) -> str:
    """Who runs a session now, as text for people; "" if nobody does. `cursor` may be a connection too."""
    row = cursor.execute(
        "SELECT owner, extract(epoch FROM clock_timestamp() - beat)::int AS age FROM stitchcuda_owner "
        f"WHERE session = %s AND {_ALIVE}",
        (session,),
    ).fetchone()
    return f"{row['owner']} (last sign of life {row['age']} s ago)" if row else ""
