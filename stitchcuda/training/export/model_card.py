"""Writes the model card of an exported run: README.md with the front matter of the Hugging Face hub.

It says what the model came of (base, stage with its numbers, data with digests and licences, reward), its figures if it was
evaluated, how it is served and used, and what was not run. It claims no figure that is not in the files that it was given.
Where to look next: `training/export/model_card.md.j2` (the text), `training/export/exported.py` (who writes it).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.data import DataManifest
from stitchcuda.training.evaluation.evaluation_table import Evaluation, evaluation_markdown
from stitchcuda.training.evaluation.model_checkpoint import ModelCheckpoint, located, runs_behind
from stitchcuda.training.stages.stage_rows import read_manifest
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM takes as --max-lora-rank; its default is 16."""
_ELSEWHERE = ("model", "data", "tasks", "reward", "judge")  # keys of a stage's config that the card names in other places
_PLACES = ("reward_url", "judge_url", "token_file")         # of the machine that it ran on


class ExportForm(StrEnum):
    """What an exported folder holds."""

    ADAPTER = "adapter"
    MERGED = "merged model"
    WHOLE = "model"                        # all weights were trained


class ServedModel(Record):
    """A server, the command that serves an exported folder with it on port 8000, and what the model is called there."""

    server: str
    command: str
    model: str


class EvaluationOfRun(Record):
    """An evaluation, and what the exported run is called there."""

    evaluation: Evaluation
    label: str


def serving_commands(name: str, folder: str, base: str, rank: int) -> tuple[ServedModel, ...]:
    """How an exported folder is served. `base`: of an adapter, which transformers' own server does not take."""
    place = shlex.quote(folder)
    if base:
        most = next((known for known in RANKS if known >= rank), rank)
        lora = f"--enable-lora --max-lora-rank {most} --lora-modules {name}={place}"
        return (ServedModel(server="vLLM", command=f"vllm serve {shlex.quote(base)} {lora}", model=name),)
    return (
        ServedModel(server="vLLM", command=f"vllm serve {place} --served-model-name {name}", model=name),
        ServedModel(server="transformers", command=f"transformers serve {place} --port 8000", model=folder),
    )


def make_card(
    name: str, form: ExportForm, terms: RunTerms, summary: RunSummary, *, run: Path, base: str, served: Sequence[ServedModel],
    evaluation: EvaluationOfRun | None, licence: str, sha256: str,
) -> str:  # fmt: skip
    """The text of README.md."""
    stage = terms.stage
    begun, chain = str(stage.get("model", "")), _begun_with(run)
    root = chain[-1] if chain else begun
    front = ModelCardData(
        base_model=None if Path(root).exists() else root, library_name="peft" if base else "transformers",
        license=licence or None, pipeline_tag="text-generation", tags=["cuda", "stitchcuda", terms.table], model_name=name,
    )  # fmt: skip
    data, why_not = _manifest(str(stage.get("data") or ""), run)
    return render_markdown(
        Path(__file__).parent / "model_card.md.j2",
        front=front.to_yaml(), name=name, form=str(form), table=terms.table, stitchcuda=terms.stitchcuda, summary=summary,
        base=base, chain=chain, local=[model for model in chain if Path(model).exists()], licence=licence, sha256=sha256,
        numbers={key: _value(value) for key, value in stage.items() if key not in (*_ELSEWHERE, *_PLACES)},
        reward=str(stage.get("reward") or ""), judge=str(stage.get("judge") or ""), tasks=str(stage.get("tasks") or ""),
        data=data, why_not=why_not, served=served, label=evaluation.label if evaluation else "",
        not_run=_not_run(terms, evaluation.evaluation if evaluation else None),
        evaluation=re.sub("^#", "##", evaluation_markdown(evaluation.evaluation), flags=re.MULTILINE) if evaluation else "",
        last={key: f"{value:.4g}" if isinstance(value, float) else value for key, value in summary.last.items()},
    )  # fmt: skip


def _begun_with(run: Path) -> list[str]:
    """The models that a run began with: its own, and where that came of another run, that one's, and so on."""
    runs = runs_behind(ModelCheckpoint(label="", model=str(run)))
    return [str(behind.terms.stage.get("model", "")) for behind in runs]


def _manifest(name: str, run: Path) -> tuple[DataManifest | None, str]:
    """The manifest of a run's data set; without one, why."""
    if not name:
        return None, ""
    path = located(name, run)
    try:
        if path is not None:
            return read_manifest(path), ""
    except BadInput as error:
        return None, str(error)
    return None, f"{name} is not there any more"


def _not_run(terms: RunTerms, evaluation: Evaluation | None) -> list[str]:
    found = []
    if evaluation is None:
        found.append("It was not evaluated on problems that it was not trained on.")
    else:
        if evaluation.terms.settings.target == "sim":
            found.append("Nothing was timed: programs of its evaluation ran on the CPU simulator, and no GPU took part.")
        if not evaluation.terms.judge:
            found.append("No rubric was asked in its evaluation.")
        if evaluation.without_verdict:
            found.append(f"{evaluation.without_verdict} of the answers of its evaluation have no verdict.")
    if terms.table == "grpo" and not terms.stage.get("judge"):
        found.append("No rubric took part in its reward.")
    return [*found, "No server was started with it when it was exported."]


def _value(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "-" if value is None or not text else text
