"""Rewritten graphs compute what the reference does: as exactly, with its infinities and NaN; weights are split once."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions.cost import program_ms
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates import split_products as template
from stitchcuda.compiler.templates.channels_last import carry_channels_last
from stitchcuda.compiler.templates.split_products import find_products, gaining, split_products
from stitchcuda.verify.program import simulated_device
from tests.compiler.eager import captured, compare, evaluate
from tests.compiler.pipeline import load
from tests.compiler.test_cost import H200


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    """The products that the CPU lacks, as on the simulator."""
    library = simulated_device.add_operators()
    yield
    library._destroy()  # type: ignore[no-untyped-call, unused-ignore]


class Layers(nn.Module):
    """Two layers that read the same tensor, one of them twice, and one behind an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(24, 40), nn.Linear(24, 40, bias=False), nn.Linear(40, 16)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.relu(self.first(x)) * self.gate(x)) + self.last(self.gate(x))
        return result


def rewritten(module: nn.Module, *args: Tensor) -> OpGraph:
    graph = captured(module, *args)
    return split_products(graph, find_products(graph))


def program(graph: OpGraph, module: nn.Module, folder: Path) -> Any:
    made = load(write_program(graph), folder).ModelNew()
    made.load_state_dict(module.state_dict())
    return made


def off(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


def test_products_are_split_and_shared_parts_made_once(tmp_path: Path) -> None:
    module, x = Layers().requires_grad_(False), torch.randn(3, 5, 24)
    graph = rewritten(module, x)
    operators = [node.op for node in graph.nodes]
    assert operators.count("aten.mm.dtype") == 5
    assert "aten.linear.default" not in operators
    assert operators.count("aten.cat.default") == 3  # x, what the first last() reads, what the second does
    assert [made.source for made in graph.prepared] == ["p_first_weight", "p_gate_weight", "p_last_weight"]
    made = program(graph, module, tmp_path)
    truth = copy.deepcopy(module).double()(x.double())
    assert off(made(x), truth) < 2 * off(module(x), truth) + 1e-8
    assert made.state_dict().keys() == module.state_dict().keys()


def test_a_changed_weight_is_split_again(tmp_path: Path) -> None:
    module, x = Layers().requires_grad_(False), torch.randn(2, 24)
    made = program(rewritten(module, x), module, tmp_path)
    made(x)
    parts = made.first.weight_parts
    made(x)
    assert made.first.weight_parts is parts
    for change in (
        lambda layer: layer.weight.mul_(1.5),
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn_like(layer.weight), requires_grad=False)),
        lambda layer: setattr(layer.weight, "data", torch.randn_like(layer.weight)),
    ):
        for layers in (made, module):
            torch.manual_seed(4)
            change(layers.first)
        torch.testing.assert_close(made(x), module(x))
    again = copy.deepcopy(made)
    again.first.weight.zero_()
    torch.testing.assert_close(made(x), module(x))
    assert not torch.equal(again(x), made(x))


SHAPES = (1, 1, 1), (5, 7, 3), (8, 6, 130)
LAYER = {shape: nn.Linear(shape[2], shape[1], bias=False).requires_grad_(False) for shape in SHAPES}


@functools.cache
def graph_of(shape: tuple[int, int, int]) -> OpGraph:
    return rewritten(LAYER[shape], torch.zeros(shape[0], shape[2]))


def by_nodes(x: Tensor, weight: Tensor) -> Tensor:
    """x · wᵀ, run node by node; the shapes are one of SHAPES."""
    shape = (x.shape[0], *weight.shape)
    LAYER[shape].weight.copy_(weight)
    return evaluate(graph_of(shape), LAYER[shape], (x,)).after[graph_of(shape).nodes[-1].outputs[0].name]


@given(
    shape=st.sampled_from(SHAPES), octave=st.integers(-90, 60), weight_octave=st.integers(-60, 20),
    spread=st.sampled_from([0, 4, 12]), seed=st.integers(0, 2**20),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_product_in_three_parts_is_as_exact_as_in_fp32(
    shape: tuple[int, int, int], octave: int, weight_octave: int, spread: int, seed: int
) -> None:
    """Rows differ by up to 2^(4 spread) in size; elements of a row by as much as random numbers do."""
    torch.manual_seed(seed)
    rows, columns, length = shape
    x = torch.randn(rows, length) * 2.0 ** (octave + spread * torch.randn(rows, 1).clamp(-2, 2).round())
    sizes = 2.0 ** (weight_octave + spread * torch.randn(columns, 1).clamp(-2, 2).round())
    weight = torch.randn(columns, length) * sizes
    truth, size = x.double() @ weight.double().T, x.abs().double() @ weight.abs().double().T
    own, error = ((found - truth).abs() / size for found in (x @ weight.T, by_nodes(x, weight)))
    assert float(error.max()) < 4 * float(own.max()) + 2.0**-21


def test_what_is_far_below_the_largest_of_its_row_keeps_its_bits() -> None:
    """It meets a zero, so that it is not what the sum is made of."""
    torch.manual_seed(2)
    x, weight = torch.randn(8, 130), torch.randn(6, 130)
    x[:, 7], weight[:, 7] = 2.0**16, 0.0
    truth = x.double() @ weight.double().T
    assert off(by_nodes(x, weight), truth) < 3 * off(x @ weight.T, truth)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38, 1e-44, 0.0])
