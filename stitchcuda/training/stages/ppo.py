"""PPO with a critic: on answers of one turn (CUDA Agent's warm-up), or on episodes in which the model works with tools.

Imported when the stage runs. A step is `prompts` times `rollouts` answers, as of GRPO; save points are whole steps apart and
hold the critic and its optimizer, so a run that goes on makes the same weights as one that was never stopped. It serves no
rewards and judges nothing itself.
Where to look next: `training/stages/ppo_trainer.py` (the trainer), `training/stages/rollout_rewards.py`,
`training/stages/episode_rewards.py` (the rewards), `training/stages/rollout_stage.py` (what it shares with GRPO).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import BadInput
from stitchcuda.training.reward_service.client import RewardClient
from stitchcuda.training.stages.config import AgenticStage, PpoStage
from stitchcuda.training.stages.critic import load_critic, require_critic
from stitchcuda.training.stages.episode_rewards import EpisodeRewards, TrainedEpisode
from stitchcuda.training.stages.ppo_trainer import CriticTrainer, require_trl
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
from stitchcuda.training.stages.stage_rows import PromptRow, episode_rows, mixed, prompt_rows
from stitchcuda.training.stages.stage_run import RunSummary, StageRun
from stitchcuda.training.stages.training import first_line, load_model, load_tokenizer, lora_of, run_stage


def plan_ppo(stage: PpoStage | AgenticStage, out: Path) -> StagePlan:
    """What the stage would do. Nothing is written, and no weights are read. Raises `BadInput`, `Unavailable`."""
    rows, left_out = _rows(stage, load_tokenizer(stage.model))
    return plan_rollouts(stage, out, rows, left_out)


def train_ppo(stage: PpoStage | AgenticStage, out: Path, *, resume: bool, tell: Callable[[str], None]) -> RunSummary:
    """Trains, or goes on with the run in `out`. Raises `BadInput` for what cannot be meant, `Unavailable` for what stopped it;
    save points stay."""
    tokenizer = load_tokenizer(stage.model)
    rows, left_out = _rows(stage, tokenizer)
    client, chat = client_of(stage), None if isinstance(stage, AgenticStage) else chat_of(stage)
    require_service(stage)
    steps = stage.steps_for(len(rows), stage.prompts)
    return run_stage(
        stage, StageRun(out), [row.digest for row in rows], steps, stage.updates_a_step, said_of_prompts(rows, left_out),
        lambda folder: _trainer(stage, rows, steps, tokenizer, folder, client, chat), resume=resume, tell=tell,
    )  # fmt: skip


def _rows(stage: PpoStage | AgenticStage, tokenizer: Any) -> tuple[list[PromptRow], int]:
    require_trl()
    require_critic(stage.model, stage.critic)
    if isinstance(stage, PpoStage):
        return fitting_prompts(stage, prompt_rows(stage), tokenizer)
    return fitting_prompts(stage, episode_rows(stage), tokenizer, _tools())


def _tools() -> list[Callable[..., Any]]:
    """What a model is told of, as TRL finds it."""
    found = inspect.getmembers(TrainedEpisode, inspect.isfunction)
    return [tool for name, tool in found if not name.startswith("_") and name != "reset"]


def _trainer(
    stage: PpoStage | AgenticStage, rows: Sequence[PromptRow], steps: int, tokenizer: Any, folder: StageRun,
    client: RewardClient, chat: Chat | None,
) -> Any:  # fmt: skip
    made: list[Any] = []
    drawn, arguments = mixed(rows, stage, steps * stage.prompts), rollout_arguments(stage, folder, steps)
    more: dict[str, Any] = {}
    if isinstance(stage, AgenticStage):
        tasks = {row.task: row.reference for row in rows}
        schema, target, turns, checks = stage.reward, stage.target, stage.turns, stage.checks
        more["environment_factory"] = lambda: TrainedEpisode(
            tasks, client, schema=schema, target=target, steps=turns, checks=checks
        )  # fmt: skip
        arguments.max_tool_calling_iterations = turns
        asked = [{"prompt": [{"role": "user", "content": ""}], "row": row.id, "task": row.task} for row in drawn]
        rewards: Any = EpisodeRewards(stage, rows, folder, lambda: int(made[0].state.global_step))
    else:
        asked = [{"prompt": [turn.model_dump() for turn in row.messages], "row": row.id} for row in drawn]
        rewards = RolloutRewards(stage, rows, client, chat, folder, lambda: int(made[0].state.global_step))
    model, critic = load_model(stage), load_critic(stage.model, stage.critic)
    try:
        made.append(CriticTrainer(
            stage=stage, folder=folder, critic=critic, model=model, reward_funcs=[rewards], args=arguments,
            train_dataset=Dataset.from_list(asked), processing_class=tokenizer, peft_config=lora_of(stage), **more,
        ))  # fmt: skip
    except ValueError as error:            # TRL reads the calls of tools of some families' templates only
        raise BadInput(f"TRL cannot train {stage.model}: {first_line(error)}") from error
    return made[0]
