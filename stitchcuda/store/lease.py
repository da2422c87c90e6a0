"""Decides which machine owns a session in a shared database: a row with a heartbeat, and a token that grows with each owner.

A lock alone has no lease: it stays with a machine that is paused, and goes from one whose network was away for a moment. Here
an owner that gives no sign of life for `LEASE_S` may be replaced, and each of its writes checks in its own transaction that it
was not. Time is the database's clock alone. Where to look next: `store/postgres_store.py` (what is written).
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
LEASE_S = 15.0                             # without a heartbeat, after which somebody else may take over
_ALIVE = (
    "stitchcuda_owner.beat IS NOT NULL "
    "AND stitchcuda_owner.beat > clock_timestamp() - make_interval(secs => stitchcuda_owner.lease_s)"
)


class Lease:
    """Ownership of one session; a context manager. `held` is where the store finds the leases of its process."""

    def __init__(self, database: Database, session: str, held: dict[str, Lease]) -> None:
        self._session, self._held = session, held
        self._lease_s = lease_s()
        self._token = 0
        self._over = threading.Event()
        self._line = Connection(database, database.connect)
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {session}", daemon=True)

    def __enter__(self) -> Lease:
        who = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            row = self._line.do(lambda connection: connection.execute(
                "INSERT INTO stitchcuda_owner VALUES (%s, 1, %s, %s, clock_timestamp()) ON CONFLICT (session) "
                "DO UPDATE SET token = stitchcuda_owner.token + 1, owner = EXCLUDED.owner, "
                "lease_s = EXCLUDED.lease_s, beat = EXCLUDED.beat "
                f"WHERE NOT ({_ALIVE}) RETURNING token",
                (self._session, who, self._lease_s),
            ).fetchone())  # fmt: skip
            if row is None:
                owner = self._line.do(lambda connection: owner_of(connection, self._session)) or "another process"
                raise SessionBusy(
                    f"session {self._session!r} is being run by {owner}: wait for it (--wait) or stop it, then try again"
                )
        except BaseException:
            self._line.close()
            raise
        self._token = row["token"]
        self._held[self._session] = self
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._held.pop(self._session, None)
        with contextlib.suppress(Unavailable):  # without a word the lease ends by itself
            self._say("UPDATE stitchcuda_owner SET beat = NULL WHERE session = %s AND token = %s")
        self._line.close()

    def check(self, cursor: Any) -> None:
        """Inside a transaction: still the owner, and until it ends. Raises `SessionLost`."""
        cursor.execute(
            "SELECT 1 FROM stitchcuda_owner WHERE session = %s AND token = %s FOR SHARE", (self._session, self._token)
        )
        if cursor.fetchone() is None:
            owner = owner_of(cursor, self._session) or "another process, which has ended since"
            raise SessionLost(
                f"session {self._session!r} was taken over by {owner}, since this process gave no sign of life for "
                f"{self._lease_s:g} s: nothing more is written here"
            )

    def _beat(self) -> None:
        while not self._over.wait(self._lease_s / 4):
            with contextlib.suppress(Unavailable):  # away for a moment: the next beat tries again
                self._say("UPDATE stitchcuda_owner SET beat = clock_timestamp() WHERE session = %s AND token = %s")

    def _say(self, statement: str) -> None:
        self._line.do(lambda connection: connection.execute(statement, (self._session, self._token)))


def lease_s() -> float:
    """Seconds that an owner may be silent. Raises `BadInput` where the environment says none."""
    said = os.environ.get(LEASE, "").strip()
    try:
        seconds = float(said or LEASE_S)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= 3600:
        raise BadInput(f"{LEASE} cannot be {said!r}: give seconds from 1 to 3600, or unset it for {LEASE_S:g}")
    return seconds


def owner_of(cursor: Any, session: str) -> str:
    """Who runs a session now, for people; "" for nobody. `cursor` may be a connection too."""
    row = cursor.execute(
        "SELECT owner, extract(epoch FROM clock_timestamp() - beat)::int AS age FROM stitchcuda_owner "
        f"WHERE session = %s AND {_ALIVE}",
        (session,),
    ).fetchone()
    return f"{row['owner']} (last sign of life {row['age']} s ago)" if row else ""
