"""What the roles are told of the program as it is: kept tasks, nodes in order, times, what is left; each thing once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.regions.present import PresentProgram, PresentTask, describe_program, most_from_task
from stitchcuda.engineers.attempt_history import milliseconds
from stitchcuda.engineers.present_text import MOST_NODES, MOST_STEPS, present_text, steps_text, task_claim
from stitchcuda.state import MOST_STEPS as MOST_RECORDED
from stitchcuda.state import CallStep, Region
from tests.compiler.eager import captured
from tests.compiler.test_cost import H200
from tests.nodes.test_prediction import DEVICE, GRAPH, REGIONS

COMPUTING = [name for name, region in REGIONS.items() if region.kind != "view"]
NORM = next(name for name, region in REGIONS.items() if "layer_norm" in region.title)
GELU = next(name for name, region in REGIONS.items() if "gelu" in region.title)


def described(tasks: Mapping[str, Sequence[str]], *, replayed: bool = False, claim: float | None = None) -> PresentProgram:
    kept = [PresentTask(name, name, tuple(REGIONS[region] for region in served), claim) for name, served in tasks.items()]
    return describe_program(GRAPH, tuple(REGIONS.values()), kept, DEVICE, "reference", replayed=replayed)


@settings(max_examples=40, deadline=None)
@given(owners=st.lists(st.sampled_from(("", "a", "b")), min_size=len(COMPUTING), max_size=len(COMPUTING)))
def test_each_operator_is_in_one_node_and_times_add_up(owners: list[str]) -> None:
    tasks = {
        task: [name for name, owner in zip(COMPUTING, owners, strict=True) if owner == task]
        for task in dict.fromkeys(filter(None, owners))
    }
    found = described(tasks)
    served = [region for node in found.nodes for region in node.regions if not node.task]
    torchs = [name for name, owner in zip(COMPUTING, owners, strict=True) if not owner]
    assert sorted(served) == sorted(name for name in torchs for nodes in REGIONS[name].nodes for _ in nodes)
    assert sum(node.ms for node in found.nodes) == pytest.approx(found.device_ms)
    assert all(node.ms >= node.above_ms >= 0 for node in found.nodes)
    assert {task: set(names) for task, names in tasks.items()} == {
        task: {region for node in found.nodes if node.task == task for region in node.regions} for task in tasks
    }
    assert found.ms >= found.floor.ms
    assert found.left_ms == pytest.approx(found.ms - found.floor.ms)


def test_what_a_task_can_give_is_what_its_kernel_changes() -> None:
    now = described({"norm": [NORM]})
    both = described({"norm": [NORM], "gelus": [GELU]})
    most, kernels = most_from_task(now, GRAPH, [REGIONS[GELU]], DEVICE, "reference")
    assert most == pytest.approx(now.ms - both.ms)
    assert kernels == 2, "a product is between the two"
    assert most_from_task(now, GRAPH, [REGIONS[NORM]], DEVICE, "reference")[0] == pytest.approx(0), "it is served already"


def test_at_its_best_parts_side_by_side_are_one_kernel() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        first, second = x.cumsum(0).chunk(2, -1)
        return (first.sigmoid() * first.tanh()).cumsum(0) + (second.relu() - second.exp()).cumsum(1)

    graph = captured(forward, torch.empty(64, 128))
    regions = [region for region in partition(graph) if region.kind == "fusible" and "cumsum" not in region.title]
    sides = [region for region in regions if "add" not in region.title]
    assert len(sides) == 2
    tasks = [PresentTask(region.id, "", (region,)) for region in sides]
    apart = describe_program(graph, partition(graph), tasks, H200, "reference", replayed=True)
    most, kernels = most_from_task(apart, graph, sides, H200, "reference")
    assert kernels == 1
    assert most > 0.2e-3, "a launch less"
    kept = [PresentTask("both", "", tuple(sides))]
    together = describe_program(graph, partition(graph), kept, H200, "reference", replayed=True)
    assert together.ms == pytest.approx(apart.ms), "which kernels a kept task has is not known: no launch is taken off for it"


def test_at_its_best_a_task_splits_its_products_and_a_kept_one_gets_no_credit_for_that() -> None:
    graph = captured(lambda x, w: torch.relu(x @ w), torch.empty(4096, 4096), torch.empty(4096, 4096))
    regions = partition(graph)
    fp32, split = (2 * 4096**3 / rate * 1e3 for rate in (51e12, 790e12 / 3))
    now = describe_program(graph, regions, (), H200, "reference", replayed=False)
    most, _ = most_from_task(now, graph, regions, H200, "reference")
    assert fp32 - split < most < now.left_ms, "a product on CUDA cores could never give that"
    task = PresentTask("both", "both", tuple(regions))
    kept = describe_program(graph, regions, [task], H200, "reference", replayed=False)
    assert kept.ms > fp32
    assert kept.floor.ms == pytest.approx(split)
    measured = 2 * split                   # the program does split them, which the model does not know
    assert f"at most {milliseconds(split)} of a call" in present_text(kept, H200, measured, 3.0)


def test_a_claim_is_shown_and_counts_for_nothing() -> None:
    plain, claimed = described({"norm": [NORM]}), described({"norm": [NORM]}, claim=99.0)
    assert (plain.ms, plain.device_ms, plain.nodes) == (claimed.ms, claimed.device_ms, claimed.nodes)
    text = present_text(claimed, DEVICE, None, None)
    (line,) = (line for line in text.splitlines() if line.startswith("- norm: "))
    assert "by the cost model, claimed 99 ms" in line
    assert "claimed" not in present_text(plain, DEVICE, None, None)


def test_nodes_stand_in_order_with_their_figures() -> None:
    text = present_text(described({"both-gelus": [GELU], "norm": [NORM]}), DEVICE, None, None)
    nodes = [line for line in text.splitlines() if " above it" in line]
    assert [line.split(" [")[0] for line in nodes] == [
        "- own kernel of both-gelus", "- aten.linear.default", "- own kernel of norm",
    ]  # fmt: skip
    assert "× 2 → gelu [512, 256] float32: 2 launches, 2.1 MB" in nodes[0]
    assert "(nothing was timed)" in text
    assert "What is left: at most " in text


def test_a_kernel_stands_after_what_it_reads() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        turned = torch.cat((-x[:, 32:], x[:, :32]), 1)
        return y * y + turned.cumsum(1) * turned

    graph = captured(lambda x, y: y * x + forward(x, y), *(torch.empty(64, 64) for _ in range(2)))
    regions = {region.title: region for region in partition(graph) if region.kind != "view"}
    (summed,) = (region for title, region in regions.items() if "add" in title)
    turned, scanned = regions["neg + cat"], regions["cumsum"]
    assert summed.id < turned.id < scanned.id, "the sum begins first"

    def order(*tasks: tuple[Region, ...]) -> list[tuple[str, ...]]:
        kept = [PresentTask(f"task-{number}", "", served) for number, served in enumerate(tasks)]
        found = describe_program(graph, tuple(regions.values()), kept, DEVICE, "reference", replayed=False)
        return [node.regions for node in found.nodes]

    assert order((summed,), (turned,)) == [(turned.id,), (scanned.id,), (summed.id,)]
    both = order((summed, turned))         # one kernel cannot do both: what it cannot stand after is behind it
    assert set(both[0]) == {summed.id, turned.id}
    assert both[1:] == [(scanned.id,)]


def test_a_measured_program_says_so() -> None:
    text = present_text(described({"norm": [NORM]}, replayed=True), DEVICE, 0.02, 2.5)
    assert "A call takes 0.02 ms measured, 2.50× over eager beside it (0.05 ms); by the cost model" in text
    assert "replayed as a CUDA graph" in text


def test_what_a_call_ran_shows_tensors_as_they_are_passed() -> None:
    own = CallStep(who="own", name="gelu", tensors="[8, 4] float32 strides [1, 8]; [8, 4] float32", amount=256, times=2)
    library = CallStep(who="vendor", name="addmm", tensors="[8, 4] float32", amount=5000)
    text = steps_text((own, library), None)
    assert "- own gelu × 2 ([8, 4] float32 strides [1, 8]; [8, 4] float32): 256 B" in text
    assert "- library addmm → [8, 4] float32: 5 kB" in text
    assert "library addmm → [8, 4] float32: 5.0 µs" in steps_text((library,), "timed")
    others = [own.model_copy(update={"name": "".join(name)}) for name in itertools.permutations("gelu")] * 2
    many = steps_text(others[: MOST_STEPS + 3], None).splitlines()
    assert many[-1] == "- and 3 more lines"
    assert steps_text((), None) == ""


def test_many_nodes_are_cut_to_those_that_take_most_time() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        for size in range(MOST_NODES + 6):
            x = torch.cumsum(F.pad(x, (0, 64 * (size + 1))), 0)
        return x

    graph = captured(forward, torch.empty(64, 64))
    found = describe_program(graph, partition(graph), (), DEVICE, "reference", replayed=False)
    text = present_text(found, DEVICE, None, None)
    assert sum(" above it" in line for line in text.splitlines()) == MOST_NODES
    assert " smaller nodes: " in text


def test_whose_number_it_is() -> None:
    assert task_claim(0.1, claimed=True) == "the planner claims that it saves 0.1 ms"
    assert task_claim(0.1, claimed=False) == "the cost model predicts that it saves 0.1 ms"


def test_steps_that_repeat_are_folded_with_their_sum() -> None:
    first = CallStep(who="framework", name="zeros", tensors="[8, 4] float32", amount=128)
    step = [CallStep(who="framework", name=name, tensors="[8, 4] float32", amount=1000) for name in ("cat", "tanh", "addmm")]
    last = CallStep(who="framework", name="stack", tensors="[256, 8, 4] float32", amount=32768)
    lines = steps_text([first, *step * 99, last], "simulated").splitlines()[1:]
    assert [line.split()[2] for line in lines] == ["zeros", "cat", "tanh", "addmm", "3", "stack"]
    assert lines[4] == "- the 3 above × 99, one after another: 297 kB together"
    timed = [each.model_copy(update={"amount": 1000 + at}) for at, each in enumerate(step * 4)]
    assert steps_text(timed, "timed").endswith("- the 3 above × 4, one after another: 12.1 µs together"), "times always differ"
    long = steps_text([first, *step * 200][:MOST_RECORDED], "simulated").splitlines()
    assert long[-1] == "- (of a call no more than its first 300 steps are recorded)"
    assert "recorded" not in "".join(lines)
