"""An append-only file of records, one checksummed JSON line each: the form of a session's ledger and of its transcript.

A record is there when its line is whole: a line torn by a crash is cut off by the next writer and never counts. The first
record with a key stays; the file is read again when another process has added to it. It knows nothing of what the records
mean: see `workspace/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from stitchcuda.errors import Damaged
from stitchcuda.state import Record
from stitchcuda.writing import write_atomically

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
            line = self._line(record)
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
        """All records by key, oldest first. Raises Damaged for a line that is whole but not what was written."""
        with self._guard:
            return dict(self._read())

    def readable(self) -> tuple[list[R], str]:
        """The records whose lines are whole, oldest first, and a sentence for the first one that is not; "" where all are."""
        found: dict[str, R] = {}
        damage = ""
        data = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            try:
                record = self._parsed(line, number)
            except Damaged as error:
                damage = damage or str(error)
                continue
            found.setdefault(self._key(record), record)
        return list(found.values()), damage

    def replace(self, records: Iterable[R]) -> None:
        """Writes the file anew with these records. What was in it is kept beside it, as `NAME.damaged` and a number."""
        with self._guard:
            if self.path.exists():
                number = next(n for n in range(1, 1_000_000) if not self._aside(n).exists())
                os.rename(self.path, self._aside(number))
            write_atomically(self.path, b"".join(map(self._line, records)))
            self._size = -1

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.damaged{number}")

    def _line(self, record: R) -> bytes:
        body = record.model_dump_json()
        return json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), self._field: body}).encode() + b"\n"

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
        raise Damaged(f"{self.path} is damaged at line {number}: restore it from a copy, or resume without it")

    def _whole(self) -> int:
        """Bytes up to the end of the last complete line."""
        return self.path.read_bytes().rfind(b"\n") + 1 if self.path.exists() else 0
