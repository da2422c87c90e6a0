"""Writes a finished run's adapter, or the model with the adapter merged, into a new folder that transformers and PEFT load.

    DIR/adapter_config.json, adapter_model.safetensors    the adapter as the run left it, or
    DIR/config.json, model*.safetensors                   a whole model
    DIR/tokenizer*, chat_template.jinja                   of the model that the run began with
    DIR/run.json, summary.json                            what the run was asked, and what came of it
    DIR/README.md                                         the model card

The folder is complete or not there. Weights that are not those of the run's summary are refused. Nothing is sent anywhere.
Imported when a run is exported: it needs transformers and PEFT.
Where to look next: `training/export/model_card.py`, `training/stages/stage_run.py` (a run's folder).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peft import PeftModel
from pydantic import ValidationError
from transformers.utils import logging as transformers_logging

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Record
from stitchcuda.store.files import UNFINISHED, writing
from stitchcuda.training.evaluation.evaluation_table import Evaluation
from stitchcuda.training.evaluation.model_checkpoint import ADAPTER, find_checkpoint
from stitchcuda.training.export.model_card import EvaluationOfRun, ExportForm, ServedModel, make_card, serving_commands
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun
from stitchcuda.training.stages.training import is_full, load_tokenizer, load_weights, weights_digest

_FILES = ("run.json", "summary.json")


class ExportedModel(Record):
    """What was written."""

    folder: str
    form: ExportForm
    base: str                              # what an adapter is loaded on; "" for a whole model
    sha256: str                            # of the weights' files
    served: tuple[ServedModel, ...]


def export_run(
    run: Path, into: Path, *, merge: bool = False, base: str | None = None, evaluation: Path | None = None, licence: str = "",
    tell: Callable[[str], None] = print,
) -> ExportedModel:  # fmt: skip
    """`merge`: the adapter's weights are added to the model's. `base`: the model below the adapter, in place of the one that
    it names. `evaluation`: a folder of `stitchcuda train evaluate` with figures of this run. `licence`: as the hub names it.
    Raises `BadInput` for what cannot be exported, `Unavailable` if the disk is full; then nothing is left behind."""
    terms, summary = _finished(run)
    if into.exists():
        raise BadInput(f"{into} is there already: give a new folder")
    adapter, whole = run / "adapter", run / "model"
    if weights_digest(run / summary.result) != summary.sha256:
        raise BadInput(f"the weights in {run / summary.result} are not those of {run / 'summary.json'}: they were changed")
    has_adapter = (adapter / ADAPTER).is_file()
    if not has_adapter or (merge and (whole / "config.json").is_file()):  # fine-tuning merges its own
        form, source, below = ExportForm.WHOLE if not has_adapter else ExportForm.MERGED, whole, ""
    else:
        checkpoint = find_checkpoint(str(adapter), base)
        form, source, below = ExportForm.MERGED if merge else ExportForm.ADAPTER, adapter, checkpoint.model
    own = {summary.sha256, *([weights_digest(adapter)] if has_adapter else [])}
    figures = _figures(evaluation, run, own) if evaluation else None
    transformers_logging.disable_progress_bar()
    tokenizer = load_tokenizer(below or str(source))
    name = into.resolve().name
    with writing(into):
        into.resolve().parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=into.resolve().parent, prefix=UNFINISHED))
    try:
        tell(f"{form}: {source}" + (f" on {below}" if below else ""))
        if below and merge:
            _merge(below, source).save_pretrained(place)
        else:
            _copy_weights(source, place)
        if base and form is ExportForm.ADAPTER:
            _name_base(place / ADAPTER, base)
        elif form is ExportForm.ADAPTER and Path(below).exists():
            tell(f"the adapter needs {below}, a folder of this machine: give --base or --merge to hand it to others")
        tokenizer.save_pretrained(place)
        for file in _FILES:
            shutil.copyfile(run / file, place / file)
        rank = int(json.loads((place / ADAPTER).read_bytes())["r"]) if form is ExportForm.ADAPTER else 0
        kept_base = "" if form is not ExportForm.ADAPTER else below
        served = serving_commands(name, str(into), kept_base, rank)
        card = make_card(
            name, form, terms, summary, run=run, base=kept_base, served=served, evaluation=figures, licence=licence,
            sha256=weights_digest(place),
        )  # fmt: skip
        (place / "README.md").write_text(card, encoding="utf-8")
        place.chmod(0o755)
        place.rename(into)
    except Exception as error:
        if isinstance(error, StitchError) or not is_full(error):
            raise
        raise Unavailable(f"no space left to write {into}: free some, or give another folder; nothing of it is left") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)  # it is gone where it was renamed
    return ExportedModel(folder=str(into), form=form, base=kept_base, sha256=weights_digest(into), served=served)


def _finished(run: Path) -> tuple[RunTerms, RunSummary]:
    """What a finished run is, and what came of it. Raises `BadInput`."""
    try:
        terms = RunTerms.model_validate_json((run / "run.json").read_bytes())
        summary = StageRun(run).summary()
    except (OSError, ValidationError) as error:
        raise BadInput(f"{run} is no run of a stage: give what stitchcuda train sft or grpo wrote as --out") from error
    if summary is None:
        raise BadInput(f"the run {run} is not finished: go on with it by --resume, then export it")
    if not (run / summary.result).is_dir():
        raise BadInput(f"{run / summary.result}, the result of the run, is gone: make the run again")
    return terms, summary


def _figures(evaluation: Path, run: Path, weights: set[str]) -> EvaluationOfRun:
    """The evaluation in a folder, and what this run is called there. `weights`: digests of the run's results. Raises `BadInput`
    if it has no figures of them."""
    try:
        found = Evaluation.model_validate_json((evaluation / "evaluation.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise BadInput(f"{evaluation} is no finished evaluation: give the --out of stitchcuda train evaluate") from error
    label = next((own.label for own in found.checkpoints if weights & set(own.weights.split("+"))), None)
    if label is None:
        raise BadInput(f"{evaluation} has no figures of {run}: evaluate it, then export it")
    return EvaluationOfRun(evaluation=found, label=label)


def _merge(base: str, adapter: Path) -> Any:
    """The base with the adapter's weights added, in the base's own precision."""
    model = load_weights(base, "auto")
    try:
        return PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except (ValueError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0][:300]
        raise BadInput(f"the adapter {adapter} does not fit {base}: {why}") from error


def _name_base(config: Path, base: str) -> None:
    settings = json.loads(config.read_bytes())
    config.write_text(json.dumps({**settings, "base_model_name_or_path": base}, indent=2, sort_keys=True), encoding="utf-8")


def _copy_weights(source: Path, into: Path) -> None:
    """Copies weights and their settings; what a trainer left beside them is not needed."""
    for pattern in ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", ADAPTER):
        for file in source.glob(pattern):
            shutil.copyfile(file, into / file.name)
