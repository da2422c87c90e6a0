"""Formulas of PPO: against verl's, written out by hand, and what masks leave out."""

from __future__ import annotations

import math

import pytest
import torch

from stitchcuda.training.stages.advantages import (
    clipped_value_loss,
    discounted_scores,
    explained_variance,
    generalised_advantages,
    whitened,
)

GAMMA, LAM = 0.9, 0.8


def test_generalised_advantages_of_three_tokens_by_hand() -> None:
    values = torch.tensor([[0.5, -0.25, 1.0]])
    third = 2.0 - 1.0                                        # the reward stands at the last token; nothing comes after it
    second = GAMMA * 1.0 - -0.25 + GAMMA * LAM * third
    first = GAMMA * -0.25 - 0.5 + GAMMA * LAM * second
    advantages, returns = generalised_advantages(torch.tensor([2.0]), values, torch.ones(1, 3), GAMMA, LAM)
    assert advantages.tolist() == [pytest.approx([first, second, third])]
    assert returns.tolist() == [pytest.approx([first + 0.5, second - 0.25, third + 1.0])]


def verl(rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float) -> torch.Tensor:
    """`compute_gae_advantage_return` of verl's `core_algos.py`, before it whitens."""
    next_values, last, found = torch.zeros(len(values)), torch.zeros(len(values)), []
    for at in reversed(range(values.shape[1])):
        delta = rewards[:, at] + gamma * next_values - values[:, at]
        new = delta + gamma * lam * last
        next_values = values[:, at] * mask[:, at] + (1 - mask[:, at]) * next_values
        last = new * mask[:, at] + (1 - mask[:, at]) * last
        found.append(last)
    return torch.stack(found[::-1], 1)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.8), (1.0, 1.0), (0.99, 0.0)])
def test_generalised_advantages_are_verls_with_tools_and_padding_between(gamma: float, lam: float) -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0, 0]]).float()
    values, scores = torch.randn(3, 7) * mask, torch.tensor([1.0, -1.0, 3.0])
    rewards = torch.zeros(3, 7)
    rewards[[0, 1, 2], [5, 6, 2]] = scores                   # at the last token that the model wrote
    advantages, returns = generalised_advantages(scores, values, mask, gamma, lam)
    expected = verl(rewards, values, mask, gamma, lam)
    assert torch.allclose(advantages, expected * mask, atol=1e-6)
    assert torch.allclose(returns, (expected + values) * mask, atol=1e-6)
    if lam == 1.0:
        assert torch.allclose(returns, discounted_scores(scores, mask, gamma), atol=1e-6), "then returns are the rewards"


def test_what_tools_say_moves_no_estimate() -> None:
    scores, with_tool = torch.tensor([1.5]), torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0]])
    values = torch.tensor([[0.2, 99.0, -99.0, 0.4, 0.1]])
    advantages, _ = generalised_advantages(scores, values, with_tool, GAMMA, LAM)
    alone, _ = generalised_advantages(scores, values[:, [0, 3, 4]], torch.ones(1, 3), GAMMA, LAM)
    assert advantages[:, [0, 3, 4]].tolist() == alone.tolist()
    assert advantages[:, 1:3].tolist() == [[0.0, 0.0]]


def test_whitening_counts_the_mask_alone() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = whitened(torch.tensor([[1.0, 2.0, 77.0], [6.0, -77.0, 5.0]]), mask)
    assert found[0, :2].tolist() + found[1, :1].tolist() == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5])
    assert (found * (1 - mask)).abs().sum() == 0
    assert whitened(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])).tolist() == [[3.0, 0.0]]
    assert whitened(torch.ones(1, 2), torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]


def test_the_values_loss_is_clipped_around_the_rollouts_values() -> None:
    values, before, returns = torch.tensor([[2.0, 0.1, 9.0]]), torch.zeros(1, 3), torch.ones(1, 3) * 2
    loss, clipped = clipped_value_loss(values, before, returns, torch.tensor([[1.0, 1.0, 0.0]]), 0.5)
    assert float(loss) == pytest.approx(0.5 * ((0.5 - 2) ** 2 + (0.1 - 2) ** 2)), "2.0 is right, but 0.5 is as far as it may go"
    assert float(clipped) == 1


def test_explained_variance() -> None:
    truth, mask = torch.tensor([[1.0, -1.0, 3.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert explained_variance(truth, truth, mask) == pytest.approx(1.0)
    assert explained_variance(torch.zeros(1, 3), truth, mask) == pytest.approx(0.0)
    assert explained_variance(-truth, truth, mask) == pytest.approx(-3.0)
    assert math.isnan(explained_variance(truth, torch.ones(1, 3), mask)), "nothing is to be explained"
    assert math.isnan(explained_variance(truth, truth, torch.zeros(1, 3)))
