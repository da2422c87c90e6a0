"""Noise in the last bits of what operators return: equal values stay equal, zeros stay zero, inputs stay as they are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest
import torch

from stitchcuda.verify.compare import bound
from stitchcuda.verify.reference.range_search import find_open, find_smooth
from stitchcuda.verify.reference.rounding_noise import RoundingNoise

CODES = torch.randn(64, 8)


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


def test_fine_noise_leaves_most_results_correctly_rounded() -> None:
    x = torch.randn(4096)
    right = (x.double() * 3.3).float()
    with RoundingNoise(torch.Generator().manual_seed(0), fine=True):
        fine = x * 3.3
    with noise():
        usual = x * 3.3
    assert 0.5 < float((fine == right).float().mean()) < 1
    assert bool(((fine.view(torch.int32) - right.view(torch.int32)).abs() <= 1).all())
    assert float((usual == right).float().mean()) < 0.2


def test_where_errors_are_large_but_rounding_decides_nothing() -> None:
    generator, x = torch.Generator().manual_seed(0), 4096 * torch.rand(64, 32)
    noisy = find_smooth(lambda: {"output": (x * 1.1).sin()}, {"output": (x.double() * 1.1).sin()}, generator)
    assert noisy is not None
    assert 1e-5 < float((noisy["output"] - (x.double() * 1.1).sin()).abs().max()) < 1e-2
    assert find_smooth(lambda: {"output": (x * 2.0**24).sin()}, {"output": (x.double() * 2.0**24).sin()}, generator) is None
    assert find_smooth(lambda: {"output": (x * 1.1).long()}, {"output": (x.double() * 1.1).long()}, generator) is None


def opened(compute: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], x: torch.Tensor) -> dict[str, list[bool]] | None:
    """For each output with rows that rounding decides, which these are."""
    def named(given: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"output.{number}": value for number, value in enumerate(compute(given))}

    own, generator = named(x), torch.Generator().manual_seed(0)
    found = find_open(
        lambda: named(x), own, named(x.double()), lambda _, measure: bound.pool_measures([measure]), generator, apart=True
    )
    if found is None:
        return None
    return {name: [bool(row.any()) for row in mask] for name, mask in found.items()}


def nearest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest of 64 codes, by the expanded distance, and its number."""
    codes = CODES.to(x.dtype)
    at = ((x * x).sum(1, keepdim=True) - 2 * x @ codes.t() + (codes * codes).sum(1)).argmin(1)
    return at, codes[at]


def test_what_is_picked_among_values_that_rounding_makes_equal_is_open() -> None:
    for seed in range(8):
        x = torch.randn(40, 8, generator=torch.Generator().manual_seed(seed))
        x[7] *= 2.0**26
        assert opened(nearest, x) == {name: [row == 7 for row in range(40)] for name in ("output.0", "output.1")}


def test_what_is_clear_and_ties_of_equal_values_are_not_open() -> None:
    x = torch.randn(40, 8)
    x[:, 5] = x[:, 2] = 9.0
    assert opened(lambda x: ((x * 3 + 1).exp().argmax(1), x), x) == {}
    assert opened(lambda x: ((x[:8] @ x.t())[:, [3, 9, 3, 9]].argmax(1),), x) == {}


def test_integers_that_are_written_in_place_stay() -> None:
    def counted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        at = (x[:, 0] > 0).long()
        return torch.zeros(2, dtype=torch.int64).scatter_add_(0, at, torch.ones_like(at)), x[:0]

    assert opened(counted, torch.randn(40, 8)) == {}


def test_where_rounding_decides_most_rows_nothing_is_left() -> None:
    assert opened(nearest, torch.randn(40, 8) * 2.0**26) is None


def test_16_bits_get_no_more_noise_than_their_own_rounding() -> None:
    def norm(x: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        wide = x if x.dtype is torch.float64 else x.float()
        return {"output": weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)}

    for dtype, _ in itertools.product((torch.float16, torch.bfloat16), range(3)):
        x, weight = torch.randn(48, 256).to(dtype), (1 + 0.1 * torch.randn(256)).to(dtype)
        found = find_open(
            functools.partial(norm, x, weight), norm(x, weight), norm(x.double(), weight.double()),
            lambda _, measure: bound.pool_measures([measure]), torch.Generator().manual_seed(0),
        )  # fmt: skip
        assert found == {}


@pytest.mark.parametrize("compute", [
    lambda x: (x - x.mean(dim=1, keepdim=True)) * 1.5, lambda x: x - x.mean(dim=0, keepdim=True), lambda x: x - x.mean(),
])  # fmt: skip
def test_what_is_zero_but_for_rounding_is_not_compared(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Where all values are equal, the distance from their mean is what the order of the sum makes of it, zero by chance."""
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x = torch.full((16, 50), float(torch.randn(1, generator=generator)))
        own, exact = {"output": compute(x)}, {"output": compute(x.double())}
        assert not exact["output"].any()
        usual = bound.measure_error(torch.ones(4), torch.ones(4).double())
        allow = lambda _, measure, usual=usual: bound.pool_measures([usual, measure])  # noqa: E731
        again = lambda x=x: {"output": compute(x)}  # noqa: E731
        assert find_open(again, own, exact, allow, generator) is None, seed
        assert find_smooth(again, exact, generator) is None, seed
