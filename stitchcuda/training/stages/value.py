"""Value pretraining: a critic learns lambda-returns of answers that are there, before PPO begins (CUDA Agent's third stage).

Imported when the stage runs. Of a run of PPO (`rollouts`) values are learnt before each token that the model wrote; targets are
lambda-returns of the critic's own values, anew at each update. Of `data`, rows of kind "value" have a talk up to where the
assistant speaks, and what came of it: their value is learnt there alone. Rewards of two kinds are not mixed.
Where to look next: `training/stages/rollout_tokens.py`, `training/stages/critic.py`, `training/stages/advantages.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.training.session_rows import REWARD, SpokenTurn
from stitchcuda.training.stages.advantages import discounted_scores, explained_variance, generalised_advantages
from stitchcuda.training.stages.config import ValueStage
from stitchcuda.training.stages.critic import estimate, load_critic
from stitchcuda.training.stages.rollout_tokens import TokenRow, fitting, token_rows
from stitchcuda.training.stages.stage_plan import StagePlan, make_plan
from stitchcuda.training.stages.stage_rows import TalkRow, refuse_held_out, rows_of
from stitchcuda.training.stages.stage_run import RunSummary, StageRun
from stitchcuda.training.stages.training import common_arguments, load_tokenizer, run_stage, tokens_of


def plan_value(stage: ValueStage, out: Path) -> StagePlan:
    """What the stage would do. Nothing is written, and no weights are read. Raises `BadInput`."""
    rows, left_out = _rows(stage, load_tokenizer(stage.model))
    steps = stage.steps_for(len(rows), stage.batch)
    return make_plan(
        stage, out, rows={"rows": len(rows)}, left_out=left_out, steps=steps, updates=steps, tokens=stage.max_length
    )  # fmt: skip


def train_value(stage: ValueStage, out: Path, *, resume: bool, tell: Callable[[str], None]) -> RunSummary:
    """Trains a critic on the weights of `model`, or goes on with the run in `out`. Raises `BadInput` for what cannot be meant,
    `Unavailable` for what stopped it; save points stay."""
    tokenizer = load_tokenizer(stage.model)
    rows, left_out = _rows(stage, tokenizer)
    steps, said = stage.steps_for(len(rows), stage.batch), f"{counted(len(rows), 'row')}, {left_out} left out as too long"

    def trainer(folder: StageRun) -> Any:
        arguments = TrainingArguments(
            **common_arguments(stage, folder, steps, 1), gradient_accumulation_steps=stage.batch // stage.micro_batch,
            remove_unused_columns=False, label_names=["labels"],
        )  # fmt: skip
        return ValueTrainer(
            stage, model=load_critic(stage.model), args=arguments, train_dataset=list(rows), processing_class=tokenizer,
            data_collator=_Padded(tokenizer.pad_token_id),
        )  # fmt: skip

    return run_stage(
        stage, StageRun(out), [row.digest for row in rows], steps, 1, said, trainer, resume=resume, tell=tell
    )  # fmt: skip


class ValueTrainer(Trainer):
    """transformers' trainer with the loss of a critic: half the squared error, over all tokens of an update."""

    def __init__(self, stage: ValueStage, **given: Any) -> None:
        super().__init__(**given)
        self.stage = stage
        self.model_accepts_loss_kwargs = True  # it hands `compute_loss` the number of an update's tokens
        self._seen: list[Tensor] = []      # of the update: values, and what they are estimates of

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:  # fmt: skip
        mask, scores = (inputs["labels"] == 1).float()[:, 1:], inputs["scores"]
        values = estimate(model, inputs["input_ids"], inputs["attention_mask"], mask.shape[1])
        held = values.detach() * mask
        _, returns = generalised_advantages(scores, held, mask, self.stage.gamma, self.stage.gae_lambda)
        truth = discounted_scores(scores, mask, self.stage.gamma)
        self._seen.append(torch.stack([held[mask > 0], truth[mask > 0]]))
        count = mask.sum() if num_items_in_batch is None else num_items_in_batch
        return 0.5 * ((values - returns).square() * mask).sum() / count

    def log(self, logs: dict[str, float], *more: Any, **named: Any) -> None:
        if self._seen and "loss" in logs:
            values, truth = torch.cat(self._seen, 1)
            if not math.isnan(explained := explained_variance(values, truth, torch.ones_like(values))):
                logs["explained_variance"] = explained
        self._seen.clear()
        super().log(logs, *more, **named)


class _Padded:
    """Rows as one batch, padded on the right. `labels` is 1 at tokens that the model wrote and -100 elsewhere."""

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def __call__(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        longest = max(row.length for row in rows)
        ids = torch.full((len(rows), longest), self.padding)
        attention, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for at, row in enumerate(rows):
            ids[at, : row.length] = torch.tensor([*row.prompt, *row.answer])
            attention[at, : row.length] = 1
            wrote = torch.tensor(row.wrote)
            labels[at, len(row.prompt) : row.length] = torch.where(wrote > 0, 1, -100)
        scores = torch.tensor([row.reward for row in rows])
        return {"input_ids": ids, "attention_mask": attention, "labels": labels, "scores": scores}


def _rows(stage: ValueStage, tokenizer: Any) -> tuple[list[TokenRow], int]:
    """The rows of at most `max_length` tokens, and how many were left out. Raises `BadInput`."""
    rows = token_rows(stage.rollouts, tokenizer, stage.held_out, stage.reward)
    if stage.data:
        rows += _states(stage, tokenizer)
    return fitting(rows, stage.max_length, stage.table)


def _states(stage: ValueStage, tokenizer: Any) -> list[TokenRow]:
    """Rows of a data set. A token of padding stands for what the assistant says: a value is what is known before it."""
    if stage.reward != REWARD:
        mismatch = f"{stage.data} has the reward {REWARD}, and not {stage.reward}"
        raise BadInput(f"{mismatch}: set value.reward to it, or give rollouts")
    found, talks = list[TokenRow](), list[TalkRow]()
    for row in rows_of(Path(stage.data), "jsonl/value.train.jsonl"):
        if row[stage.worth] is None:
            continue
        turns = tuple(SpokenTurn.model_validate(turn) for turn in row["messages"])
        talks.append(TalkRow(id=row["id"], messages=turns))
        found.append(TokenRow(
            id=row["id"], prompt=tuple(tokens_of(tokenizer, turns, answer=True)), answer=(tokenizer.pad_token_id,),
            wrote=(1,), reward=row[stage.worth],
        ))  # fmt: skip
    if not found:
        raise BadInput(f"no row of {stage.data} has a {stage.worth}: set value.worth to another, or give rollouts")
    refuse_held_out(talks, stage.held_out)
    return found
