"""Refuses to evaluate a checkpoint on what it was trained on: on a problem whose reference is like one of its training.

What a checkpoint was trained on is read from its runs (`run.json` names the data set and the tasks). Where that is not known, a
sentence in the table says so. Nothing is left out of a split: it is refused whole.
Where to look next: `training/clusters.py` (what alike means), `training/evaluation/model_checkpoint.py` (runs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stitchcuda.errors import BadInput
from stitchcuda.training.clusters import alike, find_structure
from stitchcuda.training.evaluation.evaluation_problems import EvaluationProblem
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint, RunBehind, located, runs_behind
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.stages.stage_rows import read_as_made, read_manifest

_TRAINED_BY = ("data", "tasks")            # keys of a stage's config


def refuse_overlap(problems: Sequence[EvaluationProblem], checkpoints: Sequence[ModelCheckpoint]) -> list[str]:
    """Returns a sentence for each thing that could not be looked for. Raises `BadInput` at the first overlap."""
    structures = {problem.name: find_structure(problem.reference) for problem in problems}
    said = []
    for checkpoint in checkpoints:
        runs = runs_behind(checkpoint)
        if not runs:
            said.append(f"what {checkpoint.label} was trained on is not known, so no overlap was looked for")
        for run in runs:
            for name, source in _trained_on(run, said):
                found = find_structure(source)
                for problem in problems:
                    own = structures[problem.name]
                    same = source == problem.reference if own is None or found is None else alike(own, found)
                    if same:
                        raise BadInput(
                            f"{problem.name} is like {name}, which {checkpoint.label} was trained on ({run.folder}): evaluate "
                            "it on a split or on tasks that it was not trained on"
                        )
    return list(dict.fromkeys(said))


def _trained_on(run: RunBehind, said: list[str]) -> Iterator[tuple[str, str]]:
    """The references of a run's training, by name. Appends a sentence to `said` for what is not there any more."""
    for key in _TRAINED_BY:
        name = str(run.terms.stage.get(key) or "")
        path = located(name, run.folder)
        if not name:
            continue
        if path is None:
            said.append(f"{name}, which {run.folder} was trained on, is not there, so no overlap with it was looked for")
        elif key == "tasks":
            yield from read_tasks(path).items()
        else:
            files = [file.path for file in read_manifest(path).files if file.path.startswith("jsonl/")]
            rows = (row for file in files if file.endswith(".train.jsonl") for row in read_as_made(path, file))
            yield from {row["reference"]: (row["id"], row["reference"]) for row in rows}.values()
