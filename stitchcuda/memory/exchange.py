"""Reads and writes export files: lessons as JSON lines, to copy them from one memory to another.

The first line is a header with the format's version and the number of lessons, by which a file that was cut short is noticed.
Then comes one lesson a line, ordered by key and id: the same lessons give the same bytes. Texts of lessons are shown to models,
so import files from trusted people only. No store is opened here.

Where to look next: `memory/lesson.py` (the record), `memory/__init__.py` (export and import of a memory).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.memory.lesson import Lesson, unique_lessons
from stitchcuda.store.files import replace_file

FORMAT = "stitchcuda-memory"
VERSION = 1


def text(lessons: Iterable[Lesson]) -> str:
    """Returns the content of an export file; lessons with the same id are written once."""
    chosen = sorted(unique_lessons(lessons), key=lambda lesson: (lesson.key, lesson.id))
    header = json.dumps({"format": FORMAT, "version": VERSION, "lessons": len(chosen)})
    return "\n".join([header, *(lesson.model_dump_json() for lesson in chosen)]) + "\n"


def read(path: Path) -> tuple[Lesson, ...]:
    """Reads all lessons of an export file. Raises BadInput, naming the line, if anything in it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no export of a memory: give a file that `stitchcuda memory export` wrote") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({_why(error)}): give a file that `stitchcuda memory export` wrote") from error
    expected = _count(path, lines[0])
    while lines and not lines[-1]:
        lines.pop()
    found = tuple(_lesson(path, number, line) for number, line in enumerate(lines[1:], 2))
    if len(found) != expected:
        raise BadInput(f"{path} has {len(found)} of {expected} lessons: it was cut short or put together by hand; export again")
    return found


def write(path: Path, content: str) -> None:
    """Writes `content`, replacing the file at once. Raises BadInput, and leaves the file as it was, if that fails."""
    try:
        replace_file(path, content.encode(), mode=0o644)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({_why(error)}): name a file in a folder that you may write to") from error


def _count(path: Path, line: str) -> int:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT or not isinstance(header.get("version"), int):
        raise BadInput(f"{path} is no export of a memory: give a file that `stitchcuda memory export` wrote")
    if header["version"] > VERSION:
        formats = f"(format {header['version']}, this one reads {VERSION})"
        raise BadInput(f"{path} was written by a newer StitchCUDA {formats}: update stitchcuda")
    count = header.get("lessons")
    if not isinstance(count, int):
        raise BadInput(f"{path} is damaged at line 1 (it does not say how many lessons follow): export again")
    return count


def _lesson(path: Path, number: int, line: str) -> Lesson:
    try:
        return Lesson.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise BadInput(f"{path} is damaged at line {number} ({why}): export again, nothing was taken from it") from error


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
