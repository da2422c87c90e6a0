"""Predictions: what they are made of, and that they move the way a program does on a device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stitchcuda.compiler.capture.op_graph import Node, OpGraph, ValueRef
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.operator_work import matrix_flops, synchronises, work_of
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.state import DeviceFacts
from tests.compiler.eager import captured
from tests.compiler.test_lower import randn

H200 = DeviceFacts(
    name="NVIDIA H200",
    target="sim",
    arch="sm_90a",
    sm_count=132,
    bandwidth_gbs=4300.0,
    tflops={"bfloat16": 790.0, "float16": 790.0, "tf32": 385.0, "float32": 51.0, "float64": 34.0},
    launch_us=4.5,
)
FASTER_HOST = H200.model_copy(update={"launch_us": 0.01})
SLOWER_HOST = H200.model_copy(update={"launch_us": 500.0})


def chain(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 2 + 1) * x.sigmoid()


def kept(graph: OpGraph) -> list[str]:
    return [region.id for region in partition(graph) if region.kind == "fusible"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_flops_of_products(dtype: str) -> None:
    x, w = randn(6, 8, dtype=getattr(torch, dtype)), randn(5, 8, dtype=getattr(torch, dtype))
    products = {
        lambda x, w: F.linear(x, w): 2 * 6 * 8 * 5,
        lambda x, w: x @ w.T: 2 * 6 * 8 * 5,
        lambda x, w: torch.einsum("ik,jk->ij", x, w): 2 * 6 * 8 * 5,
        lambda x, w: torch.addmm(x[:, :5], x, w.T): 2 * 6 * 8 * 5,
        lambda x, w: torch.bmm(x.expand(3, 6, 8), w.T.expand(3, 8, 5)): 3 * 2 * 6 * 8 * 5,
    }
    for function, flops in products.items():
        graph = captured(function, x, w)
        flow = Flow(graph)
        assert sum(work_of(flow, node).flops for node in graph.nodes if work_of(flow, node).matrix) == flops


def test_flops_of_convolutions_and_attention() -> None:
    graph = captured(nn.Conv2d(4, 6, 3, padding=1, groups=2), randn(2, 4, 5, 5))
    assert matrix_flops(Flow(graph), graph.nodes[0]) == 2 * (2 * 6 * 5 * 5) * (4 // 2 * 9)
    graph = captured(nn.ConvTranspose2d(4, 6, 2, stride=2), randn(2, 4, 5, 5))
    assert matrix_flops(Flow(graph), graph.nodes[0]) == 2 * (2 * 4 * 5 * 5) * (6 * 4)
    graph = captured(lambda q: F.scaled_dot_product_attention(q, q, q), randn(2, 3, 7, 8))
    node = next(node for node in graph.nodes if "attention" in node.op)
    assert matrix_flops(Flow(graph), node) == 2 * 2 * (2 * 3 * 7 * 7 * 8)
    graph = captured(nn.LSTM(8, 16), randn(5, 2, 8))
    node = next(node for node in graph.nodes if "lstm" in node.op)
    assert matrix_flops(Flow(graph), node) == 2 * 5 * 2 * (4 * 16 * (8 + 16))


def test_a_large_program_costs_its_bytes_and_a_small_one_its_launches() -> None:
    large, small = captured(chain, torch.empty(4096, 4096)), captured(chain, randn(8, 8))
    traffic = 13 * 4096 * 4096 * 4 / (4300e9) * 1e3  # ms: five operators read seven tensors and write five, and x is read again
    assert cost.eager_ms(large, partition(large), H200) == pytest.approx(traffic, rel=0.2)
    assert cost.eager_ms(large, partition(large), FASTER_HOST) == pytest.approx(
        cost.eager_ms(large, partition(large), H200), rel=0.05
    )
    tiny = cost.eager_ms(small, partition(small), H200)
    assert tiny == pytest.approx(5 * 1.1 * 4.5e-3, rel=0.2)
    assert cost.eager_ms(small, partition(small), SLOWER_HOST) > 50 * tiny


def test_stitching_saves_and_savings_add_up() -> None:
    for size in (8, 2048):
        graph = captured(chain, torch.empty(size, size))
        regions = partition(graph)
        eager, stitched = cost.eager_ms(graph, regions, H200), cost.program_ms(graph, regions, kept(graph), H200)
        assert stitched < 0.5 * eager
        assert cost.floor_ms(graph, H200) <= stitched
    region = next(region for region in regions if region.kind == "fusible")
    assert cost.saving_ms(region, H200) == pytest.approx(eager - stitched, rel=0.3)
    assert all(cost.saving_ms(region, H200) == 0 for region in regions if region.kind != "fusible")


def test_graph_replay_pays_where_the_host_is_the_bottleneck() -> None:
    small, large = captured(chain, randn(8, 8)), captured(chain, torch.empty(4096, 4096))
    assert cost.graph_saving_ms(small, partition(small), (), H200) > 0.3 * cost.eager_ms(small, partition(small), H200)
    gain = cost.graph_saving_ms(large, partition(large), (), H200)
    assert gain < 0.02 * cost.eager_ms(large, partition(large), H200), "the copy of the input eats it"


def test_floor_of_a_product_is_its_flops() -> None:
    graph = captured(lambda x, w: F.linear(x, w), torch.empty(4096, 4096), torch.empty(4096, 4096))
    assert cost.floor_ms(graph, H200) == pytest.approx(2 * 4096**3 / (790e12 / 3) * 1e3), "as three fp16 products"


def test_measured_times_of_single_operators_are_met() -> None:
    """Medians on an H200 with torch 2.11, device time on a busy stream in us; the model has to be within 1.5x."""
    measured = {
        "gelu 2048": (lambda x: F.gelu(x), (2048, 1024), torch.float32, 4.72),
        "gelu 65536": (lambda x: F.gelu(x), (65536, 1024), torch.float32, 128.9),
        "layer_norm 512": (lambda x: F.layer_norm(x, (1024,)), (512, 1024), torch.float32, 5.25),
        "layer_norm 8192": (lambda x: F.layer_norm(x, (1024,)), (8192, 1024), torch.float32, 30.5),
        "layer_norm bf16": (lambda x: F.layer_norm(x, (1024,)), (8192, 1024), torch.bfloat16, 21.9),
        "softmax bf16": (lambda x: x.softmax(-1), (8192, 1024), torch.bfloat16, 16.5),
        "sum": (lambda x: x.sum(-1), (65536, 1024), torch.float32, 72.9),
        "group_norm": (lambda x: F.group_norm(x, 8), (32, 256, 28, 28), torch.float32, 49.6),
    }
    for name, (function, shape, dtype, microseconds) in measured.items():
        graph = captured(function, torch.empty(shape, dtype=dtype))
        predicted = 1e3 * cost.eager_ms(graph, partition(graph), FASTER_HOST)
        assert microseconds / 1.5 < predicted < microseconds * 1.5, f"{name}: {predicted:.1f} us predicted"


def test_operators_that_make_the_host_wait() -> None:
    lookup = captured(lambda x, i: x[i], randn(4), torch.tensor([0, 2]))
    flow = Flow(lookup)
    assert not any(synchronises(flow, node) for node in lookup.nodes)
    for op in ("aten.item.default", "aten.nonzero.default", "aten.masked_select.default"):
        assert synchronises(flow, Node(name="n", op=op, args=(ValueRef(value=lookup.inputs[0].name),)))
    masks = lookup.model_copy(update={"inputs": (lookup.inputs[0], lookup.inputs[1].model_copy(update={"dtype": "bool"}))})
    assert any(synchronises(Flow(masks), node) for node in masks.nodes), "a mask as index is counted on the host"


def test_an_opaque_program_has_no_prediction() -> None:
    graph = OpGraph(inputs=(), call={}, state=(), nodes=(), outputs=None, opaque="it branches on data")
    regions = partition(graph)
    assert (cost.eager_ms(graph, regions, H200), cost.floor_ms(graph, H200)) == (0.0, 0.0)
