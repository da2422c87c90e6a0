"""Defines the record of a lesson: the situation of a task, what was tried, what came of it, and its evidence.

Texts may come from one chat model and be shown to another, so every text is reduced to one line without control characters and
cut to a length whenever a record is made or read. Two lessons have the same `id` if they are about the same attempt and
evidence, and the same `key` if they repeat each other. Lessons are never changed. Units: milliseconds. Digests: hexadecimal
SHA-256.

Where to look next: `memory/lesson_making.py` (from a session's records to a lesson), `memory/experience.py` (same key).
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

MOST_OPERATORS = 64                        # different operators in a situation; a host-side task has the whole program's
MOST_TENSORS = 32


def one_line(text: str, most: int) -> str:
    """Returns `text` as one line of at most `most` characters, without unprintable ones such as escapes and bidi marks."""
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
    """Shape and dtype of an input or output of a task's regions."""

    shape: Annotated[tuple[NonNegativeInt, ...], Field(max_length=32)]
    dtype: Name                            # torch's name, such as "bfloat16"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """log2 of rows and of columns, rounded; the last axis is the columns, the product of all others the rows."""
        columns = self.shape[-1] if self.shape else 1
        rows = math.prod(self.shape[:-1])
        return round(math.log2(max(rows, 1))), round(math.log2(max(columns, 1)))


class Situation(Record):
    """What a task is about, before anything is tried. An empty text means unknown."""

    operators: Annotated[tuple[tuple[Name, NonNegativeInt], ...], Field(max_length=MOST_OPERATORS)]
    """Pairs such as ("aten.layer_norm.default", 1): counts divided by their common divisor, in order of first appearance."""
    tensors: Annotated[tuple[Tensor, ...], Field(max_length=MOST_TENSORS)]  # inputs and outputs, largest first
    bottleneck: Sentence = ""              # in the words of the review or a profile
    device: Name = ""                      # the driver's name
    arch: Name = ""                        # nvcc's name, such as "sm_90a"
    precision: Precision = "reference"
    torch: Name = ""


class Lesson(Record):
    """What was tried in a situation, what it was predicted to save, and what came of it."""

    situation: Situation
    kind: Literal["region", "host"]
    title: Annotated[str, _short(120)]
    strategy: Sentence = ""                # the plan's strategy
    note: Annotated[str, _short(400)] = ""  # the coder's note
    feature: Name = ""                     # what a host-side task adds, such as "cuda_graph"
    predicted_ms: FiniteFloat = 0.0        # saving
    saving_ms: FiniteFloat | None = None   # measured; None if it was not timed
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
        """Equal for the same attempt with the same evidence; such lessons count once."""
        return _digest([self.attempt, self.evidence])

    @property
    def key(self) -> str:
        """Equal for lessons that repeat each other: same operators, magnitudes, dtypes, arch, precision, kind and strategy."""
        operators: dict[str, int] = {}
        for name, count in self.situation.operators:
            operators[plain_operator(name)] = operators.get(plain_operator(name), 0) + count
        tensors = sorted((tensor.dtype, *tensor.extent) for tensor in self.situation.tensors)
        strategy = self.feature if self.kind == "host" and self.feature else strategy_key(self.strategy or self.title)
        return _digest([sorted(operators.items()), tensors, self.situation.arch, self.situation.precision, self.kind, strategy])


def unique_lessons(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """Returns the lessons ordered by id, one for each id: the one whose JSON sorts first, whatever the order given."""
    found: dict[str, Lesson] = {}
    for lesson in lessons:
        name = lesson.id
        other = found.get(name)
        if other is None or (lesson != other and lesson.model_dump_json() < other.model_dump_json()):
            found[name] = lesson
    return tuple(found[name] for name in sorted(found))


def plain_operator(operator: str) -> str:
    """Returns an operator without torch's namespace, overload and underscores: "aten.add_.Tensor" → "add"."""
    parts = operator.split(".")
    name = ".".join(parts[:-1]) if len(parts) > 2 else operator
    return name.removeprefix("aten.").strip("_") or operator


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
