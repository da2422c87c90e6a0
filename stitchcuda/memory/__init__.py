"""Memory across sessions: lessons of earlier tasks, by LangGraph's Store, found again for situations like theirs.

    WORKSPACE/memory.sqlite               the default place
    STITCHCUDA_MEMORY=PATH                another SQLite file, such as one that several workspaces share
    STITCHCUDA_MEMORY=postgresql://…      a PostgreSQL database (the extra `postgres`)

Each lesson is an item of its own below `("stitchcuda", "lessons", KEY)`, never part of a larger one: a store has no transaction
from reading to writing, and so two processes that learn at once both keep what they learnt. What repeats is put together when
read (`memory/experience.py`); what fits is found by comparing situations (`memory/similarity.py`), with no index. It never
decides what to do with a lesson, and runs no session. Start at `memory/lesson.py`; from a session's records to a lesson:
`memory/lesson_making.py`.
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
from stitchcuda.memory.experience import Experience, SimilarExperience, fitting, gathered
from stitchcuda.memory.lesson import Lesson, Situation, Tensor, each_once
from stitchcuda.memory.lesson_making import lesson_of, situation_of
from stitchcuda.memory.lesson_text import as_text
from stitchcuda.memory.postgres_memory import PostgresPlace
from stitchcuda.memory.sqlite_memory import SqlitePlace
from stitchcuda.state import Record
from stitchcuda.store.database import SCHEMES

__all__ = [
    "Experience",
    "Imported",
    "Lesson",
    "Memory",
    "Recalled",
    "Situation",
    "Tensor",
    "as_text",
    "fitting",
    "lesson_of",
    "location",
    "open_memory",
    "situation_of",
]

FILE = "memory.sqlite"
FORMAT = 1                                 # of the items below; the store says it under ROOT
ROOT = ("stitchcuda",)
LESSONS = (*ROOT, "lessons")
WAIT_S = 30.0
_ALL = 1_000_000                           # a store's search wants a limit
_AT_ONCE = 500                             # items a statement: databases limit its parameters


class Place(Protocol):
    """Where lessons lie; `str` of it is what people are shown."""

    def is_there(self) -> bool: ...

    def opened(self) -> AbstractContextManager[BaseStore]: ...

    def close(self) -> None: ...


class Imported(Record):
    """What came of an import."""

    added: int
    known: int                             # that were there already


class Memory:
    """The lessons at `where`: an SQLite file, made with the first lesson, or a PostgreSQL URL.

    `wait_s` is how long another process may hold it. Methods raise `Unavailable` or `BadInput` for a place that cannot be used,
    is damaged, is something else's or was written by a newer StitchCUDA; nothing is changed then.
    """

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
        """The place, for people: no password in it."""
        return str(self._place)

    def remember(self, lesson: Lesson) -> bool:
        """Keeps a lesson; False if the same attempt with the same evidence was there already."""
        with self._opened(writing=True) as store:
            if store.get((*LESSONS, lesson.key), lesson.id) is not None:
                return False
            store.batch([_put(lesson)])
        return True

    def lessons(self) -> tuple[Experience, ...]:
        """Everything that was learnt, put together by key, the weightiest first."""
        return gathered(self._all())

    def recall(self, situation: Situation, limit: int = 5) -> tuple[SimilarExperience, ...]:
        """What fits `situation` best, at most `limit`. For several situations read `lessons` once and ask `fitting`."""
        return fitting(self.lessons(), situation, limit)

    def export(self, path: Path) -> int:
        """Writes all lessons as an export file and returns their number. What was at `path` is replaced as a whole."""
        lessons = each_once(self._all())
        exchange.write(path, exchange.text(lessons))
        return len(lessons)

    def exported(self) -> str:
        """The same as text."""
        return exchange.text(self._all())

    def import_(self, path: Path) -> Imported:
        """Adds the lessons of an export file; one that is here already stays as it is. Read as a whole before any is added."""
        return self.add(exchange.read(path))

    def add(self, lessons: Iterable[Lesson]) -> Imported:
        """Adds many lessons."""
        wanted = {lesson.id: lesson for lesson in lessons}
        with self._opened(writing=True) as store:
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
        with self._opened(writing=False) as store:
            return tuple(Lesson.model_validate(item.value) for item in store.search(LESSONS, limit=_ALL))

    @contextmanager
    def _opened(self, *, writing: bool) -> Iterator[BaseStore]:
        """The store, for one thread at a time; what is in it has our format."""
        with self._guard, self._place.opened() as store:
            try:
                self._check_format(store, writing)
                yield store
            except (ValidationError, json.JSONDecodeError) as error:
                raise Unavailable(
                    f"the memory {self.where} holds what cannot be read and was left as it is: restore it from a copy, or name "
                    "another file with STITCHCUDA_MEMORY"
                ) from error

    def _check_format(self, store: BaseStore, writing: bool) -> None:
        """The format is said with the first lesson. Raises Unavailable for what a newer StitchCUDA has written."""
        found = store.get(ROOT, "format")
        if found is None:
            if writing:
                store.put(ROOT, "format", {"version": FORMAT}, index=False)
            return
        version = found.value.get("version")
        if not isinstance(version, int) or version > FORMAT:
            told = f"(format {version}, this one reads {FORMAT}): update stitchcuda"
            raise Unavailable(f"the memory {self.where} was written by a newer StitchCUDA {told}")


def _put(lesson: Lesson) -> PutOp:
    return PutOp((*LESSONS, lesson.key), lesson.id, lesson.model_dump(mode="json"), index=False)


def location(workspace: Path) -> Path | str:
    """Where a workspace's memory is: what STITCHCUDA_MEMORY says, else a file in the workspace's folder."""
    return os.environ.get("STITCHCUDA_MEMORY", "").strip() or workspace / FILE


@contextmanager
def open_memory(workspace: Path, *, wait_s: float = WAIT_S) -> Iterator[Memory]:
    """The memory of the workspace at this folder, closed at the end. Nothing is opened or made before it is used."""
    memory = Memory(location(workspace), wait_s=wait_s)
    try:
        yield memory
    finally:
        memory.close()

