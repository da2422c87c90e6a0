"""GRPO with LoRA on both skills: TRL's trainer, with prompts of both by weight and the rewards of the reward service.

Imported when the stage runs. A step is `prompts` times `rollouts` answers, from which the weights are updated `updates` times
`iterations` times; save points are whole steps apart, so a run that goes on makes the same weights as one that was never
stopped. It serves no rewards and judges nothing itself.
Where to look next: `training/stages/rollout_rewards.py` (the reward), `training/stages/stage_rows.py` (the prompts),
`training/stages/training.py` (what both stages share).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from stitchcuda.counts import counted
from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import BadInput
from stitchcuda.store.token_file import read_token
from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
from stitchcuda.training.reward_service.trainers import client_for
from stitchcuda.training.rubric import open_judge
from stitchcuda.training.stages.config import GrpoStage, digest_of
from stitchcuda.training.stages.rollout_rewards import RolloutRewards
from stitchcuda.training.stages.stage_callback import StageCallback
from stitchcuda.training.stages.stage_plan import StagePlan, make_plan
from stitchcuda.training.stages.stage_rows import PromptRow, mixed, prompt_rows, require_skills
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun
from stitchcuda.training.stages.training import common_arguments, load_model, load_tokenizer, lora_of, run_trainer

_HEALTH_S = 5.0                            # that the service may take to say what it can do


def plan_grpo(stage: GrpoStage, out: Path) -> StagePlan:
    """What the stage would do. Nothing is written, and no weights are read. Raises `BadInput`."""
    rows, left_out = _fitting(stage, load_tokenizer(stage.model))
    steps = stage.steps_for(len(rows), stage.prompts)
    answers = stage.prompts * stage.rollouts
    counts = {f"skill {skill}": sum(row.skill == skill for row in rows) for skill in (1, 2)}
    return make_plan(
        stage, out, rows=counts, left_out=left_out, steps=steps, updates=steps * stage.updates_a_step, verdicts_a_step=answers,
        generated=answers, tokens=stage.max_prompt + stage.max_completion, service=_health(stage),
    )  # fmt: skip


def train_grpo(stage: GrpoStage, out: Path, *, resume: bool, tell: Callable[[str], None]) -> RunSummary:
    """Trains, or goes on with the run in `out`. Raises `BadInput` for what cannot be meant, `Unavailable` for what stopped it;
    save points stay."""
    tokenizer, folder = load_tokenizer(stage.model), StageRun(out)
    rows, left_out = _fitting(stage, tokenizer)
    digest = digest_of(stage, [row.digest for row in rows])
    client = _client(stage, stage.patience_s)
    chat = open_judge(stage.judge, stage.judge_url or None) if stage.judge else None
    if wrong := _health(stage, patience_s=stage.patience_s).get("wrong"):
        raise BadInput(str(wrong))
    done = folder.begin(RunTerms(table=stage.table, digest=digest, stage=stage.model_dump(mode="json")), resume=resume)
    if (summary := folder.summary()) is not None:
        return summary
    steps = stage.steps_for(len(rows), stage.prompts)
    tell(f"{counted(len(rows), 'prompt')}, {left_out} left out as too long; {counted(steps, 'step')}; from update {done}")
    callback = StageCallback(folder, digest, stage.updates_a_step, tell)
    return run_trainer(
        lambda: _trainer(stage, rows, steps, tokenizer, folder, client, chat), stage, folder, callback, done, steps
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
        model=load_model(stage), reward_funcs=[rewards], args=_arguments(stage, folder, steps), train_dataset=prompts,
        processing_class=tokenizer, peft_config=lora_of(stage),
    ))  # fmt: skip
    return made[0]


def _arguments(stage: GrpoStage, folder: StageRun, steps: int) -> Any:
    passes = stage.prompts * stage.rollouts // stage.micro_batch  # forward passes for all rollouts of a step
    updates = steps * stage.updates_a_step
    return GRPOConfig(
        **common_arguments(stage, folder, updates, stage.updates_a_step),
        steps_per_generation=passes, gradient_accumulation_steps=passes // stage.updates, num_iterations=stage.iterations,
        num_generations=stage.rollouts, max_completion_length=stage.max_completion, temperature=stage.temperature,
        top_p=stage.top_p, top_k=stage.top_k, beta=stage.kl, epsilon=stage.clip_low, epsilon_high=stage.clip_high,
        mask_truncated_completions=stage.mask_truncated, shuffle_dataset=False,
    )  # fmt: skip


def _fitting(stage: GrpoStage, tokenizer: Any) -> tuple[list[PromptRow], int]:
    """The rows whose prompts have at most `max_prompt` tokens, and how many were left out."""
    rows = prompt_rows(stage)
    kept = [row for row in rows if _tokens(tokenizer, row) <= stage.max_prompt]
    require_skills(kept, stage)
    return kept, len(rows) - len(kept)


def _tokens(tokenizer: Any, row: PromptRow) -> int:
    text = tokenizer.apply_chat_template(
        [turn.model_dump() for turn in row.messages], add_generation_prompt=True, tokenize=False
    )  # fmt: skip
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _client(stage: GrpoStage, patience_s: float) -> RewardClient:
    token = read_token(Path(stage.token_file)) if stage.token_file else None
    return client_for(stage.reward_url or None, token, patience_s)


def _health(stage: GrpoStage, patience_s: float = _HEALTH_S) -> dict[str, Any]:
    """What the service says of itself, with "wrong" where this stage cannot use it."""
    client = _client(stage, patience_s)
    try:
        told = client.health()
    except (RewardRefused, TimeoutError) as error:
        return {"url": client.url, "wrong": f"the reward service at {client.url} does not answer: {error}"}
    if stage.reward not in told.get("rewards", ()):
        return {"url": client.url, "wrong": f"the reward service at {client.url} has no reward {stage.reward}"}
    return {"url": client.url, "environment": told.get("environment", "")}
