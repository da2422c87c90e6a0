"""A lesson: what came of one task of one session, in which situation, and where the proof lies. Pure records.

Text in it may come from a chat model and be shown to another one: every text is one line without control characters, cut to a
length, whoever makes the record and wherever it was read from. Lessons are never changed and never averaged here: lessons with
the same `key` are put together in `memory/experience.py`. Where to look next: `memory/lesson_making.py` (from a session's
records to a lesson).

Units: milliseconds. Digests are lower-case hexadecimal SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, NonNegativeInt

from stitchcuda.memory.technique_names import strategy_key
from stitchcuda.state import Precision, Record, Tier

MOST_OPERATORS = 64                        # different ones in a situation: a whole program of a host-side task has many
MOST_TENSORS = 32


def one_line(text: str, most: int) -> str:
    """`text` as at most `most` characters of one line; what cannot be printed, such as escapes and bidi marks, is left out."""
    text = text[: 8 * most]
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _short(most: int) -> BeforeValidator:
    return BeforeValidator(lambda value: one_line(value, most) if isinstance(value, str) else value)


Name = Annotated[str, _short(100)]
Sentence = Annotated[str, _short(300)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Tensor(Record):
    """Shape and dtype of one tensor that crosses the border of a task's regions."""

    shape: Annotated[tuple[NonNegativeInt, ...], Field(max_length=32)]
    dtype: Name                            # torch's name, such as "bfloat16"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """log2 of rows and of columns, rounded: the last axis is the columns, all the others the rows."""
        columns = self.shape[-1] if self.shape else 1
        rows = math.prod(self.shape[:-1])
        return round(math.log2(max(rows, 1))), round(math.log2(max(columns, 1)))


class Situation(Record):
    """What a task is about, before anything is done. Empty texts mean that it is not known."""

    operators: Annotated[tuple[tuple[Name, NonNegativeInt], ...], Field(max_length=MOST_OPERATORS)]
    """Such as ("aten.layer_norm.default", 1): how often each, in smallest whole numbers, in order of first appearance."""
    tensors: Annotated[tuple[Tensor, ...], Field(max_length=MOST_TENSORS)]  # inputs and outputs, largest first
    bottleneck: Sentence = ""              # as the review or a profile put it
    device: Name = ""                      # as the driver says it
    arch: Name = ""                        # nvcc's name, such as "sm_90a"
    precision: Precision = "reference"
    torch: Name = ""


class Lesson(Record):
    """What was tried in a situation, what it was predicted to save, and what came of it."""

    situation: Situation
    kind: Literal["region", "host"]
    title: Annotated[str, _short(120)]
    strategy: Sentence = ""                # how it was meant to be done
    note: Annotated[str, _short(400)] = ""  # the coder's own words
    feature: Name = ""                     # of a host-side task, such as "cuda_graph"
    predicted_ms: FiniteFloat = 0.0        # saving
    saving_ms: FiniteFloat | None = None   # measured; None where nothing was timed
    saving_low_ms: FiniteFloat | None = None   # 95 % interval
    saving_high_ms: FiniteFloat | None = None
    runtime_ms: FiniteFloat | None = None  # of the program before it: timed where the saving was, else predicted
    tier: Tier | None = None               # None: not even built
    outcome: Literal["accepted", "refuted"]
    reason: Sentence = ""                  # why it was refuted
    evidence: Sha256                       # of the Evidence record
    program: Sha256                        # of the program's manifest
    session: Name
    attempt: Name                          # Attempt.id

    @property
    def id(self) -> str:
        """The same for the same attempt with the same evidence, wherever it was read: such lessons count once."""
        return _digest([self.attempt, self.evidence])

    @property
    def key(self) -> str:
        """The same for lessons that repeat each other: operators, magnitudes, dtypes, arch, precision and way of doing it."""
        operators: dict[str, int] = {}
        for name, count in self.situation.operators:
            operators[plain(name)] = operators.get(plain(name), 0) + count
        tensors = sorted((tensor.dtype, *tensor.extent) for tensor in self.situation.tensors)
        way = self.feature if self.kind == "host" and self.feature else strategy_key(self.strategy or self.title)
        return _digest([sorted(operators.items()), tensors, self.situation.arch, self.situation.precision, self.kind, way])


def each_once(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """Lessons by id. Of two with the same id the one whose text sorts first, so the order they come in is all one."""
    found: dict[str, Lesson] = {}
    for lesson in lessons:
        name = lesson.id
        other = found.get(name)
        if other is None or (lesson != other and lesson.model_dump_json() < other.model_dump_json()):
            found[name] = lesson
    return tuple(found[name] for name in sorted(found))


def plain(operator: str) -> str:
    """An operator without torch's namespace, overload and underscores: "aten.add_.Tensor" → "add"."""
    parts = operator.split(".")
    name = ".".join(parts[:-1]) if len(parts) > 2 else operator
    return name.removeprefix("aten.").strip("_") or operator


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
