"""Fine-tuning on what ended well (rejection fine-tuning): TRL's trainer on the assistant's turns of `stitchcuda train data`, or
on what the model of a run of PPO wrote.

Imported when the stage runs. Only what the assistant says is learnt (`assistant_only_loss`): TRL would train on the questions
too. Rows that are too long are left out, since a program that is cut off is none.
Where to look next: `training/stages/stage_rows.py`, `training/stages/rollout_tokens.py` (the rows),
`training/stages/training.py` (what all stages share).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.training.stages.config import SftStage
from stitchcuda.training.stages.rollout_tokens import TokenRow, fitting, token_rows
from stitchcuda.training.stages.stage_plan import StagePlan, make_plan
from stitchcuda.training.stages.stage_rows import TalkRow, talk_rows
from stitchcuda.training.stages.stage_run import RunSummary, StageRun
from stitchcuda.training.stages.training import (
    common_arguments,
    first_line,
    load_model,
    load_tokenizer,
    lora_of,
    run_stage,
    tokens_of,
)

Rows = Sequence[TalkRow] | Sequence[TokenRow]


def plan_sft(stage: SftStage, out: Path) -> StagePlan:
    """What the stage would do. Nothing is written, and no weights are read. Raises `BadInput`."""
    rows, left_out = _fitting(stage, load_tokenizer(stage.model))
    steps = stage.steps_for(len(rows), stage.batch)
    return make_plan(
        stage, out, rows={"talks": len(rows)}, left_out=left_out, steps=steps, updates=steps, tokens=stage.max_length
    )  # fmt: skip


def train_sft(stage: SftStage, out: Path, *, resume: bool, tell: Callable[[str], None]) -> RunSummary:
    """Trains, or goes on with the run in `out`. Raises `BadInput` for what cannot be meant, `Unavailable` for what stopped it;
    save points stay."""
    tokenizer = load_tokenizer(stage.model)
    rows, left_out = _fitting(stage, tokenizer)
    steps, said = stage.steps_for(len(rows), stage.batch), f"{counted(len(rows), 'row')}, {left_out} left out as too long"

    def trainer(folder: StageRun) -> Any:
        arguments = SFTConfig(
            **common_arguments(stage, folder, steps, 1), gradient_accumulation_steps=stage.batch // stage.micro_batch,
            max_length=stage.max_length, assistant_only_loss=not stage.rollouts, packing=False,
        )  # fmt: skip
        model = load_model(stage)
        try:
            return SFTTrainer(
                model=model, args=arguments, train_dataset=Dataset.from_list([_example(row) for row in rows]),
                processing_class=tokenizer, peft_config=lora_of(stage),
            )  # fmt: skip
        except ValueError as error:        # TRL knows the assistant's turns of some families' templates only
            raise BadInput(f"TRL cannot train on {stage.model}: {first_line(error)}") from error

    return run_stage(
        stage, StageRun(out), [row.digest for row in rows], steps, 1, said, trainer, resume=resume, tell=tell
    )  # fmt: skip


def _example(row: TalkRow | TokenRow) -> dict[str, Any]:
    """A row as TRL takes it; of tokens -100 marks those that are not learnt."""
    if isinstance(row, TalkRow):
        return {"messages": [turn.model_dump() for turn in row.messages]}
    learnt = [token if wrote else -100 for token, wrote in zip(row.answer, row.wrote, strict=True)]
    return {"input_ids": [*row.prompt, *row.answer], "labels": [-100] * len(row.prompt) + learnt}


def _fitting(stage: SftStage, tokenizer: Any) -> tuple[Rows, int]:
    """The rows of at most `max_length` tokens, and how many were left out. Raises `BadInput`."""
    if stage.rollouts:
        least = stage.least_outcome
        written = token_rows(stage.rollouts, tokenizer, stage.held_out)
        good = [row for row in written if least is None or row.reward >= least]
        if not good:
            where = ", ".join(stage.rollouts)
            raise BadInput(f"no answer of {where} has a reward of at least {least}: lower sft.least_outcome")
        return fitting(good, stage.max_length, stage.table)
    rows = talk_rows(stage)
    kept = [row for row in rows if len(tokens_of(tokenizer, row.messages, answer=False)) <= stage.max_length]
    if not kept:
        raise BadInput(f"no row of {stage.data} has at most {stage.max_length} tokens: raise sft.max_length")
    return kept, len(rows) - len(kept)
