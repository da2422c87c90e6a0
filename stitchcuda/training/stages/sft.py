"""Fine-tuning on what ended well (rejection fine-tuning): TRL's trainer on the assistant's turns of `stitchcuda train data`.

Imported when the stage runs. Only what the assistant says is learnt (`assistant_only_loss`): TRL would train on the questions
too. Rows that are too long are left out, since a program that is cut off is none.
Where to look next: `training/stages/stage_rows.py` (the rows), `training/stages/training.py` (what both stages share).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.training.stages.config import SftStage, digest_of
from stitchcuda.training.stages.stage_callback import StageCallback
from stitchcuda.training.stages.stage_plan import StagePlan, make_plan
from stitchcuda.training.stages.stage_rows import TalkRow, talk_rows
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun
from stitchcuda.training.stages.training import common_arguments, load_model, load_tokenizer, lora_of, run_trainer


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
    tokenizer, folder = load_tokenizer(stage.model), StageRun(out)
    rows, left_out = _fitting(stage, tokenizer)
    digest = digest_of(stage, [row.digest for row in rows])
    done = folder.begin(RunTerms(table=stage.table, digest=digest, stage=stage.model_dump(mode="json")), resume=resume)
    if (summary := folder.summary()) is not None:
        return summary
    steps = stage.steps_for(len(rows), stage.batch)
    tell(f"{counted(len(rows), 'row')}, {left_out} left out as too long; {counted(steps, 'step')}; from update {done}")

    def trainer() -> Any:
        arguments = SFTConfig(
            **common_arguments(stage, folder, steps, 1), gradient_accumulation_steps=stage.batch // stage.micro_batch,
            max_length=stage.max_length, assistant_only_loss=True, packing=False,
        )  # fmt: skip
        talks = Dataset.from_list([{"messages": [turn.model_dump() for turn in row.messages]} for row in rows])
        model = load_model(stage)
        try:
            return SFTTrainer(
                model=model, args=arguments, train_dataset=talks, processing_class=tokenizer, peft_config=lora_of(stage)
            )
        except ValueError as error:        # TRL knows the assistant's turns of some families' templates only
            raise BadInput(f"TRL cannot train on {stage.model}: {str(error).strip().partition(chr(10))[0][:300]}") from error

    return run_trainer(trainer, stage, folder, StageCallback(folder, digest, 1, tell), done, steps)


def _fitting(stage: SftStage, tokenizer: Any) -> tuple[list[TalkRow], int]:
    rows = talk_rows(stage)
    kept = [row for row in rows if _tokens(tokenizer, row) <= stage.max_length]
    if not kept:
        raise BadInput(f"no row of {stage.data} has at most {stage.max_length} tokens: raise sft.max_length")
    return kept, len(rows) - len(kept)


def _tokens(tokenizer: Any, row: TalkRow) -> int:
    text = tokenizer.apply_chat_template([turn.model_dump() for turn in row.messages], tokenize=False)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
