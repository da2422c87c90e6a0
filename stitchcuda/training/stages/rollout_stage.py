"""What stages share that learn from answers of their own model: their prompts, TRL's arguments, and the reward service.

Imported when a stage runs: it needs TRL. It trains nothing and judges nothing.
Where to look next: `training/stages/grpo.py`, `training/stages/ppo.py` (the stages), `training/stages/stage_rows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trl import GRPOConfig

from stitchcuda.counts import counted
from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import BadInput
from stitchcuda.store.token_file import read_token
from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
from stitchcuda.training.reward_service.trainers import client_for
from stitchcuda.training.rubric import open_judge
from stitchcuda.training.stages.config import AgenticStage, AnswerStage, RolloutStage
from stitchcuda.training.stages.stage_plan import StagePlan, make_plan
from stitchcuda.training.stages.stage_rows import PromptRow, require_skills
from stitchcuda.training.stages.stage_run import StageRun
from stitchcuda.training.stages.training import common_arguments, tokens_of

_HEALTH_S = 5.0                            # that the service may take to say what it can do


def fitting_prompts(
    stage: RolloutStage, rows: Sequence[PromptRow], tokenizer: Any, tools: Sequence[Callable[..., Any]] = ()
) -> tuple[list[PromptRow], int]:
    """The rows whose prompts have at most `max_prompt` tokens, tools' descriptions included, and how many were left out. Raises
    `BadInput` if none is left of a skill that has a weight."""
    kept = [row for row in rows if len(tokens_of(tokenizer, row.messages, answer=True, tools=tools)) <= stage.max_prompt]
    require_skills(kept, stage)
    return kept, len(rows) - len(kept)


def plan_rollouts(stage: RolloutStage, out: Path, rows: Sequence[PromptRow], left_out: int) -> StagePlan:
    """What the stage would do with these prompts. Raises `BadInput`."""
    steps = stage.steps_for(len(rows), stage.prompts)
    counts, verdicts = {f"skill {skill}": sum(row.skill == skill for row in rows) for skill in (1, 2)}, 1
    if isinstance(stage, AgenticStage):
        counts, verdicts = {"tasks": len(rows)}, stage.checks + 1
    return make_plan(
        stage, out, rows=counts, left_out=left_out, steps=steps, updates=steps * stage.updates_a_step,
        verdicts_a_step=stage.answers * verdicts, generated=stage.answers, tokens=stage.max_prompt + stage.max_completion,
        service=service_health(stage),
    )  # fmt: skip


def rollout_arguments(stage: RolloutStage, folder: StageRun, steps: int) -> Any:
    """TRL's config. A step's rollouts are made at once and used whole."""
    passes = stage.answers // stage.micro_batch  # forward passes for all rollouts of a step
    made = GRPOConfig(
        **common_arguments(stage, folder, steps * stage.updates_a_step, stage.updates_a_step),
        steps_per_generation=passes, gradient_accumulation_steps=passes // stage.updates, num_iterations=stage.iterations,
        num_generations=stage.rollouts if stage.rollouts > 1 else stage.answers, max_completion_length=stage.max_completion,
        temperature=stage.temperature, top_p=stage.top_p, top_k=stage.top_k, beta=stage.kl, epsilon=stage.clip_low,
        epsilon_high=stage.clip_high, mask_truncated_completions=stage.mask_truncated, shuffle_dataset=False,
    )  # fmt: skip
    made.num_generations = stage.rollouts  # TRL refuses 1 before, since its own advantages need groups
    return made


def client_of(stage: RolloutStage, patience_s: float | None = None) -> RewardClient:
    """Raises `BadInput` if no address is known."""
    token = read_token(Path(stage.token_file)) if stage.token_file else None
    return client_for(stage.reward_url or None, token, stage.patience_s if patience_s is None else patience_s)


def chat_of(stage: AnswerStage) -> Chat | None:
    """The judge model; None for none. Raises `BadInput`, `Unavailable`."""
    return open_judge(stage.judge, stage.judge_url or None) if stage.judge else None


def service_health(stage: RolloutStage, patience_s: float = _HEALTH_S) -> dict[str, Any]:
    """What the service says of itself, with "wrong" where this stage cannot use it."""
    client = client_of(stage, patience_s)
    try:
        told = client.health()
    except (RewardRefused, TimeoutError) as error:
        return {"url": client.url, "wrong": f"the reward service at {client.url} does not answer: {error}"}
    if stage.reward not in told.get("rewards", ()):
        return {"url": client.url, "wrong": f"the reward service at {client.url} has no reward {stage.reward}"}
    return {"url": client.url, "environment": told.get("environment", "")}


def require_service(stage: RolloutStage) -> None:
    """Raises `BadInput` if the service cannot be used."""
    if wrong := service_health(stage, patience_s=stage.patience_s).get("wrong"):
        raise BadInput(str(wrong))


def said_of_prompts(rows: Sequence[PromptRow], left_out: int) -> str:
    return f"{counted(len(rows), 'prompt')}, {left_out} left out as too long"
