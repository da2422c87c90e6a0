"""Stores lessons of finished tasks across sessions, and finds those made in situations similar to a given one.

    WORKSPACE/memory.sqlite               the default place
    STITCHCUDA_MEMORY=PATH                another SQLite file, such as one that several workspaces share
    STITCHCUDA_MEMORY=postgresql://…      a PostgreSQL database (the extra `postgres`)

Each lesson is an item of its own in LangGraph's Store, below `("stitchcuda", "lessons", KEY)`: a store has no transaction from
reading to writing, so two processes that add lessons at once lose none. Lessons with the same key are grouped when they are
read; similar ones are found by comparing situations, with no index. It never decides what to do with a lesson.

Where to look next: `memory/lesson.py` (the record), `memory/lesson_making.py` (from a session to a lesson),
`memory/experience.py` (groups and weighs lessons), `memory/similarity.py` (compares situations).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from langgraph.store.base import BaseStore, PutOp
from pydantic import ValidationError

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.memory import exchange
from stitchcuda.memory.experience import Experience, SimilarExperience, find_similar, group_by_key
from stitchcuda.memory.lesson import Lesson, Situation, Tensor, unique_lessons
from stitchcuda.memory.lesson_making import make_lesson, make_situation
from stitchcuda.memory.lesson_text import describe_experiences
from stitchcuda.memory.postgres_memory import PostgresPlace
from stitchcuda.memory.sqlite_memory import SqlitePlace
from stitchcuda.state import Record
from stitchcuda.store.database import SCHEMES

__all__ = [
    "Experience", "Imported", "Lesson", "Memory", "Situation", "Tensor", "describe_experiences", "find_similar", "location",
    "make_lesson", "make_situation", "open_memory",
]  # fmt: skip

FILE = "memory.sqlite"
FORMAT = 1                                 # version of the stored items; stored under ROOT
ROOT = ("stitchcuda",)
LESSONS = (*ROOT, "lessons")
WAIT_S = 30.0
_ALL = 1_000_000                           # `search` of a store needs a limit
_AT_ONCE = 500                             # items in one statement: databases limit its parameters


class Place(Protocol):
    """A file or database that holds lessons; its `str` is what people are shown."""

    def is_there(self) -> bool:
        """Whether there may be lessons to read."""

    def open_store(self) -> AbstractContextManager[BaseStore]:
        """Yields the store. Errors of the database become a `StitchError`, and the connection is closed."""

    def close(self) -> None: ...


class Imported(Record):
    """The result of an import, in lessons."""

    added: int
    known: int                             # were in the memory already


class Memory:
    """The lessons at `where`: the path of an SQLite file, made with the first lesson, or a PostgreSQL URL. `wait_s` is how long
    to wait for other processes. Methods raise `Unavailable` or `BadInput`, and change nothing, for a file or database that
    cannot be used, is damaged, belongs to another program or was written by a newer StitchCUDA."""

    def __init__(self, where: Path | str, *, wait_s: float = WAIT_S) -> None:
        self._guard = threading.Lock()
        self._place: Place
        if isinstance(where, str) and where.startswith(SCHEMES):
            self._place = PostgresPlace(where, wait_s)
        elif isinstance(where, str) and "://" in where:
            scheme = where.partition("://")[0]
            raise BadInput(f"STITCHCUDA_MEMORY cannot begin with {scheme}://: give the path of a file, or postgresql://…")
        else:
            self._place = SqlitePlace(Path(where).expanduser(), wait_s)

    @property
    def where(self) -> str:
        """The path or URL for people, without user and password."""
        return str(self._place)

    def remember(self, lesson: Lesson) -> bool:
        """Stores a lesson; returns False if one of the same attempt and evidence was stored already."""
        with self._open(writing=True) as store:
            if store.get((*LESSONS, lesson.key), lesson.id) is not None:
                return False
            store.batch([_put(lesson)])
        return True

    def lessons(self) -> tuple[Experience, ...]:
        """Returns all lessons, grouped by key, those with the highest weight first."""
        return group_by_key(self._all())

    def recall(self, situation: Situation, limit: int = 5) -> tuple[SimilarExperience, ...]:
        """Returns what fits `situation` best, at most `limit`. For several situations call `lessons`, then `find_similar`."""
        return find_similar(self.lessons(), situation, limit)

    def export(self, path: Path) -> int:
        """Writes all lessons to an export file, which replaces `path` as a whole, and returns their number."""
        lessons = unique_lessons(self._all())
        exchange.write(path, exchange.text(lessons))
        return len(lessons)

    def export_text(self) -> str:
        """Returns what `export` writes."""
        return exchange.text(self._all())

    def import_(self, path: Path) -> Imported:
        """Adds the lessons of an export file. The file is read and checked as a whole before any lesson is added."""
        return self.add(exchange.read(path))

    def add(self, lessons: Iterable[Lesson]) -> Imported:
        """Adds lessons; those that are stored already stay as they are."""
        wanted = {lesson.id: lesson for lesson in lessons}
        with self._open(writing=True) as store:
            known = {item.key for item in store.search(LESSONS, limit=_ALL)}
            fresh = [lesson for name, lesson in wanted.items() if name not in known]
            for start in range(0, len(fresh), _AT_ONCE):
                store.batch([_put(lesson) for lesson in fresh[start : start + _AT_ONCE]])
        return Imported(added=len(fresh), known=len(wanted) - len(fresh))

    def close(self) -> None:
        self._place.close()

    def _all(self) -> tuple[Lesson, ...]:
        if not self._place.is_there():
            return ()
        with self._open(writing=False) as store:
            return tuple(Lesson.model_validate(item.value) for item in store.search(LESSONS, limit=_ALL))

    @contextmanager
    def _open(self, *, writing: bool) -> Iterator[BaseStore]:
        """Yields the store to one thread at a time, after checking its format."""
        with self._guard, self._place.open_store() as store:
            try:
                self._check_format(store, writing)
                yield store
            except (ValidationError, json.JSONDecodeError) as error:
                raise Unavailable(
                    f"the memory {self.where} holds what cannot be read and was left as it is: restore it from a copy, or name "
                    "another file with STITCHCUDA_MEMORY"
                ) from error

    def _check_format(self, store: BaseStore, writing: bool) -> None:
        """Raises Unavailable for a memory that a newer StitchCUDA has written. The format is stored with the first lesson."""
        found = store.get(ROOT, "format")
        if found is None:
            if writing:
                store.put(ROOT, "format", {"version": FORMAT}, index=False)
            return
        version = found.value.get("version")
        if not isinstance(version, int) or version > FORMAT:
            formats = f"(format {version}, this one reads {FORMAT})"
            raise Unavailable(f"the memory {self.where} was written by a newer StitchCUDA {formats}: update stitchcuda")


def _put(lesson: Lesson) -> PutOp:
    return PutOp((*LESSONS, lesson.key), lesson.id, lesson.model_dump(mode="json"), index=False)


def location(workspace: Path) -> Path | str:
    """Returns where a workspace's memory is: the value of STITCHCUDA_MEMORY, else a file in the workspace's folder."""
    return os.environ.get("STITCHCUDA_MEMORY", "").strip() or workspace / FILE


@contextmanager
def open_memory(workspace: Path, *, wait_s: float = WAIT_S) -> Iterator[Memory]:
    """Yields the memory of the workspace at this folder, and closes it. Nothing is opened or created before its first use."""
    memory = Memory(location(workspace), wait_s=wait_s)
    try:
        yield memory
    finally:
        memory.close()

