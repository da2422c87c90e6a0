"""Noise in the last bits of what operators return: equal values stay equal, zeros stay zero, inputs stay as they are."""

from __future__ import annotations

import pytest
import torch

from stitchcuda.verify.reference.rounding_noise import RoundingNoise


def noise() -> RoundingNoise:
    return RoundingNoise(torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_results_change_in_their_last_bits(dtype: torch.dtype) -> None:
    x = torch.randn(64, 32).to(dtype)
    given = x.clone()
    with noise():
        made = x * 3
    away = (made.double() / (x * 3).double() - 1).abs() / torch.finfo(dtype).eps
    assert 0.5 < float(away.max()) < 4
    assert torch.equal(x, given)


def test_equal_values_stay_equal_and_zeros_zero() -> None:
    x = torch.randn(8, 32)
    x[:, 3], x[:, 20], x[0] = 9.0, 9.0, 0.0
    with noise():
        made = x.exp() * 1.7
        zeros = x[0] * 3 + x[0].sum()
    assert torch.equal(made.argmax(-1), torch.tensor([0, *[3] * 7]))
    assert torch.equal(made[:, 3], made[:, 20])
    assert not bool(zeros.any())


def test_what_does_not_round_stays() -> None:
    x = torch.randn(8, 32)
    with noise():
        made = [x.abs().amax(-1), x.t().contiguous(), x[2], x.relu(), torch.cat((x, -x)), x.sort(-1).values, x.clamp(-1, 1)]
        written = x.clone().zero_().add_(1)
    assert torch.equal(made[0], x.abs().amax(-1))
    assert torch.equal(made[5], x.sort(-1).values)
    assert all(set(value.abs().flatten().tolist()) <= {*x.abs().flatten().tolist(), 0.0, 1.0} for value in made)
    assert bool((written != 1).all())


def test_norms_get_inputs_with_noise() -> None:
    x = torch.ones(4, 64)
    with noise():
        made = torch.nn.functional.layer_norm(x, (64,))
    assert float(made.abs().max()) > 1e-6
    assert torch.equal(x, torch.ones(4, 64))


def test_large_tensors_get_noise_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 30)
    with noise():
        whole, turned, gaps = x * 3, x.t() * 3, torch.empty(40, 60)[:, ::2].copy_(x).mul_(3)
    monkeypatch.setattr("stitchcuda.verify.reference.rounding_noise._PART", 7)
    with noise():
        parts = x * 3
        normed = torch.nn.functional.layer_norm(torch.ones(4, 64), (64,))
    assert torch.equal(parts, whole)
    assert torch.equal(turned, whole.t())
    assert not torch.equal(gaps, x * 3)
    assert float(normed.abs().max()) > 1e-6


def test_what_is_exact_can_be_spared() -> None:
    given = torch.tensor([0.5, 0.25, 1 / 3])
    with RoundingNoise(torch.Generator().manual_seed(0), spare_exact=True):
        made = given * 3 + 1
    assert torch.equal(made[:2], torch.tensor([2.5, 1.75]))
    assert made[2] != 2
