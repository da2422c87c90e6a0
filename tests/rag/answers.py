"""The question set, and whether a search answers it: shared by the tests and by `benchmarks/docs_search.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stitchcuda.rag.chunk import Chunk

QUESTIONS = Path(__file__).parent / "questions.jsonl"


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    kind: str
    named: bool                            # whether it contains an API symbol
    answers: tuple[str, ...]               # symbols, or "playbook:SLUG"
    why: str


def questions() -> list[Question]:
    lines = QUESTIONS.read_text("utf-8").splitlines()
    return [Question(**json.loads(line) | {"answers": tuple(json.loads(line)["answers"])}) for line in lines]


def rank_of(question: Question, chunks: Sequence[Chunk]) -> int | None:
    """The place, from 1, of the first chunk that answers; None where none does."""
    return next((place for place, chunk in enumerate(chunks, 1) if any(answers(chunk, one) for one in question.answers)), None)


def answers(chunk: Chunk, wanted: str) -> bool:
    """A chunk of that symbol, enclosing namespaces left off or added; or a part of that page of the playbook."""
    if wanted.startswith("playbook:"):
        return chunk.source == wanted
    if chunk.library == "playbook":
        return False
    # Only what a chunk is about counts: its main name and other names of the same thing, not the fields of a type.
    title = chunk.title.partition(" (")[0]
    about = {title, *chunk.names[:1], *(name for name in chunk.names if chunk.kind not in ("type",))}
    return any(_same(name, wanted) for name in about)


def _same(name: str, wanted: str) -> bool:
    short, long = sorted((name, wanted), key=len)
    return long == short or long.endswith(f"::{short}")
