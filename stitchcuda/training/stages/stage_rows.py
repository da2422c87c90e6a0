"""Reads the rows of a stage from a data set or a table of tasks, refuses what leaks, and mixes the two skills.

A data set is used as its manifest describes it: a file that was changed, a row of the test split, a row that `leakage.json`
names, or one that shows a held-out reference raises `BadInput`. Nothing is cut or repaired, and no model is loaded.
Where to look next: `training/data.py` (who writes data sets), `training/leakage.py`, `training/reward_service/tasks.py`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stitchcuda.bench.problems import read_rows
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.data import DataManifest
from stitchcuda.training.leakage import TestReferences, read_held_out_sources
from stitchcuda.training.openenv.episode import task_prompt
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.rewards import Skill
from stitchcuda.training.session_rows import SpokenTurn, asked_to_write
from stitchcuda.training.stages.config import AgenticStage, AnswerStage, RolloutStage, SftStage


class StageRow(Record):
    """A row that a stage learns from."""

    id: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class PromptRow(StageRow):
    """A prompt of GRPO or PPO. `task`: what the reward service is asked with, a name or the reference's text. `program`: the
    files that the prompt shows and edits apply to; {} where it shows none."""

    skill: Skill
    messages: tuple[SpokenTurn, ...]
    task: str
    reference: str
    program: dict[str, str] = Field(default_factory=dict)


class TalkRow(StageRow):
    """Messages of fine-tuning; the assistant's are learnt."""

    messages: tuple[SpokenTurn, ...]


def talk_rows(stage: SftStage) -> list[TalkRow]:
    """The rows of fine-tuning, in their files' order. Raises `BadInput`."""
    rows = []
    for kind in stage.kinds:
        for row in rows_of(Path(stage.data), f"trl/{kind}.train.jsonl"):
            outcome = row["outcome"]
            if stage.least_outcome is None or (outcome is not None and outcome >= stage.least_outcome):
                rows.append(TalkRow(id=row["id"], messages=row["messages"]))
    if not rows:
        raise BadInput(f"no row of {stage.data} has an outcome of at least {stage.least_outcome}: lower sft.least_outcome")
    refuse_held_out(rows, stage.held_out)
    return rows


def prompt_rows(stage: AnswerStage) -> list[PromptRow]:
    """The prompts of both skills as far as their weights ask for them: first those of `data`, then those of `tasks`. Raises
    `BadInput`."""
    rows: list[PromptRow] = []
    for skill, weight in stage.shares.items():
        if weight and stage.data and (skill == 2 or not stage.tasks or _has(stage.data, skill)):
            for row in rows_of(Path(stage.data), f"jsonl/skill{skill}.train.jsonl"):
                rows.append(PromptRow(
                    id=row["id"], skill=skill, messages=row["messages"][:-1], task=row["reference"], reference=row["reference"],
                    program=row.get("program", {}),
                ))  # fmt: skip
    if stage.tasks and stage.skill1_weight:
        rows += [
            PromptRow(id=f"tasks/{name}", skill=1, messages=asked_to_write(source), task=name, reference=source)
            for name, source in read_tasks(Path(stage.tasks)).items()
        ]  # fmt: skip
    refuse_held_out(rows, stage.held_out)
    return rows


def episode_rows(stage: AgenticStage) -> list[PromptRow]:
    """A row for each task, with what an episode's agent is told first. Raises `BadInput`."""
    rows = [
        PromptRow(
            id=f"tasks/{name}", skill=1, task=name, reference=source,
            messages=(SpokenTurn(role="user", content=task_prompt(source, stage.target, stage.turns, stage.checks)),),
        )
        for name, source in read_tasks(Path(stage.tasks)).items()
    ]  # fmt: skip
    refuse_held_out(rows, stage.held_out)
    return rows


def require_skills(rows: Sequence[PromptRow], stage: RolloutStage) -> None:
    """Raises `BadInput` if there is no row of a skill that has a weight."""
    for skill, weight in stage.shares.items():
        if weight and not any(row.skill == skill for row in rows):
            lengths, or_else = f"no prompt of skill {skill} has at most {stage.max_prompt} tokens", ""
            if isinstance(stage, AnswerStage):
                or_else = f", or set {stage.table}.skill{skill}_weight to 0"
            raise BadInput(f"{lengths}: raise {stage.table}.max_prompt{or_else}")


def mixed(rows: Sequence[PromptRow], stage: RolloutStage, count: int) -> list[PromptRow]:
    """`count` prompts in the order of training: of each skill by its weight as exactly as whole numbers allow at every moment,
    and of one skill all rows, in an order drawn by the seed, before one comes again."""
    weights = stage.shares
    drawn = {skill: _endless([row for row in rows if row.skill == skill], f"{stage.seed}/{skill}") for skill in weights}
    given: dict[Skill, int] = dict.fromkeys(weights, 0)
    found = []
    for number in range(1, count + 1):
        skill = max(weights, key=lambda skill: number * weights[skill] / sum(weights.values()) - given[skill])
        given[skill] += 1
        found.append(next(drawn[skill]))
    return found


def _endless(rows: Sequence[PromptRow], seed: str) -> Iterator[PromptRow]:
    draw = random.Random(seed)
    while True:
        yield from draw.sample(rows, len(rows))


def _has(data: str, skill: Skill) -> bool:
    return any(file.path == f"jsonl/skill{skill}.train.jsonl" for file in read_manifest(Path(data)).files)


def read_manifest(data: Path) -> DataManifest:
    """The manifest of a data set. Raises `BadInput` where there is none."""
    path = data / "manifest.json"
    try:
        return DataManifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): give a folder that stitchcuda train data made") from error
    except ValidationError as error:
        raise BadInput(f"{path} is no manifest of a data set: make it again with stitchcuda train data") from error


def read_as_made(data: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one file of a data set. Raises `BadInput` if it is not what the manifest says."""
    files = {file.path: file for file in read_manifest(data).files}
    if name not in files:
        raise BadInput(f"{data} has no rows {name}: it has {', '.join(sorted(files)) or 'none'}")
    try:
        content = (data / name).read_bytes()
    except OSError as error:
        raise BadInput(f"{data} is incomplete ({error}): make it again with stitchcuda train data") from error
    if hashlib.sha256(content).hexdigest() != files[name].sha256:
        raise BadInput(f"{data / name} is not what the manifest says: it was changed after it was checked for leaks")
    return [row for _, row in read_rows(data / name)]


def rows_of(data: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one file of a data set, after all that would make training on it wrong was looked for."""
    rows = read_as_made(data, name)
    try:
        leaking = {leak["row"] for leak in json.loads((data / "leakage.json").read_bytes())["leaks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{data} is incomplete ({error}): make it again with stitchcuda train data") from error
    if wrong := next((row["id"] for row in rows if row["split"] != "train"), None):
        raise BadInput(f"the row {wrong} of {data / name} is of the test split: it is never trained on")
    if wrong := next((row["id"] for row in rows if row["id"] in leaking), None):
        raise BadInput(f"the row {wrong} of {data / name} leaks a test reference, as {data}/leakage.json says")
    return rows


def refuse_held_out(rows: Sequence[PromptRow | TalkRow], held_out: Sequence[str]) -> None:
    """Raises `BadInput` if a row shows one of the references in these files and folders."""
    tests = TestReferences(read_held_out_sources(map(Path, held_out), "held_out:"))
    for row in rows if held_out else ():
        if leak := next(iter(tests.leaks(row.id, row.model_dump())), None):
            raise BadInput(f"the row {leak.row} shows the held-out {leak.reference} ({leak.how} in {leak.field})")
