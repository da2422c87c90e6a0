"""Opens SQLite caches that can be made again, and removes damaged ones.

Only damage is a reason to remove one: a full disk and another process at work are not.
Where to look next: `rag/vectors.py` (caches embeddings), `rag/building.py` (removes a damaged cache).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WAIT_S = 120.0                            # for another process that writes


def open_cache(path: Path, table: str) -> sqlite3.Connection:
    """Opens an SQLite file with this table, and makes it if it does not exist. Raises sqlite3.Error and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        store.commit()
    except sqlite3.Error:
        store.close()
        raise
    return store


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the error means that the file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def remove(path: Path) -> None:
    """Removes the file and those that SQLite writes beside it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
