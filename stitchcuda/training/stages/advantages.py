"""Advantages and losses of PPO as plain functions of tensors: generalised advantage estimation, whitening, the value's loss.

All tensors are float32 of shape (rows, tokens); `mask` is 1 at tokens that the model wrote, and 0 at those of tools, of
padding, and of answers that were not judged. A value stands at the token before which it was estimated. The formulas are
those of verl's `core_algos`, so that a critic means the same there. Nothing here knows a model or a trainer.
Where to look next: `training/stages/ppo_trainer.py`, `training/stages/value.py` (who calls).
"""

from __future__ import annotations

import torch
from torch import Tensor


def generalised_advantages(scores: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Returns advantages and lambda-returns, both 0 where `mask` is 0. `scores` (rows): each row's reward, which counts at the
    last token of its mask. Tokens between are passed over: the estimate goes on at the next token that the model wrote."""
    last, later_value = torch.zeros_like(scores), torch.zeros_like(scores)
    rewarded = torch.zeros_like(scores, dtype=torch.bool)
    advantages = torch.zeros_like(values)
    for at in range(values.shape[1] - 1, -1, -1):
        here = mask[:, at] > 0
        reward = torch.where(here & ~rewarded, scores, 0.0)
        estimate = reward + gamma * later_value - values[:, at] + gamma * lam * last
        last, later_value = torch.where(here, estimate, last), torch.where(here, values[:, at], later_value)
        rewarded |= here
        advantages[:, at] = torch.where(here, estimate, 0.0)
    return advantages, torch.where(mask > 0, advantages + values, 0.0)


def whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages with mean 0 and variance 1 over the mask, and 0 elsewhere. Fewer than two tokens stay as they are."""
    count = mask.sum()
    if count < 2:
        return advantages * mask
    mean = (advantages * mask).sum() / count
    variance = ((advantages - mean).square() * mask).sum() / (count - 1)
    return (advantages - mean) * torch.rsqrt(variance + 1e-8) * mask


def clipped_value_loss(values: Tensor, before: Tensor, returns: Tensor, mask: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The sum over the mask of half the squared error, of the value or of the value within `clip` of the one `before`,
    whichever is larger; and at how many tokens it is the latter."""
    within = torch.minimum(torch.maximum(values, before - clip), before + clip)
    free, held = (values - returns).square(), (within - returns).square()
    return 0.5 * (torch.maximum(free, held) * mask).sum(), ((held > free) * mask).sum()


def discounted_scores(scores: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """What values are estimates of: each row's reward, discounted by the tokens of its mask that are still to come."""
    still_to_come = mask.sum(1, keepdim=True) - mask.cumsum(1)
    return scores[:, None] * gamma**still_to_come * mask


def explained_variance(values: Tensor, truth: Tensor, mask: Tensor) -> float:
    """1 for values that are the truth, 0 for a constant, less for worse; NaN where the truth does not vary."""
    at = mask > 0
    if at.sum() < 2:
        return float("nan")
    spread = truth[at].var()
    return float(1 - (truth[at] - values[at]).var() / spread) if spread > 1e-12 else float("nan")
