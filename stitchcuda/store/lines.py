"""Reads and appends checksummed JSON lines: the format of a session's ledger, its transcript, and a benchmark's results.

A record counts once its line is complete: a line torn by a crash is cut off by the next writer. The first record with an id
stays. The file is read again when another process has added to it. It knows nothing of what the records mean.

Where to look next: `store/folder_store.py` (who uses it), `store/postgres_store.py` (the same as a table).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from stitchcuda.errors import Damaged
from stitchcuda.store.files import sync_folder, write_atomically, writing


class Identified(Protocol):
    """A record with an id."""

    @property
    def id(self) -> str: ...
    def model_dump_json(self) -> str: ...
    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray) -> Any: ...


R = TypeVar("R", bound=Identified)


def damaged_path(path: Path) -> Path:
    """Where to put a damaged file, for people to look at: beside it, as `NAME.damaged` and the first free number."""
    return next(
        free for number in range(1, 1_000_000) if not (free := path.with_name(f"{path.name}.damaged{number}")).exists()
    )


class Lines(Generic[R]):
    """The records of type `kind` in `path`, by id. Several threads may append; of several processes, one at a time.

    Each line is `{"sha256": …, FIELD: "the record as JSON"}`.
    """

    def __init__(self, path: Path, kind: type[R], field: str) -> None:
        self.path = path
        self._kind, self._field = kind, field
        self._guard = threading.Lock()
        self._size = -1
        self._known: dict[str, R] = {}

    def append(self, record: R) -> R:
        """Adds a record, fsynced before this returns, and returns the first record in the file that has its id."""
        with self._guard, writing(self.path):
            known = self._read()
            if (found := known.get(record.id)) is not None:
                return found
            line = self._line(record)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = not self.path.exists()
            with self.path.open("ab") as file:
                file.truncate(self._complete_size())
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if fresh:
                sync_folder(self.path.parent)
            known[record.id] = record
            self._size = self.path.stat().st_size
            return record

    def records(self) -> Mapping[str, R]:
        """All records by id, oldest first. Raises Damaged for a line that is complete but not what was written."""
        with self._guard:
            return dict(self._read())

    def readable(self) -> tuple[tuple[R, ...], tuple[str, ...]]:
        """The undamaged records, oldest first, and a sentence for each damaged line."""
        found: dict[str, R] = {}
        damage = []
        for number, line in enumerate(self._lines(), 1):
            if (record := self._parsed(line)) is None:
                damage.append(f"{self.path} is damaged at line {number}")
            else:
                found.setdefault(record.id, record)
        return tuple(found.values()), tuple(damage)

    def replace(self, records: Iterable[R]) -> None:
        """Writes the file anew with these records. A copy of the former file stays beside it (see `damaged_path`)."""
        with self._guard:
            if self.path.exists():         # copied, not renamed: there is a ledger at every moment
                write_atomically(damaged_path(self.path), self.path.read_bytes())
            write_atomically(self.path, b"".join(map(self._line, records)))
            self._size = -1

    def _line(self, record: R) -> bytes:
        body = record.model_dump_json()
        return json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), self._field: body}).encode() + b"\n"

    def _read(self) -> dict[str, R]:
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:  # never read, or another process has appended since
            records, damage = self.readable()
            if damage:
                raise Damaged(f"{damage[0]}: restore it from a copy, or resume without it")
            self._size, self._known = size, {record.id: record for record in records}
        return self._known

    def _parsed(self, line: bytes) -> R | None:
        """The record in a line; None if the line is damaged."""
        try:
            entry = json.loads(line)
            if hashlib.sha256(entry[self._field].encode()).hexdigest() == entry["sha256"]:
                return cast(R, self._kind.model_validate_json(entry[self._field]))
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def _lines(self) -> list[bytes]:
        """The complete lines. The file is read at once, since another process may be writing."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return data.split(b"\n")[:-1]

    def _complete_size(self) -> int:
        """Bytes up to the end of the last complete line."""
        return self.path.read_bytes().rfind(b"\n") + 1 if self.path.exists() else 0
