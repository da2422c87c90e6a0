"""PPO in TRL: its GRPO trainer, with a critic and advantages for each token in place of those of groups.

A step makes its answers, estimates their values, trains the critic with parts of them, and hands TRL advantages of shape (rows,
tokens); TRL then updates the policy by its clipped loss. In the first steps the critic may be trained alone. Answers without a
reward count in neither loss. The critic and its optimizer are in every save point. It overrides private methods of TRL, so
another version than the one it was written for is refused. It makes no prompts and asks for no rewards.
Where to look next: `training/stages/advantages.py` (the formulas), `training/stages/critic.py`, `training/stages/ppo.py`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import trl
from torch import Tensor
from trl import GRPOTrainer

from stitchcuda import remedies
from stitchcuda.errors import Unavailable
from stitchcuda.training.stages.advantages import (
    clipped_value_loss,
    discounted_scores,
    explained_variance,
    generalised_advantages,
    whitened,
)
from stitchcuda.training.stages.config import CriticStage
from stitchcuda.training.stages.critic import estimate, load_training, save_training, values_of
from stitchcuda.training.stages.rollout_tokens import TokenRow, vocabulary_digest
from stitchcuda.training.stages.stage_run import TOKENS, StageRun

TRL = "1.16"                               # whose private methods are overridden
_CRITIC = "critic.pt"                      # of a save point


def require_trl(version: str = trl.__version__) -> None:
    """Raises `Unavailable` if TRL is not the version whose private methods are overridden here."""
    if version.split(".")[:2] != TRL.split("."):
        raise Unavailable(f"PPO needs TRL {TRL}, and {version} is installed: {remedies.extra('training')}")


class CriticTrainer(GRPOTrainer):  # type: ignore[misc]  # trl.* has no types
    """`critic`: a token classifier with one label, which is trained in place."""

    def __init__(self, *, stage: CriticStage, folder: StageRun, critic: Any, **given: Any) -> None:
        require_trl()
        super().__init__(**given)
        self.stage, self.folder, self.critic = stage, folder, critic
        if self.args.gradient_checkpointing:
            critic.gradient_checkpointing_enable()
        self.critic.train()
        self.critic_optimizer = torch.optim.AdamW(critic.parameters(), lr=stage.critic_learning_rate, weight_decay=0.0)
        self._vocabulary = vocabulary_digest(self.processing_class) if stage.keep_tokens else ""
        self._scores, self._log_probs = torch.empty(0), torch.empty(0)
        self._ratios = _Ratios(1 - stage.clip_low, 1 + stage.clip_high)

    @property
    def critic_alone(self) -> bool:
        return bool(self.state.global_step < self.stage.critic_warmup * self.stage.updates_a_step)

    # ---- what TRL calls

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._scores = torch.where(found.isnan().all(1), torch.nan, found.nansum(1))
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        said, judged = made["completion_ids"].shape[1], ~self._scores.isnan()
        wrote = made["completion_mask"] * made.get("tool_mask", 1)
        mask = (wrote * judged[:, None]).float()
        ids = torch.cat([made["prompt_ids"], made["completion_ids"]], 1)
        attention = torch.cat([made["prompt_mask"], made["completion_mask"]], 1)
        values = values_of(self.critic, ids, attention, said, self.stage.micro_batch) * mask
        scores = self._scores.nan_to_num(0.0)
        advantages, returns = generalised_advantages(scores, values, mask, self.stage.gamma, self.stage.gae_lambda)
        self._require_finite("value", values)
        truth = discounted_scores(scores, mask, self.stage.gamma)
        self._note("value/mean", float(values.sum() / mask.sum().clamp(min=1)))
        if not math.isnan(explained := explained_variance(values, truth, mask)):  # else all rewards are the same
            self._note("explained_variance", explained)
        if self.stage.keep_tokens:
            self._keep(inputs, made, wrote)
        self._train_critic(ids, attention, values, returns, mask)
        made["advantages"] = whitened(advantages, mask)
        made["tool_mask"] = mask           # what TRL's losses count
        made["num_items_in_batch"] = mask.sum()
        return made

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*arguments, **named)
        self._log_probs = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)
        before = inputs.get("old_per_token_logps", self._log_probs)
        self._ratios.add(self._log_probs - before, inputs["completion_mask"] * inputs["tool_mask"])
        if self.accelerator.sync_gradients:
            for name, value in self._ratios.taken().items():
                self._note(name, value)
        return loss * 0.0 if self.critic_alone else loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}" / _CRITIC
        save_training(path, self.critic, self.critic_optimizer)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            load_training(Path(checkpoint) / _CRITIC, self.critic, self.critic_optimizer)

    # ---- the critic

    def _train_critic(self, ids: Tensor, attention: Tensor, before: Tensor, returns: Tensor, mask: Tensor) -> None:
        """As many updates as the policy's, each with another part of the rows."""
        losses, clipped, size = list[float](), 0.0, len(ids) // self.stage.updates
        for _ in range(self.stage.iterations):
            for rows in torch.randperm(len(ids)).to(ids.device).split(size):
                tokens, total = mask[rows].sum().clamp(min=1), 0.0
                for part in rows.split(self.stage.micro_batch):
                    values = estimate(self.critic, ids[part], attention[part], mask.shape[1])
                    loss, held = clipped_value_loss(values, before[part], returns[part], mask[part], self.stage.clip_value)
                    (loss / tokens).backward()
                    total, clipped = total + float(loss.detach() / tokens), clipped + float(held)
                self._require_finite("loss", torch.tensor(total))
                torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.args.max_grad_norm)
                self.critic_optimizer.step()
                self.critic_optimizer.zero_grad()
                losses.append(total)
        self._note("value_loss", sum(losses) / len(losses))
        self._note("value/clipped", clipped / (float(mask.sum().clamp(min=1)) * self.stage.iterations))

    def _require_finite(self, name: str, found: Tensor) -> None:
        if not found.isfinite().all():
            update = self.state.global_step + 1
            raise Unavailable(f"the critic's {name} is no number at update {update}: a smaller critic_learning_rate may help")

    # ---- what is kept

    def _keep(self, inputs: list[dict[str, Any]], made: dict[str, Any], wrote: Tensor) -> None:
        lines = []
        for at, row in enumerate(inputs):
            if math.isnan(score := float(self._scores[at])) or not wrote[at].any():
                continue
            asked, said = made["prompt_mask"][at].bool(), made["completion_mask"][at].bool()
            kept = TokenRow(
                id=row["row"], prompt=tuple(made["prompt_ids"][at][asked].tolist()), reward=score,
                answer=tuple(made["completion_ids"][at][said].tolist()), wrote=tuple(wrote[at][said].tolist()),
            )  # fmt: skip
            lines.append({"update": self.state.global_step + 1, "vocabulary": self._vocabulary, **kept.model_dump()})
        self.folder.append(TOKENS, *lines)

    def _note(self, name: str, value: float) -> None:
        self._metrics["train"][name].append(value)


class _Ratios:
    """Importance ratios of one update's tokens, part by part. `low`, `high`: what the loss clips them to."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self._clear()

    def _clear(self) -> None:
        self.count, self.total, self.outside, self.divergence, self.most = 0.0, 0.0, 0.0, 0.0, 0.0

    def add(self, logarithms: Tensor, mask: Tensor) -> None:
        found = logarithms[mask > 0].double()
        if not len(found):
            return
        ratios = found.exp()
        self.count += len(found)
        self.total += float(ratios.sum())
        self.outside += float(((ratios < self.low) | (ratios > self.high)).sum())
        self.divergence += float((ratios - 1 - found).sum())
        self.most = max(self.most, float(ratios.max()))

    def taken(self) -> dict[str, float]:
        """Their mean, largest, share outside the clipping, and the divergence since the answers were written."""
        count = max(self.count, 1.0)
        made = {
            "ratio/mean": self.total / count, "ratio/max": self.most, "ratio/clipped": self.outside / count,
            "kl_of_update": self.divergence / count,
        }  # fmt: skip
        self._clear()
        return made
