"""Reads sets of problems: KernelBench's levels, a folder or a table of references, or definitions of flashinfer-bench.

A problem is a name and the file of its reference. Nothing is imported or run here: a reference that cannot be used is found
when its session begins, and is then a row of the table.
Where to look next: `bench/run.py` (who optimises them), `bench/programs.py` (sets of programs).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

from stitchcuda.bench import flashinfer
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.store.files import write_atomically

Source = Literal["kernelbench", "folder", "jsonl", "flashinfer"]
SOURCES: tuple[Source, ...] = get_args(Source)
LEVELS = (1, 2, 3, 4)                      # of KernelBench
_LONGEST = 60                              # characters of a name
SOURCE_FIELDS = ("source", "reference", "ref_code", "code")
NAME_FIELDS = ("name", "id", "task_id")


class HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=HasName)


class Problem(Record):
    """A reference to optimise. `name` is unique in its set, and a file name."""

    name: str
    reference: Path
    why_not: str = ""                      # why it can be no problem here; then `reference` is the file that defines it


def read_problems(source: str, path: Path, into: Path, *, levels: Sequence[int] = (), ids: str | None = None) -> list[Problem]:
    """Returns the problems of a set, in its order.

    `source`: one of SOURCES. `path`: a checkout of KernelBench, a folder of references, a .jsonl file, or a folder with
    definitions of flashinfer-bench; references that these hold are written to the folder `into`. `levels`: of KernelBench, by
    default 3. `ids`: which ones, such as "1,4-9", by the number that a file's name begins with, or by place (from 1) where
    names have none. Raises `BadInput`.
    """
    if source not in SOURCES:
        raise BadInput(f"{source} is no source of problems: give {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")
    if levels and source != "kernelbench":
        raise BadInput(f"--level is for kernelbench; {source} has no levels")
    if source == "kernelbench":
        folders = {level: levels_folder(path, level) for level in levels or (3,)}
        found = [problem for level, folder in folders.items() for problem in _in_folder(folder, f"level{level}-")]
    elif source == "folder":
        found = _in_folder(path, "")
    elif source == "flashinfer":
        found = _in_definitions(path, into)
    else:
        found = _in_table(path, into)
    if not found:
        raise BadInput(f"{path} holds no problem: a reference is a Python file with class Model and get_inputs()")
    return choose(found, ids, path)


def choose(found: Sequence[Named], ids: str | None, path: Path) -> list[Named]:
    """Returns those of a set that `ids` names. Raises `BadInput` for ids that are not there, and for two of one name."""
    names = [entry.name for entry in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path} has two entries that would both be called {twice}: rename one")
    if ids is None:
        return [*found]
    ranges = parse_ids(ids)
    numbers = [number_of(entry.name) or place for place, entry in enumerate(found, 1)]
    if missing := [first for first, last in ranges if first == last and first not in numbers]:  # a range may have gaps
        raise BadInput(f"--ids: {path} has no problem {', '.join(map(str, missing))}")
    within = [any(first <= number <= last for first, last in ranges) for number in numbers]
    if not any(within):
        raise BadInput(f"--ids {ids}: {path} has none of these problems")
    return [entry for entry, kept in zip(found, within, strict=True) if kept]


def parse_ids(text: str) -> list[tuple[int, int]]:
    """Returns the ranges (first, last) in a text such as "1,4-9". Raises `BadInput`."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not match:
            raise BadInput(f"--ids {text}: {part.strip() or 'nothing'} is no number: give such as 1,4-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadInput(f"--ids {text}: {part.strip()} ends before it begins")
        ranges.append((first, last))
    return ranges


def number_of(name: str) -> int:
    """Returns the number of a problem such as "level3-21_EfficientNet"; 0 if its name has none."""
    match = re.match(r"(?:level\d+-)?(\d+)(?=[_-]|$)", name)
    return int(match[1]) if match else 0


def levels_folder(checkout: Path, level: int) -> Path:
    """Returns the folder of a level in a checkout of KernelBench. Raises `BadInput` if there is none."""
    if level not in LEVELS:
        raise BadInput(f"--level {level}: KernelBench has levels 1 to {LEVELS[-1]}")
    places = [place / f"level{level}" for place in (checkout / "KernelBench", checkout)]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise BadInput(f"{checkout} is no checkout of KernelBench: it has no folder KernelBench/level{level}")
    return folder


def _in_folder(path: Path, prefix: str) -> list[Problem]:
    if not path.is_dir():
        raise BadInput(f"{path} is no folder: give one with a Python file for each reference")
    files = [file for file in path.glob("*.py") if re.search(r"^class Model\b", read_source(file), re.MULTILINE)]
    ordered = sorted(files, key=lambda file: (number_of(file.stem) or 10**9, file.stem))
    return [Problem(name=file_name(f"{prefix}{file.stem}"), reference=file.resolve()) for file in ordered]


def _in_table(path: Path, into: Path) -> list[Problem]:
    found = []
    for number, row in read_rows(path):
        source = text_in(row, SOURCE_FIELDS)
        if source is None:
            raise BadInput(f'{path} line {number} has no reference: give its Python text as "source"')
        name = file_name(str(next((row[field] for field in NAME_FIELDS if field in row), number)))
        file = into / digest(source) / f"{name}.py"
        write_text(file, source, f"{path} line {number}")
        found.append(Problem(name=name, reference=file.resolve()))
    return found


def _in_definitions(path: Path, into: Path) -> list[Problem]:
    """The definitions in a folder of flashinfer-bench's form: definitions/KIND/NAME.json and workloads/KIND/NAME.jsonl."""
    place = path / "definitions"
    if not place.is_dir():
        raise BadInput(f"{path} has no folder definitions: give a data set of flashinfer-bench")
    found = []
    for file in sorted(place.rglob("*.json")):
        known, name = path / "workloads" / file.parent.relative_to(place) / f"{file.stem}.jsonl", file_name(file.stem)
        lines = [line for line in read_source(known).split("\n") if line.strip()] if known.is_file() else []
        try:
            source = flashinfer.reference_of(read_source(file), lines)
        except flashinfer.NotUsable as error:
            found.append(Problem(name=name, reference=file.resolve(), why_not=str(error)))
            continue
        written = into / digest(source) / f"{name}.py"
        write_text(written, source, str(file))
        found.append(Problem(name=name, reference=written.resolve()))
    return found


def write_text(file: Path, text: str, where: str) -> None:
    """Writes a text that `where` gives, unless it is there. Raises `BadInput` for what is no text."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{where} holds half of a surrogate pair, which is no text: mend it") from error
    if not file.is_file():
        write_atomically(file, data)


def digest(*texts: str | None) -> str:
    return hashlib.sha256("\0".join(text or "" for text in texts).encode("utf-8", "replace")).hexdigest()[:12]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Gives the number of each line of a table that is not empty, and its JSON object. Raises `BadInput`."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}: give a table with one JSON object a line")
    for number, line in enumerate(read_source(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadInput(f"{path} line {number} is no JSON ({error})") from error
        if not isinstance(row, dict):
            raise BadInput(f"{path} line {number} is no JSON object")
        yield number, row


def text_in(row: dict[str, Any], fields: Sequence[str]) -> str | None:
    """Returns the first of these fields of a row that holds a text; None if none does."""
    return next((row[field] for field in fields if isinstance(row.get(field), str) and row[field].strip()), None)


def read_source(file: Path) -> str:
    """Returns the text of a file. Raises `BadInput`."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as text ({error}): mend or remove it") from error


def file_name(text: str) -> str:
    """Returns the text as the name of a session: letters, digits, ".", "_" and "-", at most 60. What is cut off, or not of
    ASCII, is told apart by a digest at the end."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    if len(plain) <= _LONGEST and text.isascii() and plain:
        return plain
    return f"{plain[: _LONGEST - 9] or 'problem'}-{digest(text)[:8]}"
