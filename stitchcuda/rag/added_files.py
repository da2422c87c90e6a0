"""Keeps the documents that a user has added, one file for each source, read again by every build of the index.

A file's first line is its `Addition`, every other line one chunk, all as JSON. It splits and indexes nothing.
Where to look next: `rag/additions.py` (who writes), `rag/sources.py` and `rag/building.py` (who read).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.rag import index_store
from stitchcuda.rag.chunk import Chunk
from stitchcuda.state import Record


class Addition(Record):
    """One source that was added: the first line of its file, whose other lines are chunks."""

    source: str                            # path, URL or what its documents call it
    library: str
    version: str = ""
    files: int = 1                         # different sources of its documents
    notes: tuple[str, ...] = ()            # what could not be read


def write(addition: Addition, chunks: Sequence[Chunk]) -> None:
    """Writes the chunks of one source, in place of those it had. Raises `Unavailable` where nothing can be written."""
    lines = "\n".join(record.model_dump_json() for record in (addition, *chunks))
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        index_store.write_text(_path(addition.source), lines)
    except OSError as error:
        why = f"{_folder()} cannot be written to ({error.strerror})"
        raise Unavailable(f"{why}: set STITCHCUDA_DOCS to a folder you may write to") from error


def delete(source: str) -> None:
    """Removes the file of a source that was added."""
    _path(source).unlink()


def list_additions(damaged: dict[str, str]) -> Iterator[tuple[Addition, Path]]:
    """Yields all additions with their files, by source. Files that cannot be read are added to `damaged`, with the remedy."""
    found = []
    for path in _folder().glob("*.jsonl"):
        try:
            with path.open(encoding="utf-8") as file:
                found.append((Addition.model_validate_json(file.readline()), path))
        except (OSError, ValueError) as error:
            damaged[path.name] = f"{path} is damaged ({type(error).__name__}): remove it, and add its source again"
    yield from sorted(found, key=lambda pair: pair[0].source)


def chunks(path: Path) -> list[Chunk]:
    """The chunks of one file. Raises OSError and ValueError for one that is damaged."""
    with path.open(encoding="utf-8") as file:
        return [Chunk.model_validate_json(line) for number, line in enumerate(file) if number]


def _folder() -> Path:
    return index_store.home() / "added"


def _path(source: str) -> Path:
    return _folder() / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.jsonl"
