"""Looks up chunks by exact symbol name in a read-only SQLite file.

A name is found as it is written, else whatever its capitals; `cg::reduce`, `BlockReduce<float, 128>::Sum` and PTX's
`cp.async.bulk` are understood. It ranks nothing by words. Where to look next: `rag/index.py`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.ranking import prior

_NAME = re.compile(
    r"[\s&*:`'\"]*(?P<name>~?[A-Za-z_]\w*(?:(?:::|\.)\w+)*)\s*(?:<.*>)?(?P<member>(?:::\w+)*)\s*(?:\(.*\))?[\s;`'\"?]*",
    re.DOTALL,
)
_TOLD = re.compile(r"~?[A-Za-z_]\w*(?:(?:::|\.)\w+)*")
_TELLING = re.compile(r"_|\d|[a-z][A-Z]|::|^[A-Z]{2}")   # occurs in identifiers and not in ordinary words
_OURS = re.compile(r"cu(?:da|blas|dnn|sparse|solver|rand|fft|b::|[A-Z_])|CU[A-Z_]|__|nv[a-z]*::|wmma|cg::|cooperative_")
_PARTS = 8                                 # of a dotted instruction that are looked at
_MOST_ASKED = 40                           # names of one query that are looked up
_SCHEMA = """
CREATE TABLE chunk (id INTEGER PRIMARY KEY, library TEXT, version TEXT, prior REAL, body TEXT);
CREATE TABLE name (name TEXT, folded TEXT, place INTEGER, chunk INTEGER);
CREATE INDEX by_name ON name (name);
CREATE INDEX by_folded ON name (folded);
"""


def write(chunks: Sequence[Chunk], asked: Container[int], path: Path) -> None:
    """Writes the table of `chunks`. `asked`: indexes of chunks that have phrases. Raises sqlite3.Error and OSError."""
    store = sqlite3.connect(path)
    try:
        with store:
            store.executescript(_SCHEMA)
            store.executemany(
                "INSERT INTO chunk VALUES (?, ?, ?, ?, ?)",
                (
                    (at, chunk.library, chunk.version, prior(chunk, at in asked), chunk.model_dump_json())
                    for at, chunk in enumerate(chunks)
                ),
            )
            store.executemany("INSERT INTO name VALUES (?, ?, ?, ?)", _names(chunks))
    finally:
        store.close()


def _names(chunks: Sequence[Chunk]) -> Iterable[tuple[str, str, int, int]]:
    for at, chunk in enumerate(chunks):
        for place, name in enumerate(chunk.names):
            yield name, name.lower(), place, at


class SymbolTable:
    """An opened table. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._store = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        self._store.execute("PRAGMA mmap_size=268435456")

    def chunk(self, at: int) -> Chunk:
        (body,) = self._store.execute("SELECT body FROM chunk WHERE id = ?", (at,)).fetchone()
        return Chunk.model_validate_json(body)

    def facts(self) -> list[tuple[str, str, float]]:
        """(library, version, prior) of every chunk, in order."""
        return self._store.execute("SELECT library, version, prior FROM chunk ORDER BY id").fetchall()

    def whole(self, query: str) -> list[int]:
        """Returns the chunks of a name, if the query is nothing but that name; else []."""
        found = _NAME.fullmatch(query)
        return self._of(found["name"] + found["member"]) if found else []

    def named_in(self, query: str) -> list[int]:
        """Returns the chunks of the names among a query's words, in the order of the words."""
        names = dict.fromkeys(name for name in _TOLD.findall(query) if _TELLING.search(name))
        found = [at for name in list(names)[:_MOST_ASKED] for at in self._of(name)]
        return list(dict.fromkeys(found))

    def unknown(self, query: str) -> list[str]:
        """Returns a query's identifiers that look like NVIDIA's and are not in the table, without what is in front of `::`."""
        told = dict.fromkeys(name for name in _TOLD.findall(query) if _OURS.match(name) and len(name) > 5)
        return [name.rpartition("::")[2] for name in list(told)[:_MOST_ASKED] if not self._of(name)]

    def close(self) -> None:
        self._store.close()

    def _of(self, asked: str) -> list[int]:
        """Returns the chunks of a name; for a PTX instruction such as `cp.async.bulk.tensor.2d`, of the function that wraps the
        longest beginning of it."""
        if "." in asked:
            parts = re.split(r"::|\.", asked)[:_PARTS]
            tries = ["_".join(parts[:count]) for count in range(len(parts), 1, -1)]
            return next((hits for spelling in tries if (hits := self._inside(spelling, ["ptx"]))), [])
        *outer, name = asked.split("::")
        return self._inside(asked, []) or self._inside(name, outer)

    def _inside(self, name: str, outer: Sequence[str]) -> list[int]:
        known = self._rows("name", name) or self._rows("folded", name.lower())
        if not outer:
            return known
        fits = [at for at in known if set(outer) <= set(self.chunk(at).title.split("::"))]
        return fits or ([] if outer == ["ptx"] else known)

    def _rows(self, column: str, value: str) -> list[int]:
        rows = self._store.execute(f"SELECT chunk FROM name WHERE {column} = ? ORDER BY place > 0, chunk", (value,))
        return list(dict.fromkeys(at for (at,) in rows))
