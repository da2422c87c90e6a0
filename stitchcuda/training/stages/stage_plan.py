"""Says what a stage would do: rows, steps, verdicts, memory (an estimate), what is written where, and the reward service.

Imported when a stage runs: it needs transformers. The model's shape is read from its config; no weights are.
Where to look next: `training/stages/grpo.py`, `training/stages/sft.py`, `training/stages/ppo.py`
(who asks), `cli/training_stages.py` (who prints).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.stages.config import CriticStage, TrainingStage
from stitchcuda.training.stages.training import first_line

_GIB = 2**30


class StageMemory(Record):
    """GiB that a stage needs on its device: an estimate, from shapes alone."""

    weights: float
    trained: float                         # trained weights' gradients and Adam's two moments, and adapters themselves
    logits: float                          # of one forward pass, in float32, with their gradient
    cache: float                           # keys and values while answers are written; all answers of a step at once
    critic: float = 0.0                    # weights, gradients and Adam's two moments, in float32

    @property
    def total(self) -> float:
        return self.weights + self.trained + self.critic + max(self.logits, self.cache)


class StagePlan(Record):
    """What a stage would do."""

    stage: dict[str, Any]
    rows: dict[str, int]
    left_out: int                          # rows that are too long
    steps: int
    updates: int
    verdicts_a_step: int
    verdicts: int
    parameters: int
    trained_parameters: int
    memory: StageMemory
    device: str
    writes: tuple[str, ...]
    service: dict[str, Any]                # of the reward service; {} where the stage needs none


def make_plan(
    stage: TrainingStage, out: Path, *, rows: dict[str, int], left_out: int, steps: int, updates: int, tokens: int,
    verdicts_a_step: int = 0, generated: int = 0, service: dict[str, Any] | None = None,
) -> StagePlan:  # fmt: skip
    """`tokens`: the longest sequence. `generated`: answers that are written at once. Raises `BadInput`."""
    try:
        config = AutoConfig.from_pretrained(stage.model)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError) as error:
        raise BadInput(f"the model {stage.model} cannot be read: {first_line(error)}") from error
    parameters = sum(parameter.numel() for parameter in model.parameters())
    trained = _adapter_size(model, stage.lora_rank) if stage.lora_rank else parameters
    width = 2 if torch.cuda.is_available() else 4
    of_trained = 4 if stage.lora_rank else width  # adapters are in float32
    critic = 4 * parameters if isinstance(stage, CriticStage) else 0  # bytes of its weights
    if alone := stage.table == "value":
        width = of_trained = 4
    saved = [f"{out}/checkpoints: {stage.keep} save points of about {_gib(3 * (of_trained * trained + critic)):.2f} GiB"]
    result = [f"{out}/adapter"] if stage.lora_rank else []
    result += [f"{out}/model"] if not alone and (stage.table != "grpo" or not stage.lora_rank) else []
    result += [f"{out}/critic"] if alone or critic else []
    return StagePlan(
        stage=stage.model_dump(mode="json"), rows=rows, left_out=left_out, steps=steps, updates=updates,
        verdicts_a_step=verdicts_a_step, verdicts=steps * verdicts_a_step, parameters=parameters, trained_parameters=trained,
        memory=StageMemory(
            weights=_gib(width * parameters), trained=_gib((16 if stage.lora_rank else 3 * width) * trained),
            logits=0.0 if alone else _gib(8 * stage.micro_batch * tokens * config.get_text_config().vocab_size),
            cache=_gib(generated * tokens * _cache_bytes(config.get_text_config(), width)), critic=_gib(4 * critic),
        ),
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        writes=(f"{out}/run.json, log.jsonl, summary.json, curves.html", *saved, *result),
        service=service or {},
    )  # fmt: skip


def plan_lines(plan: StagePlan) -> list[str]:
    """A plan for people."""
    memory, rows = plan.memory, ", ".join(f"{count:,} {name}" for name, count in plan.rows.items())
    lines = [
        f"rows: {rows}; left out as too long: {plan.left_out:,}",
        f"steps: {plan.steps:,}, with {plan.updates:,} updates of the weights",
        f"weights: {plan.parameters:,}, on {plan.device}; trained: {plan.trained_parameters:,} {_trained_part(plan)}",
        f"memory, estimated: {memory.total:.2f} GiB (weights {memory.weights:.2f}, training {memory.trained:.2f}, "
        f"critic {memory.critic:.2f}, logits {memory.logits:.2f}, keys and values {memory.cache:.2f}), without activations "
        "between layers",
        *(f"writes {path}" for path in plan.writes),
    ]
    if plan.verdicts:
        lines.insert(2, f"verdicts: {plan.verdicts_a_step:,} a step, {plan.verdicts:,} in all")
    if plan.service:
        answers = f"the reward service at {plan.service['url']} answers: {plan.service.get('environment')}"
        lines.append(str(plan.service.get("wrong") or answers))
    return lines


def _trained_part(plan: StagePlan) -> str:
    rank = plan.stage["lora_rank"]
    return f"of an adapter of rank {rank}" if rank else "of them"


def _adapter_size(model: Any, rank: int) -> int:
    """Weights of an adapter on all linear layers but the head."""
    head = model.get_output_embeddings()
    return sum(
        rank * (layer.in_features + layer.out_features)
        for layer in model.modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    )


def _cache_bytes(config: Any, width: int) -> int:
    """Bytes of keys and values for one token."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * width * config.num_hidden_layers * heads * size)


def _gib(count: float) -> float:
    return count / _GIB
