"""Measured times of a program's nodes: a recorded call's launches, in order, and never for a node they may not be of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions.measured import with_measured
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.regions.present import PresentNode, PresentProgram, PresentTask, describe_program
from stitchcuda.engineers.present_text import present_text
from stitchcuda.state import MOST_STEPS, CallStep, Evidence
from tests.compiler.eager import captured
from tests.compiler.test_cost import H200
from tests.replay import Recording

RECORDED = Path(__file__).parents[1] / "recordings" / "dense_transition.json.gz"


def described(graph: OpGraph, kept: Sequence[str] = ()) -> PresentProgram:
    regions = partition(graph)
    tasks = [PresentTask(region.id, region.title, (region,)) for region in regions if region.id in kept]
    return describe_program(graph, regions, tasks, H200, "reference", replayed=False)


def torchs(name: str, amount: int, who: Literal["vendor", "framework"] = "framework", each: Sequence[int] = ()) -> CallStep:
    return CallStep(who=who, name=name, amount=amount, times=max(1, len(each)), each=tuple(each))


def times(program: PresentProgram) -> dict[str, float | None]:
    return {node.name: node.measured_ms for node in program.nodes}


def test_a_recorded_profile_gives_each_node_its_own_kernels_time() -> None:
    recording = Recording(RECORDED)
    evidence = [Evidence.model_validate(each) for each in recording.data["evidence"].values()]
    steps = next(
        each.check.steps for each in evidence if each.check and "batch_norm_relu_r01_finish" in str(each.check.steps)
    )
    graph = OpGraph.model_validate_json(recording.data["capture"])
    own = {step.name: "r01" for step in steps if step.who == "own"}
    found = with_measured(described(graph, ["r01"]), steps, own)
    assert [(node.name, node.task) for node in found.nodes][1] == ("own kernel", "r01")
    assert [node.measured_ms for node in found.nodes] == [
        pytest.approx(ns / 1e6) for ns in (
            steps[0].amount, sum(step.amount for step in steps if step.who == "own"), steps[-2].amount, steps[-1].amount,
        )
    ]  # fmt: skip
    assert found.tasks[0].measured_ms == found.nodes[1].measured_ms
    text = present_text(found, H200, 3.52, 1.95)
    (line,) = (line for line in text.splitlines() if "aten.avg_pool2d.default" in line)
    assert "1.55 ms measured, " in line
    assert " predicted, floor " in line
    assert "its launches take 1.06 ms measured" in text
    assert "measured" not in "".join(
        line for line in present_text(described(graph, ["r01"]), H200, None, None).splitlines() if line.startswith("- ")
    ), "nothing was recorded on the simulator"


def test_equal_operators_get_the_nth_launch_each() -> None:
    graph = captured(lambda x, w: F.softmax(x, 1) @ F.softmax(w, 1), torch.empty(64, 64), torch.empty(64, 64))
    steps = [torchs("softmax_warp_forward", 900, each=(600, 300)), torchs("nvjet_sm90_64x64", 5000, "vendor")]
    found = with_measured(described(graph), steps, {})
    assert [node.measured_ms for node in found.nodes] == [0.0006, 0.0003, 0.005]
    assert "(0.3 µs to 0.6 µs each)" in present_text(found, H200, 0.01, 1.0)


def test_a_bias_and_the_sum_of_a_split_product_are_part_of_it() -> None:
    graph = captured(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)), torch.empty(2, 4, 16, 16))
    steps = [
        torchs("sm90_xmma_fprop_implicit_gemm_tf32f32", 700, "vendor"), torchs("elementwise_kernel<CUDAFunctor_add>", 50),
        torchs("sm90_xmma_fprop_implicit_gemm_tf32f32", 500, "vendor"), torchs("splitKreduce_kernel", 20, "vendor"),
        torchs("elementwise_kernel<CUDAFunctor_add>", 40),
    ]  # fmt: skip
    found = with_measured(described(graph), steps, {})
    assert next(node.measured_ms for node in found.nodes) == pytest.approx(0.00075)


def test_what_cannot_be_told_apart_keeps_its_prediction() -> None:
    graph = captured(lambda x, w: torch.relu(F.group_norm(x, 2)) @ w, torch.empty(8, 8), torch.empty(8, 8))
    steps = [
        torchs("RowwiseMomentsCUDAKernel", 90), torchs("ComputeFusedParamsCUDAKernel", 9), torchs("elementwise_kernel", 5),
        torchs("elementwise_kernel", 7), torchs("nvjet_sm90_64x64", 50, "vendor"),
    ]  # fmt: skip
    found = times(with_measured(described(graph), steps, {}))
    assert found == {"aten.group_norm.default": None, "aten.relu.default": None, "aten.matmul.default": 0.00005}
    cut = [torchs("nvjet_sm90_64x64", 50 * MOST_STEPS, "vendor", [50] * MOST_STEPS)]
    assert set(times(with_measured(described(graph), cut, {})).values()) == {None}, "no more steps are recorded than these"


def test_a_librarys_kernel_between_a_tasks_own_is_the_tasks() -> None:
    graph = captured(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.empty(32, 64))
    regions = partition(graph)
    task = PresentTask("mlp", "mlp", tuple(regions))
    program = describe_program(graph, regions, [task], H200, "reference", replayed=False)
    steps = [
        CallStep(who="own", name="split", amount=10), torchs("nvjet_sm90_64x64", 50, "vendor"),
        CallStep(who="own", name="finish", amount=30),
    ]  # fmt: skip
    found = with_measured(program, steps, {"split": "mlp", "finish": "mlp"})
    assert [node.measured_ms for node in found.nodes] == [pytest.approx(0.00009)]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.builds(
            torchs,
            st.sampled_from(("nvjet_64", "elementwise_kernel", "softmax_warp", "splitKreduce", "unknown", "reduce_kernel")),
            st.integers(1, 1000),
        ),
        max_size=8,
    )
)
def test_no_launch_is_counted_twice(steps: list[CallStep]) -> None:
    graph = captured(lambda x, w: torch.relu(F.softmax(x, 1) @ w).sum(0), torch.empty(64, 64), torch.empty(64, 64))
    nodes: Sequence[PresentNode] = with_measured(described(graph), steps, {}).nodes
    assert sum(node.measured_ms or 0.0 for node in nodes) <= sum(step.amount for step in steps) / 1e6 + 1e-12
