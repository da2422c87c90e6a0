"""Cutting graphs into regions: what belongs together, what must not, and what the counts say."""

from __future__ import annotations

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from torch import nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.printing.statement_order import KernelCall, schedule
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.state import Region
from tests.compiler.eager import captured, compare
from tests.compiler.test_lower import Program, programs, randn


def titles(graph: OpGraph, kind: str = "fusible") -> list[str]:
    return [region.title for region in partition(graph) if region.kind == kind]


class Block(nn.Module):
    """A pre-norm transformer block written by hand."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = ((q @ k.transpose(-2, -1)) * 0.35).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        hidden: torch.Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + hidden


class Stack(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.blocks(x)
        return y * 2


class Rms(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.double()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Layer(nn.Module):
    """A module of which a kernel takes over a part only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = Rms(), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.out(self.norm(x))
        y: torch.Tensor = ((gate.sigmoid() * x + gate.tanh()).exp() - x.abs()).sqrt().masked_fill(gate > 0, 0.0).clamp_min(0.1)
        return y


def test_kernels_have_names_that_a_person_can_read() -> None:
    graph = captured(nn.Sequential(Layer(), Block()), randn(2, 6, 32))
    regions = [region for region in partition(graph) if region.kind == "fusible"]
    names = [lower(graph, region).name for region in regions]
    assert names == [lower(graph, region).name for region in regions], "they are stable"
    assert names[0] == f"rms_{regions[0].id}", "all that a module does is called after it"
    assert names[1:4] == ["sigmoid_mul_tanh_residual_add_exp_r02", "mul_softmax_r09", "reshape_r12"]
    for name, region in zip(names, regions, strict=True):
        assert re.fullmatch(r"[a-z]\w*", name, re.ASCII)
        assert len(name) <= 40
        assert name.endswith(f"_{region.id}")
        assert not re.search(r"\d+_more|operators", name)


def test_a_transformer_block_becomes_few_kernels() -> None:
    regions = compare(Block(), randn(2, 6, 32))
    assert [region.title for region in regions if region.kind == "fusible"] == [
        "layer_norm",
        "mul + softmax",
        "reshape",
        "residual add + layer_norm",
        "gelu",
        "residual add",
    ]
    assert {operator for region in regions if region.kind == "library" for operator in region.operators} == {
        "aten.linear.default",
        "aten.matmul.default",
    }


def test_equal_blocks_are_one_region_with_instances() -> None:
    graph = captured(Stack(5), randn(2, 6, 32))
    regions = {region.title: region for region in partition(graph) if region.kind == "fusible"}
    assert len(regions["gelu"].nodes) == 5
    assert regions["gelu"].scopes == tuple(f"blocks.{i}" for i in range(5))
    assert len(regions["residual add + layer_norm"].nodes) == 9, "two a block, and the first block starts without one"
    kernel = lower(graph, regions["gelu"])
    assert len(set(bind(graph, regions["gelu"], kernel))) == 5
    assert regions["gelu"].launches == 5
    assert regions["gelu"].eager_bytes == 5 * 2 * (2 * 6 * 128 * 4)


def test_bytes_and_launches_of_a_chain() -> None:
    graph = captured(lambda x: F.relu(x * 2 + 1), randn(16, 64))
    (region,) = partition(graph)
    one_way = 16 * 64 * 4
    assert (region.launches, region.eager_bytes, region.fused_bytes) == (3, 6 * one_way, 2 * one_way)
    assert region.title == "mul + add + relu"
    assert [spec.shape for spec in region.inputs] == [(16, 64)]


def test_values_that_others_need_are_stored() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x + y
            z: torch.Tensor = self.linear(self.norm(x))
            return x + z

    regions = compare(Residual(), randn(4, 16), randn(4, 16, seed=1))
    first = next(region for region in regions if region.kind == "fusible")
    assert first.title == "residual add + layer_norm"
    assert len(first.outputs) == 2


def test_a_region_never_waits_for_itself() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(x)
            z: torch.Tensor = self.linear(y)
            return y + z

    graph = captured(Loop(), randn(4, 16))
    assert titles(graph) == ["tanh", "residual add"]
    _scheduled(graph)


def test_updates_in_place_keep_their_order() -> None:
    class Counter(nn.Module):
        total: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = x * self.total
            self.total.add_(x.mean(0))
            return before + x * self.total

    graph = captured(Counter(), randn(4, 8))
    for region in partition(graph):
        if region.kind == "fusible":
            for nodes in region.nodes:
                names = set(nodes)
                update = next(i for i, node in enumerate(graph.nodes) if node.op.startswith("aten.add_"))
                sides = {i < update for i, node in enumerate(graph.nodes) if node.name in names and "total" in str(node.args)}
                assert len(sides) < 2, "a region reads the buffer on both sides of its update"
    compare(Counter(), randn(4, 8))
    _scheduled(graph)


def test_a_slice_that_is_overwritten_is_left_to_the_library() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 0] = 1.0
        return F.relu(y) + 1

    graph = captured(function, randn(4, 8))
    assert any("fill" in region.title or "scatter" in region.title or "copy" in region.title for region in partition(graph))
    compare(function, randn(4, 8))
    _scheduled(graph)


def test_every_node_is_in_exactly_one_region() -> None:
    for module, shape in (
        (Stack(3), (2, 6, 32)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 8, 8)),
    ):
        graph = captured(module, randn(*shape))
        names = [name for region in partition(graph) for nodes in region.nodes for name in nodes]
        assert sorted(names) == sorted(node.name for node in graph.nodes)


def test_an_opaque_program_is_one_region() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if float(x.sum()) > 0 else x

    (region,) = partition(capture(Branch(), (randn(4),), {}))
    assert region.kind == "opaque"
    assert region.reason


def test_what_is_left_to_the_library_says_why() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:, :3]], 1)

    (region,) = [region for region in partition(captured(function, randn(4, 8))) if region.kind != "view"]
    assert (region.kind, region.reason) == ("library", "cat of parts of different sizes")


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_convolution_blocks(mode: str) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.short, self.bn3 = nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + self.bn3(self.short(x)))

    module = Residual().train(mode == "train")
    regions = compare(module, randn(3, 4, 6, 6))
    assert [region.title for region in regions if region.kind == "fusible"] == [
        "batch_norm + relu",
        "batch_norm + residual add + relu",
    ]
    _scheduled(captured(module, randn(3, 4, 6, 6)))


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(programs())
def test_random_programs_can_be_scheduled_and_written(program: Program) -> None:
    function, args = program
    graph = captured(function, *args)
    _scheduled(graph)
    for region in partition(graph):
        if region.kind == "fusible":
            kernel = lower(graph, region)
            assert count_variants(kernel) >= 1
            assert kernel.name in emit(kernel, 0).cuda


def _scheduled(graph: OpGraph) -> None:
    """All fusible regions together make a program whose statements can be put in order."""
    stitches = [_stitch(graph, region) for region in partition(graph) if region.kind == "fusible"]
    units = schedule(copy.deepcopy(graph), stitches)
    assert sum(isinstance(unit, KernelCall) for unit in units) == sum(len(stitch.instances) for stitch in stitches)


def _stitch(graph: OpGraph, region: Region) -> Stitch:
    kernel = lower(graph, region)
    return Stitch(region.id, kernel, emit(kernel, 0), bind(graph, region, kernel))