def test_special_values_give_what_fp32_gives(value: float) -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(8, 130), torch.randn(6, 130)
    weight[2] = 0.0
    x[1, 3] = value
    large = 1e30 < abs(value) < math.inf   # where fp32 overflows depends on the order of its sum
    x[4, :] = 1e30 if large else value
    weight[1, 3] = 1.0 if large else value
    torch.testing.assert_close(by_nodes(x, weight), x @ weight.T, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_long_products_are_sums_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "LENGTH", 16)
    module, x = nn.Linear(48, 10).requires_grad_(False), torch.randn(2, 7, 48)
    graph = rewritten(module, x)
    assert [node.op for node in graph.nodes].count("aten.bmm.dtype") == 1
    truth = copy.deepcopy(module).double()(x.double())
    assert off(program(graph, module, tmp_path)(x), truth) < 2 * off(module(x), truth) + 1e-8
    monkeypatch.setattr(template, "LENGTH", 3)  # 16 pieces are not enough
    assert not find_products(captured(nn.Linear(97, 4), torch.randn(2, 97)))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_products_of_what_is_computed(tmp_path: Path, leading: tuple[int, ...]) -> None:
    """Attention's, with a transposed right operand and one that is not."""

    class Attention(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return (q @ k.transpose(-2, -1)).softmax(-1) @ v

    module, given = Attention(), [torch.randn(*leading, size, 8) for size in (5, 9, 9)]
    graph = rewritten(module, *given)
    assert sum(node.op.endswith("mm.dtype") for node in graph.nodes) == 2
    truth = module(*(x.double() for x in given))
    assert off(program(graph, module, tmp_path)(*given), truth) < 3 * off(module(*given), truth) + 1e-8
    kinds = [region.kind for region in partition(graph)]
    assert kinds.count("library") == 2


def test_only_what_gains_is_split() -> None:
    with torch.device("meta"):
        large, small, thin = nn.Linear(2048, 2048), nn.Linear(64, 64), nn.Linear(4096, 4096)
        cases = [(large, torch.empty(8192, 2048), 1), (small, torch.empty(32, 64), 0), (thin, torch.empty(1, 4096), 0)]
    for layer, x, count in cases:
        assert len(gaining(find_products(captured(layer, x)), H200)) == count
    graph = captured(large, cases[0][1])
    after = split_products(graph, find_products(graph))
    stitched = [region.id for region in partition(after) if region.kind == "fusible"]
    assert program_ms(after, partition(after), stitched, H200) < 0.6 * program_ms(graph, partition(graph), (), H200)


def test_split_regions_compute_what_eager_does() -> None:
    module = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24)).requires_grad_(False)
    regions = compare(module, torch.randn(4, 24), rewrite=lambda graph: split_products(graph, find_products(graph)))
    kinds = [region.kind for region in regions]
    assert kinds.count("fusible") == 3     # norm and split; bias, GELU and split; bias
    assert kinds.count("library") == 2


class Net(nn.Module):
    """Convolutions with and without bias, norms in both modes, pooling, a gate per channel, a concatenation, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.left, self.right = nn.Conv2d(8, 6, 1, bias=False), nn.Conv2d(8, 10, 3, padding=1, groups=2)
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.norm(self.first(x)))
        y = torch.cat([self.left(y), self.right(y)], 1)
        y = self.up(nn.functional.max_pool2d(y, 2)) * torch.sigmoid(y.mean((2, 3), keepdim=True)[:, :8]) + x.mean()
        return self.head(nn.functional.silu(y).mean((2, 3))), y


@pytest.mark.parametrize("train", [False, True])
def test_convolutions_are_carried_in_channels_last_order(tmp_path: Path, train: bool) -> None:
    torch.manual_seed(0)
    module, x = Net().train(train).requires_grad_(False), torch.randn(2, 3, 8, 8)
    graph = carry_channels_last(captured(module, x))
    operators = [node.op for node in graph.nodes]
    assert operators.count("aten.clone.default") == 4  # x; y before the mean; y again, for the result, and its silu
    made = program(graph, module, tmp_path)
    expected, given = copy.deepcopy(module)(x), made(x)
    for ours, theirs in zip(given, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        assert ours.stride() == theirs.stride()
    compare(module, x, rewrite=carry_channels_last)
    plain = captured(nn.Linear(3, 4), torch.randn(2, 3))
    assert carry_channels_last(plain) is plain
