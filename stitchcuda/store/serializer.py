"""Encodes and decodes the values in checkpoints, and turns damaged or unreadable ones into a sentence.

Only our own records are read back (strict msgpack), since a workspace may come from another machine. Each value has a checksum
of its own: one that does not fit raises `Damaged`, and is never taken for a state.

Where to look next: `store/checkpoints.py`, `store/postgres_checkpoints.py` (who uses it), `state.py` (the records).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from stitchcuda.errors import BadInput, Damaged, StitchError, Unavailable
from stitchcuda.state import Record

FILE = "checkpoints.sqlite"
_SUMMED = "msgpack+sha256"
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_NOT_WRITABLE = {
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
}  # fmt: skip


def serializer() -> JsonPlusSerializer:
    """The serializer of all checkpoints. It reads back our own records only: a workspace may come from another machine."""
    return _Checked(allowed_msgpack_modules=[(kind.__module__, kind.__name__) for kind in Record.__subclasses__()])


class _Checked(JsonPlusSerializer):
    """Values in msgpack, each behind its SHA-256."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return (_SUMMED, hashlib.sha256(data).digest() + data) if kind == "msgpack" else (kind, data)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Raises Damaged for a value that is not what was written, and for kinds of values that are never written."""
        kind, value = data
        if kind == _SUMMED:
            value = bytes(value)
            if hashlib.sha256(value[32:]).digest() != value[:32]:
                raise Damaged("a value is not what was written")
            return super().loads_typed(("msgpack", value[32:]))
        if kind not in ("msgpack", "null", "bytes", "bytearray"):  # "msgpack" before there were checksums
            raise Damaged(f"a value is of the kind {kind!r}")
        return super().loads_typed(data)


def disk_trouble(folder: Path, error: sqlite3.Error) -> StitchError:
    """The exception, with a sentence for people, for an error of SQLite with the checkpoints in `folder`."""
    path = folder / FILE
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _NO_ROOM:
        return Unavailable(f"no space left to write {path}: free some, then resume the session")
    if code in _NOT_WRITABLE:
        return BadInput(f"cannot write {path} ({error}): the session needs a folder that may be written to")
    return Damaged(f"{path} is damaged ({error})")


@contextmanager
def explain_damage(where: object) -> Iterator[None]:
    """Inside, an error from reading the checkpoints at `where` (the file, or the store) becomes an exception with a sentence:
    `Damaged` if they are not what was written, `Unavailable` or `BadInput` if the disk is full or cannot be written to."""
    try:
        yield
    except sqlite3.Error as error:
        raise disk_trouble(Path(str(where)).parent, error) from error
    except Damaged as error:
        raise Damaged(str(error) if str(where) in str(error) else f"{where} is damaged ({error})") from error
    except (ValueError, TypeError, KeyError, IndexError, EOFError, NotImplementedError) as error:
        raise Damaged(f"{where} is damaged ({type(error).__name__} when it was read)") from error
