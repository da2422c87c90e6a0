"""An append-only file of records, one checksummed JSON line each: the form of a session's ledger and of its transcript.

A record is there when its line is whole: a line torn by a crash is cut off by the next writer and never counts. The first
record with a key stays; the file is read again when another process has added to it. It knows nothing of what the records
mean: see `workspace.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from stitchcuda.errors import Unavailable
from stitchcuda.state import Record

R = TypeVar("R", bound=Record)


class Lines(Generic[R]):
    """The records of type `kind` in `path`, by `key`. Several threads may append; of several processes, one at a time."""

    def __init__(self, path: Path, kind: type[R], field: str, key: Callable[[R], str]) -> None:
        self.path = path
        self._kind, self._field, self._key = kind, field, key
        self._guard = threading.Lock()
        self._size = -1
        self._known: dict[str, R] = {}

    def append(self, record: R) -> R:
        """Adds a record, on disk before this returns, and returns what the file holds under its key."""
        with self._guard:
            known = self._read()
            if (found := known.get(self._key(record))) is not None:
                return found
            body = record.model_dump_json()
            line = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), self._field: body}).encode() + b"\n"
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(self._whole())
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            known[self._key(record)] = record
            self._size = self.path.stat().st_size
            return record

    def records(self) -> Mapping[str, R]:
        """All records by key, oldest first. Raises Unavailable for a line that is whole but not what was written."""
        with self._guard:
            return dict(self._read())

    def _read(self) -> dict[str, R]:
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:  # never read, or another process has appended since
            found: dict[str, R] = {}
            data = self.path.read_bytes() if size else b""  # once: somebody may be writing
            for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
                record = self._parsed(line, number)
                found.setdefault(self._key(record), record)
            self._size, self._known = size, found
        return self._known

    def _parsed(self, line: bytes, number: int) -> R:
        try:
            entry = json.loads(line)
            if hashlib.sha256(entry[self._field].encode()).hexdigest() == entry["sha256"]:
                return self._kind.model_validate_json(entry[self._field])
        except (ValueError, KeyError, TypeError, AttributeError):
            pass                           # said below, with the line's number
        raise Unavailable(f"{self.path} is damaged at line {number}: restore it from a copy")

    def _whole(self) -> int:
        """Bytes up to the end of the last complete line."""
        return self.path.read_bytes().rfind(b"\n") + 1 if self.path.exists() else 0
