"""Inputs are varied, and stay what they were made to be."""

from __future__ import annotations

import pytest
import torch

from stitchcuda.verify.inputs import variants
from stitchcuda.verify.inputs.reseeding import random_places
from stitchcuda.verify.inputs.variants import VALUES, vary


def other(tensor: torch.Tensor, variant: str, seed: int = 0) -> torch.Tensor:
    """The tensor after a variant; itself where the variant leaves it alone."""
    result = vary(((tensor,), {}), variant, torch.Generator().manual_seed(seed))
    changed: torch.Tensor = tensor if result is None else result[0][0]
    assert changed.shape == tensor.shape
    assert changed.dtype == tensor.dtype
    assert changed.device == tensor.device
    return changed


@pytest.mark.parametrize("variant", VALUES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_variant_gives_other_values_and_leaves_the_given_ones_alone(variant: str, dtype: torch.dtype) -> None:
    x = torch.randn(6, 32).to(dtype)
    before = x.clone()
    assert not torch.equal(other(x, variant), x)
    assert torch.equal(x, before)
    assert torch.equal(other(x, variant), other(x, variant))


@pytest.mark.parametrize("variant", VALUES)
def test_values_keep_their_domain(variant: str) -> None:
    unit = other(torch.rand(6, 32), variant)
    assert 0 <= float(unit.min()) <= float(unit.max()) <= 1
    positive = other(torch.rand(6, 32) * 5 + 1, variant)
    assert float(positive.min()) >= 0.1
    rows = torch.rand(6, 32).softmax(-1)
    assert torch.allclose(other(rows, variant).sum(-1), torch.ones(6), atol=1e-4)
    for fixed in (torch.arange(32.0), torch.zeros(4, 8), torch.full((9,), 0.5), torch.rand(32).cumsum(0), torch.arange(20)):
        assert other(fixed, variant) is fixed
    for counted in (torch.randint(9, (64,)), torch.rand(8, 8) < 0.5, torch.randint(3, (8, 8)).float() - 1):
        assert sorted(other(counted, variant).flatten().tolist()) == sorted(counted.flatten().tolist())
    infinite = torch.randn(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
    assert other(infinite, variant) is infinite


@pytest.mark.parametrize("variant", ["sorted", "repeated", "sparse"])
def test_integers_stay_in_the_range_of_their_place(variant: str) -> None:
    sizes = torch.tensor([1000, 10, 100_000])
    columns = torch.stack([torch.randint(int(size), (64,)) for size in sizes], 1)
    for given, made in ((columns, other(columns, variant)), (columns.t(), other(columns.t().contiguous(), variant).t())):
        assert bool((made.amax(0) < sizes).all())
        assert not torch.equal(made, given)
    for fixed in (
        torch.cat([torch.randint(int(size), (50,)) for size in sizes]), torch.arange(40).flip(0), torch.tensor([0, 3, 9] * 5),
        torch.stack([torch.arange(500) // 5, torch.randint(90, (500,))]),
    ):  # fmt: skip
        assert other(fixed, variant) is fixed


def test_a_moderate_change_each() -> None:
    x = torch.randn(64, 64)
    assert float(other(x, "scaled up").std() / x.std()) == pytest.approx(8)
    assert float(other(x, "scaled down").std() / x.std()) == pytest.approx(1 / 8)
    assert float(other(x, "shifted").mean()) == pytest.approx(-1, abs=0.1)
    assert 0.4 < float((other(x, "sparse") == 0).float().mean()) < 0.6
    assert bool((other(x, "sorted").diff(dim=-1) >= 0).all())
    assert torch.equal(other(x, "repeated")[::2], other(x, "repeated")[1::2])
    assert int((other(x, "outlier") != x).sum()) == 1


def test_another_layout_holds_the_same_values() -> None:
    for x in (torch.randn(3, 5, 7), torch.randn(20), torch.randn(20, 1), torch.arange(20)):
        y = other(x, "non-contiguous")
        assert torch.equal(x, y)
        assert not y.is_contiguous()
    assert vary(((torch.arange(2), 3), {}), "non-contiguous", torch.Generator()) is None


def test_strides_and_shared_memory_stay() -> None:
    x = torch.randn(8, 6).t()
    assert other(x, "scaled up").stride() == x.stride()
    base = torch.randn(64)
    result = vary(((base[:40], base[20:]), {"z": base}), "scaled up", torch.Generator())
    assert result is not None
    (one, two), named = result
    one[39] = 7
    assert float(two[19]) == float(named["z"][39]) == 7
    assert float(base[39]) != 7


@pytest.mark.parametrize(("size", "count"), [(3, 2), (7, 7), (5, 9), (1000, 3), (4099, 64)])
def test_random_places_are_different_and_reach_everywhere(size: int, count: int) -> None:
    generator, seen = torch.Generator().manual_seed(size), set[int]()
    for _ in range(40 * size // min(count, size)):
        places = random_places(size, count, generator).tolist()
        assert len(set(places)) == len(places) == min(count, size)
        assert 0 <= min(places) <= max(places) < size
        seen.update(places)
    assert len(seen) == size


def test_other_sizes_are_cut_or_tiled() -> None:
    x, ids = torch.randn(4, 6), torch.arange(4)
    (small, some), _ = variants.resize(((x, ids), {}), [(0, 0, 3), (1, 0, 3)])
    assert torch.equal(small, x[:3])
    assert some.tolist() == [0, 1, 2]
    (large,), _ = variants.resize(((x,), {}), [(0, 0, 9)])
    assert torch.equal(large, torch.cat([x, x, x[:1]]))


def test_what_the_reference_does_not_stand() -> None:
    def said(own: torch.Tensor, exact: torch.Tensor | None = None, usual: float = 1e-8) -> str:
        return variants.why_unsuitable({"output": own}, {"output": own.double() if exact is None else exact}, usual)

    x = torch.randn(8)
    assert said(x) == ""
    assert "finite" in said(torch.tensor([1.0, torch.nan]))
    assert "overflow" in said(torch.tensor([1.0, 5e4]).half())
    assert "constant" in said(torch.zeros(8))
    assert "ill-conditioned" in said(x, x.double() * (1 + 1e-4))
    assert said(x, x.double() * (1 + 1e-7)) == ""
    assert said(torch.arange(8)) == ""


def test_places_are_exchanged_with_no_new_values() -> None:
    x = torch.randn(64, 96)
    made = other(x, "exchanged")
    assert 2 <= int((made != x).sum()) <= x.numel() // 100
    assert torch.equal(made.flatten().sort().values, x.flatten().sort().values)
    assert not torch.equal(other(torch.randn(8), "exchanged"), torch.randn(8))


def test_a_batch_of_one_is_a_patchwork_too() -> None:
    x = torch.randn(1, 48, 64)
    made = [other(x, "patchwork", seed) for seed in range(4)]
    assert any(bool((one < 0).all(-1).any()) for one in made)
    assert all(not torch.equal(one, x) for one in made)


def test_masks_change_places_where_they_are_not_left_as_given() -> None:
    x, mask = torch.randn(8, 16), torch.rand(8, 16) < 0.5
    generator = torch.Generator().manual_seed(0)
    for variant in ("patchwork", "exchanged", "touched"):
        made = vary(((x, mask), {}), variant, generator)
        assert made is not None
        assert not torch.equal(made[0][1], mask)
        assert int(made[0][1].sum()) == int(mask.sum())
        made = vary(((x, mask), {}), variant + variants.MASKS_AS_GIVEN, generator)
        assert made is not None
        assert torch.equal(made[0][1], mask)
        assert not torch.equal(made[0][0], x)
        assert vary(((x,), {}), variant + variants.MASKS_AS_GIVEN, generator) is None


def test_one_constant_output_leaves_the_others_to_judge_by() -> None:
    def said(**outputs: torch.Tensor) -> str:
        named = {f"output.{name}": value for name, value in outputs.items()}
        exact = {name: value.double() if value.is_floating_point() else value for name, value in named.items()}
        return variants.why_unsuitable(named, exact, 1e-8)

    assert said(a=torch.zeros(8), b=torch.randn(8)) == ""
    assert said(a=torch.zeros(8), b=torch.ones(8)) == "all of its outputs become constant"
    assert said(a=torch.zeros(8), b=torch.arange(8)) == ""


def test_complex_outputs_are_looked_at_too() -> None:
    x = torch.randn(8, dtype=torch.complex64)
    exact = x.to(torch.complex128)
    assert variants.why_unsuitable({"output": x}, {"output": exact}, 1e-8) == ""
    assert "ill-conditioned" in variants.why_unsuitable({"output": x}, {"output": exact * (1 + 1e-4)}, 1e-8)
    assert "finite" in variants.why_unsuitable({"output": x / 0}, {"output": exact}, 1e-8)
    assert "constant" in variants.why_unsuitable({"output": x[:1].expand(8)}, {"output": exact[:1].expand(8)}, 1e-8)
