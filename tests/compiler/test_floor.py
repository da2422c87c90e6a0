"""Speed of light: what a floor is made of, which ceiling sets it, and that no prediction is below it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.floor import LAUNCH_US, fastest_rate, program_floor, region_floor, region_floors
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.state import Precision
from tests.compiler.eager import captured
from tests.compiler.test_cost import H200, chain
from tests.compiler.test_lower import randn

MLP = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), nn.LayerNorm(1024))


def test_a_large_pointwise_program_is_bound_by_its_bytes() -> None:
    graph = captured(chain, torch.empty(4096, 4096))
    floor = program_floor(graph, H200)
    assert floor.binds == "bandwidth"
    assert floor.ms == pytest.approx(2 * 4096 * 4096 * 4 / 4300e9 * 1e3), "one read and one write"
    (region,) = [region for region in partition(graph) if region.kind == "fusible"]
    assert region_floor(region, H200).ms == pytest.approx(floor.ms), "it is all of the program"


def test_a_tiny_program_is_bound_by_its_launch() -> None:
    graph = captured(chain, randn(8, 8))
    assert program_floor(graph, H200).bytes_ms == pytest.approx(2 * 64 * 4 / 4300e9 * 1e3)
    assert program_floor(graph, H200).binds == "launch"
    assert str(program_floor(graph, H200)) == f"{LAUNCH_US / 1e3:.4f} ms (launch)"


def test_only_the_rows_that_are_looked_up_are_read() -> None:
    lookup = captured(nn.Embedding(100_000, 64), torch.zeros(4, dtype=torch.int64))
    moved = 4 * 8 + 2 * 4 * 64 * 4
    assert program_floor(lookup, H200).bytes_ms == pytest.approx(moved / 4300e9 * 1e3)


@pytest.mark.parametrize(("precision", "rate"), [("reference", 790.0 / 3), ("tf32", 385.0), ("bf16", 790.0)])
def test_a_product_is_bound_by_the_matrix_rate_of_its_precision(precision: Precision, rate: float) -> None:
    graph = captured(lambda x, w: F.linear(x, w), torch.empty(4096, 4096), torch.empty(4096, 4096))
    floor = program_floor(graph, H200, precision)
    assert floor.binds == "matrix rate"
    assert floor.ms == pytest.approx(2 * 4096**3 / rate / 1e12 * 1e3)
    assert cost.floor_ms(graph, H200, precision) == floor.ms
    (region,) = partition(graph)
    assert region_floor(region, H200, precision).matrix_ms == pytest.approx(floor.ms)


def test_fp32_products_may_be_three_fp16_ones_where_those_are_faster() -> None:
    """The planner is told to write them so: with fp32's rate on CUDA cores it believed that nothing was left."""
    rates = {"float16": 100.0, "float32": 51.0}
    old = H200.model_copy(update={"tflops": rates})
    for name in ("mm", "addmm", "bmm", "matmul", "linear"):
        op = f"aten.{name}.default"
        assert fastest_rate(op, "float32", H200) == 790e12 / 3, name
        assert fastest_rate(op, "float32", old) == 51e12, "fp32's own rate is the faster here"
        assert fastest_rate(op, "bfloat16", H200) == 790e12, "only fp32 is split"
    new = H200.model_copy(update={"tflops": {"float16": 9000.0, "tf32": 1.0}})
    assert fastest_rate("aten.conv2d.default", "float32", new) == 1e12
    product = captured(lambda x, w: x @ w, torch.empty(4096, 4096), torch.empty(4096, 4096))
    assert cost.eager_ms(product, partition(product), H200) > 2 * 4096**3 / 51e9, "a library's product stays in fp32"


def test_convolutions_run_in_tf32_by_default() -> None:
    graph = captured(nn.Conv2d(256, 256, 3, padding=1), torch.empty(32, 256, 56, 56))
    flops = 2 * (32 * 256 * 56 * 56) * (256 * 9)
    assert program_floor(graph, H200).matrix_ms == pytest.approx(flops / 385e12 * 1e3)


@pytest.mark.parametrize("rows", [1, 64, 16384])
def test_the_regions_together_need_at_least_what_the_program_needs_and_predictions_stay_above(rows: int) -> None:
    graph = captured(MLP, torch.empty(rows, 1024))
    regions = partition(graph)
    each = region_floors(regions, H200)
    assert sum(floor.ms for floor in each.values()) >= program_floor(graph, H200).ms * 0.999
    assert all(each[region.id].binds == "nothing" for region in regions if region.kind == "view")
    kept = [region.id for region in regions if region.kind == "fusible"]
    assert cost.program_ms(graph, regions, kept, H200) >= program_floor(graph, H200).ms


def test_equal_regions_need_a_launch_each() -> None:
    block = nn.Sequential(nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8))
    graph = captured(nn.Sequential(block, block, block), randn(2, 8))
    region = next(region for region in partition(graph) if region.kind == "fusible")
    assert len(region.nodes) == 3
    assert region_floor(region, H200).launch_ms == pytest.approx(3 * LAUNCH_US / 1e3)


def test_no_device_rates_and_opaque_programs_have_no_floor() -> None:
    opaque = OpGraph(inputs=(), call={}, state=(), nodes=(), outputs=None, opaque="it branches on data")
    assert (program_floor(opaque, H200).ms, program_floor(opaque, H200).binds) == (0.0, "nothing")
    assert [floor.ms for floor in region_floors(partition(opaque), H200).values()] == [0.0]
    unknown = H200.model_copy(update={"tflops": {}})
    product = captured(lambda x: x @ x, torch.empty(512, 512))
    assert program_floor(product, unknown).matrix_ms == 0.0
