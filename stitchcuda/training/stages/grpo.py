"""GRPO with LoRA on both skills: TRL's trainer, with prompts of both by weight and the rewards of the reward service.

Imported when the stage runs. A step is `prompts` times `rollouts` answers, from which the weights are updated `updates` times
`iterations` times; save points are whole steps apart, so a run that goes on makes the same weights as one that was never
stopped. It serves no rewards and judges nothing itself.
Where to look next: `training/stages/rollout_rewards.py` (the reward), `training/stages/stage_rows.py` (the prompts),
`training/stages/rollout_stage.py` (what it shares with PPO), `training/stages/training.py` (what all stages share).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOTrainer

from stitchcuda.engineers.chat import Chat
from stitchcuda.training.reward_service.client import RewardClient
from stitchcuda.training.stages.config import GrpoStage
from stitchcuda.training.stages.rollout_rewards import RolloutRewards
from stitchcuda.training.stages.rollout_stage import (
    chat_of,
    client_of,
    fitting_prompts,
    plan_rollouts,
    require_service,
    rollout_arguments,
    said_of_prompts,
)
from stitchcuda.training.stages.stage_plan import StagePlan
from stitchcuda.training.stages.stage_rows import PromptRow, mixed, prompt_rows
from stitchcuda.training.stages.stage_run import RunSummary, StageRun
from stitchcuda.training.stages.training import load_model, load_tokenizer, lora_of, run_stage


def plan_grpo(stage: GrpoStage, out: Path) -> StagePlan:
    """What the stage would do. Nothing is written, and no weights are read. Raises `BadInput`."""
    rows, left_out = fitting_prompts(stage, prompt_rows(stage), load_tokenizer(stage.model))
    return plan_rollouts(stage, out, rows, left_out)


def train_grpo(stage: GrpoStage, out: Path, *, resume: bool, tell: Callable[[str], None]) -> RunSummary:
    """Trains, or goes on with the run in `out`. Raises `BadInput` for what cannot be meant, `Unavailable` for what stopped it;
    save points stay."""
    tokenizer = load_tokenizer(stage.model)
    rows, left_out = fitting_prompts(stage, prompt_rows(stage), tokenizer)
    client, chat = client_of(stage), chat_of(stage)
    require_service(stage)
    steps = stage.steps_for(len(rows), stage.prompts)
    return run_stage(
        stage, StageRun(out), [row.digest for row in rows], steps, stage.updates_a_step, said_of_prompts(rows, left_out),
        lambda folder: _trainer(stage, rows, steps, tokenizer, folder, client, chat), resume=resume, tell=tell,
    )  # fmt: skip


def _trainer(
    stage: GrpoStage, rows: Sequence[PromptRow], steps: int, tokenizer: Any, folder: StageRun, client: RewardClient,
    chat: Chat | None,
) -> Any:  # fmt: skip
    made: list[Any] = []
    rewards = RolloutRewards(stage, rows, client, chat, folder, lambda: int(made[0].state.global_step))
    prompts = Dataset.from_list([
        {"prompt": [turn.model_dump() for turn in row.messages], "row": row.id}
        for row in mixed(rows, stage, steps * stage.prompts)
    ])  # fmt: skip
    made.append(GRPOTrainer(
        model=load_model(stage), reward_funcs=[rewards], args=rollout_arguments(stage, folder, steps), train_dataset=prompts,
        processing_class=tokenizer, peft_config=lora_of(stage),
    ))  # fmt: skip
    return made[0]
