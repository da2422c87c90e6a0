"""Says what a checkpoint is that was given as a text: a run of a stage, a model's or an adapter's folder, or a name on the hub.

It also finds the runs that a checkpoint came of: its own, and those of the models that these began with. No weights are read.
Where to look next: `training/stages/stage_run.py` (a run's folder), `training/evaluation/overlap.py` (what was trained on).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun

_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
ADAPTER = "adapter_config.json"


class ModelCheckpoint(Record):
    """`model`: a folder or a name on the hub. `adapter`: a folder, or "" for a whole model."""

    label: str                             # as it was given
    model: str
    adapter: str = ""

    @property
    def folder(self) -> Path:
        """Where its own weights are, if they are a folder."""
        return Path(self.adapter or self.model)


class RunBehind(Record):
    """A run that a checkpoint came of."""

    folder: Path
    terms: RunTerms


def find_checkpoint(given: str, base: str | None = None) -> ModelCheckpoint:
    """`base`: the model below an adapter, in place of the one that the adapter names. Raises `BadInput`."""
    path = Path(given)
    if not path.exists():
        if not _ON_HUB.fullmatch(given):
            raise BadInput(f"there is no folder {given}: give a run, a model, an adapter, or a name on the Hugging Face hub")
        return ModelCheckpoint(label=given, model=given)
    weights, own = path, [path / name for name in (ADAPTER, "config.json")]
    if _terms(path) is not None and not any(file.is_file() for file in own):  # an exported model has both
        summary = _summary(path)
        if summary is None:
            raise BadInput(f"the run {given} is not finished: end it with --resume, or name a save point in its checkpoints/")
        weights = path / summary.result
    if (weights / ADAPTER).is_file():
        return ModelCheckpoint(label=given, model=base or _base_of(weights), adapter=str(weights))
    if not (weights / "config.json").is_file():
        raise BadInput(f"{given} holds no model: give the folder of a run, a model or an adapter")
    return ModelCheckpoint(label=given, model=str(weights))


def runs_behind(checkpoint: ModelCheckpoint) -> list[RunBehind]:
    """The runs that a checkpoint came of, its own first; [] where none is known."""
    found: list[RunBehind] = []
    waiting = [Path(weights) for weights in (checkpoint.adapter, checkpoint.model) if weights]
    while waiting:
        path = waiting.pop(0)
        for folder in (path, *path.absolute().parents[:2]):
            terms = _terms(folder)
            if terms is None or any(folder.resolve() == run.folder.resolve() for run in found):
                continue
            found.append(RunBehind(folder=folder, terms=terms))
            if begun := located(str(terms.stage.get("model", "")), folder):
                waiting.append(begun)
            break
    return found


def located(name: str, run: Path) -> Path | None:
    """A path that a run's config names, as it stands or beside the run; None where it is not there."""
    places = (Path(name), run.absolute().parent / name)
    return next((place for place in places if name and place.exists()), None)


def _terms(folder: Path) -> RunTerms | None:
    try:
        return RunTerms.model_validate_json((folder / "run.json").read_bytes())
    except (OSError, ValidationError):     # there is none, or it is of another kind of run
        return None


def _summary(run: Path) -> RunSummary | None:
    try:
        return StageRun(run).summary()
    except ValidationError as error:
        raise BadInput(f"{run / 'summary.json'} is damaged: make the run again, or name its weights' folder") from error


def _base_of(adapter: Path) -> str:
    try:
        base = json.loads((adapter / ADAPTER).read_bytes()).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise BadInput(f"{adapter / ADAPTER} cannot be read ({error}): save the adapter anew") from error
    if not base:
        raise BadInput(f"{adapter / ADAPTER} names no base model: give --base")
    if Path(base).exists():
        return str(base)
    if beside := next((parent / base for parent in adapter.absolute().parents[1:3] if (parent / base).exists()), None):
        return str(beside)
    if not _ON_HUB.fullmatch(base) or base.count("/") > 1:
        raise BadInput(f"the adapter {adapter} is of the model {base}, which is not there: give its folder by --base")
    return str(base)
