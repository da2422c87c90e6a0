"""Looks for references of the test split in texts that are to be trained on: in every field, whatever its name.

A text leaks a reference if a piece of Python in it is alike in structure, or if nearly all neighbouring words of the reference
stand in it, as in a prompt that quotes it in part, a log, or JSON.
Where to look next: `training/clusters.py` (what alike means), `training/data.py` (what is done about a leak).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.clusters import alike, find_structure
from stitchcuda.training.tasks.decontamination import OVERLAP, ProgramStructure

_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+|[^\w\s]")
_NEIGHBOURS = 8                            # words in a row that are compared


class Leak(Record):
    """A field of a row that shows a reference of the test split."""

    row: str
    field: str                             # such as "messages[0].content"
    reference: str                         # the session whose reference it is
    how: str


class TestReferences:
    """The references of the test split, prepared for being looked for."""

    __test__ = False                       # pytest: it is no test

    def __init__(self, sources: Mapping[str, str]) -> None:
        """`sources`: by session, or by file for those that are held out."""
        self._structures = {name: found for name, source in sources.items() if (found := find_structure(source))}
        self._words = {name: _neighbours(source) for name, source in sources.items()}

    def leaks(self, row: str, fields: Mapping[str, Any]) -> list[Leak]:
        """Returns the leaks of one row, at most one for each field and reference."""
        return [
            Leak(row=row, field=field, reference=name, how=how)
            for field, text in texts_of(fields)
            for name, how in self._found_in(text).items()
        ]

    def _found_in(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        words = _neighbours(text)
        for name, wanted in self._words.items():
            if wanted and len(wanted & words) >= OVERLAP * len(wanted):
                found[name] = "its text"
        pieces = [structure for piece in (text, *_FENCED.findall(text)) if (structure := _structure_of_piece(piece))]
        for name, structure in self._structures.items():
            if any(alike(structure, piece) for piece in pieces):
                found.setdefault(name, "its structure")
        return found


def read_held_out_sources(places: Iterable[Path], setting: str) -> dict[str, str]:
    """Returns the texts of the Python files at `places` by path: files, and folders with all below them. `setting`: what named
    them, such as "--held-out". Raises `BadInput`."""
    sources: dict[str, str] = {}
    for place in places:
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        if not files or not files[0].is_file():
            raise BadInput(f"{setting} {place} names no Python file: give a file, or a folder of them")
        try:
            sources |= {str(file): file.read_text(errors="replace") for file in files}
        except OSError as error:
            raise BadInput(f"{setting} {place} cannot be read ({error.strerror}): let it be read, or leave it out") from error
    return sources


def texts_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields every text in a row, at any depth, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from texts_of(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from texts_of(inner, f"{path}[{number}]")


def _structure_of_piece(piece: str) -> ProgramStructure | None:
    return find_structure(piece) if "class " in piece or "def " in piece else None


def _neighbours(text: str) -> frozenset[int]:
    """Hashes of all runs of `_NEIGHBOURS` words; escapes of JSON count as blanks."""
    words = _WORD.findall(re.sub(r"\\[nt\"]", " ", text))
    return frozenset(hash(tuple(words[at : at + _NEIGHBOURS])) for at in range(len(words) - _NEIGHBOURS + 1))
