"""Speed of light: what a floor is made of, which ceiling sets it, and that no prediction is below it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.einsum_flops import least_einsum_flops
from stitchcuda.compiler.regions.floor import LAUNCH_US, fastest_rate, program_floor, region_floor, region_floors
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.regions.present import describe_program
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


@pytest.mark.parametrize(("precision", "rate"), [("reference", 790.0 / 3), ("tf32", 790.0), ("bf16", 790.0)])
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
    assert fastest_rate("aten.conv2d.default", "float32", new) == 9000e12, "fp16 has the bits of TF32"
    product = captured(lambda x, w: x @ w, torch.empty(4096, 4096), torch.empty(4096, 4096))
    assert cost.eager_ms(product, partition(product), H200) > 2 * 4096**3 / 51e9, "a library's product stays in fp32"


def test_convolutions_run_in_tf32_by_default_and_may_run_in_fp16() -> None:
    graph = captured(nn.Conv2d(256, 256, 3, padding=1), torch.empty(32, 256, 56, 56))
    flops = 2 * (32 * 256 * 56 * 56) * (256 * 9)
    assert program_floor(graph, H200).matrix_ms == pytest.approx(flops / 790e12 * 1e3)
    assert cost.eager_ms(graph, partition(graph), H200) > flops / 385e12 * 1e3


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


SIZES = {"a": 2, "b": 3, "c": 5, "d": 7, "e": 4}
TERMS = st.text("abcde", min_size=1, max_size=4).map(lambda text: "".join(dict.fromkeys(text)))


def flops_in_order(terms: list[str], result: str, pairs: list[int]) -> int:
    """Contracts two terms after another, picked by `pairs`, as a program would."""
    total, terms = 0, list(terms)
    for pick in pairs:
        if len(terms) == 1:
            break
        first, second = terms.pop(pick % len(terms)), terms.pop(pick // 7 % (len(terms) - 1) if len(terms) > 1 else 0)
        union = set(first) | set(second)
        kept = union & set("".join(terms) + result)
        summed = union - kept
        total += math.prod(SIZES[index] for index in union) * (2 if summed else 1)
        terms.append("".join(sorted(kept)))
    return total


@settings(max_examples=200, deadline=None)
@given(terms=st.lists(TERMS, min_size=2, max_size=5), pairs=st.lists(st.integers(0, 999), min_size=4), data=st.data())
def test_the_floor_of_an_einsum_is_below_every_order(terms: list[str], pairs: list[int], data: st.DataObject) -> None:
    letters = sorted(set("".join(terms)))
    result = "".join(data.draw(st.lists(st.sampled_from(letters), unique=True)))
    least = least_einsum_flops(f"{','.join(terms)}->{result}", [tuple(SIZES[index] for index in term) for term in terms])
    assert least <= flops_in_order(terms, result, pairs)
    assert least <= 2 * math.prod(SIZES[index] for index in letters), "one loop nest"


def test_a_product_of_four_tensors_is_contracted_in_its_cheapest_order() -> None:
    """KernelBench's level3/48: as one nest it would need 64 times the flops."""
    b, c, n, s, h, p = 2048, 2, 16, 64, 8, 64
    shapes = [(b, c, s, h, n), (b, c, s, h, n), (b, h, c, s, s), (b, c, s, h, p)]
    equation = "bclhn,bcshn,bhcls,bcshp->bclhp"
    graph = captured(lambda *given: torch.einsum(equation, *given), *(torch.empty(each, device="meta") for each in shapes))
    flops = 2 * b * c * h * s * s * (n + p)
    assert program_floor(graph, H200).matrix_ms == pytest.approx(flops / (790e12 / 3) * 1e3)
    assert least_einsum_flops("...ij,...jk", [(9, 2, 3), (1, 3, 5)]) == 2 * 9 * 2 * 3 * 5
    assert least_einsum_flops("ij,jk->ik", [(2, 3), (1, 5)]) == 0, "a sum, then a product without one"
    assert least_einsum_flops(",".join("ab" for _ in range(9)), [(2, 3)] * 9) == 0, "nothing is known"


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(32), nn.GroupNorm(4, 32), nn.InstanceNorm2d(32), nn.LayerNorm((32, 64, 64))], ids=repr
)
def test_a_norm_reads_its_input_once(norm: nn.Module) -> None:
    graph = captured(norm, torch.empty(16, 32, 64, 64))
    each = 16 * 32 * 64 * 64 * 4
    floors = [region_floor(region, H200).bytes_ms for region in partition(graph)]
    present = describe_program(graph, partition(graph), (), H200, "reference", replayed=False)
    for floor in (program_floor(graph, H200).bytes_ms, sum(floors), sum(node.floor.bytes_ms for node in present.nodes)):
        assert 2 * each / 4300e9 * 1e3 <= floor < 2.3 * each / 4300e9 * 1e3
