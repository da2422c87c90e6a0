"""Reads what checkpoints are evaluated on: a split of a data set, or a table, a folder or a file of tasks.

A problem is a prompt and the reference that its answer is judged by. Problems whose references are alike share a cluster. Of a
data set every reference that any row of the split has is a problem of skill 1, also where no program of it was accepted. It
generates nothing and judges nothing.
Where to look next: `training/data.py` (splits), `training/clusters.py`, `training/evaluation/overlap.py` (what is refused).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from stitchcuda.bench.problems import digest, file_name
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.clusters import clusters
from stitchcuda.training.completion_program import shown_files
from stitchcuda.training.data import KINDS, Split
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.rewards import Skill
from stitchcuda.training.session_rows import SpokenTurn, asked_to_write
from stitchcuda.training.stages.stage_rows import read_as_made, read_manifest


class EvaluationProblem(Record):
    """`name` is unique, and a file name. `cluster`: equal for references that are alike. `program`: the files that the prompt
    shows, which an answer may edit."""

    name: str
    cluster: str
    skill: Skill
    messages: tuple[SpokenTurn, ...]
    reference: str
    program: dict[str, str] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest(self.model_dump_json())


def problems_of_split(data: Path, split: Split, skills: Sequence[Skill]) -> list[EvaluationProblem]:
    """The problems of a split of a data set. Raises `BadInput` for a data set that was changed, and for a split without any."""
    there = {file.path for file in read_manifest(data).files}
    rows: dict[str, list[dict[str, Any]]] = {
        kind: read_as_made(data, name) if (name := f"jsonl/{kind}.{split}.jsonl") in there else [] for kind in KINDS
    }
    found: dict[str, EvaluationProblem] = {}
    for row in (row for kind in KINDS for row in rows[kind] if 1 in skills):
        found.setdefault(row["reference"], EvaluationProblem(
            name=_session(row), cluster=row["cluster"], skill=1, messages=asked_to_write(row["reference"]),
            reference=row["reference"],
        ))  # fmt: skip
    better = [
        EvaluationProblem(
            name=file_name(f"{_session(row)}-skill2-{number}"), cluster=row["cluster"], skill=2, messages=row["messages"][:-1],
            reference=row["reference"], program=shown_files(row.get("program")),
        )
        for number, row in enumerate(rows["skill2"] if 2 in skills else (), 1)
    ]  # fmt: skip
    problems = [*found.values(), *better]
    if not problems:
        raise BadInput(
            f"{data} has no problem in the split {split}: give another --split, or make it with a larger --test-percent"
        )
    return problems


def problems_of_tasks(path: Path) -> list[EvaluationProblem]:
    """The references in a table, a folder or a file, each as a problem of skill 1. Raises `BadInput`."""
    sources = read_tasks(path)
    cluster = clusters(sources)
    found = [
        EvaluationProblem(
            name=file_name(name), cluster=cluster[name], skill=1, messages=asked_to_write(source), reference=source
        )
        for name, source in sources.items()
    ]
    names = [problem.name for problem in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path} has two tasks that would both be called {twice}: rename one")
    return found


def _session(row: dict[str, Any]) -> str:
    """The session that a row was made of, from its id (SESSION/KIND/…)."""
    return file_name(str(row["id"]).partition("/")[0])
