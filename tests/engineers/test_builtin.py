"""The built-in engineer on a real captured program: what it plans, what it writes, how it reads evidence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.codegen.emit import count_variants
from stitchcuda.compiler.lower.lower import lower
from stitchcuda.compiler.printing.program import read_manifest, write_program
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates.rewriting import CHANNELS_LAST, SPLIT_PRODUCTS, rewrite
from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment, Brief, Draft, Files
from stitchcuda.engineers.builtin import CUDA_GRAPH, BuiltinEngineer
from stitchcuda.state import (
    Attempt,
    Baseline,
    BuildResult,
    CheckResult,
    DeviceFacts,
    Evidence,
    OutputError,
    Settings,
    Task,
    TimingResult,
)

DEVICE = DeviceFacts(
    name="NVIDIA H200",
    target="sim",
    arch="sm_90a",
    sm_count=132,
    bandwidth_gbs=4300.0,
    tflops={"bfloat16": 790.0, "tf32": 385.0, "float32": 51.0},
    launch_us=4.5,
)
ENGINEER = BuiltinEngineer()


class Model(nn.Module):
    """Two gated blocks with norms: three kinds of regions, each twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(64) for _ in range(2)])
        self.ups = nn.ModuleList([nn.Linear(64, 256) for _ in range(2)])
        self.downs = nn.ModuleList([nn.Linear(128, 64) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            a, b = up(norm(x)).chunk(2, -1)
            x = x + down(F.silu(a) * b)
        return x.softmax(-1)


@cache
def brief() -> Brief:
    graph = capture(Model(), (torch.randn(4, 16, 64),), {})
    return brief_of(graph)


def brief_of(graph: OpGraph) -> Brief:
    regions = partition(graph)
    baseline = Baseline(
        capture="",
        regions="",
        device=DEVICE,
        predicted_ms=cost.eager_ms(graph, regions, DEVICE),
        floor_ms=cost.floor_ms(graph, DEVICE),
        opaque=graph.opaque,
    )
    return Brief(settings=Settings(), reference="# the reference", graph=graph, regions=regions, baseline=baseline)


def first_program(brief: Brief) -> Files:
    return write_program(brief.graph, reference=brief.reference, name="example")


def assignment(
    task: Task, program: Files | None = None, kept: tuple[str, ...] = (), ordinal: int = 0, evidence: Evidence | None = None
) -> Assignment:
    given = brief()
    start = first_program(given) if program is None else program
    return Assignment(
        brief=given, plan=ENGINEER.plan(given), task=task, ordinal=ordinal, program=start, kept=kept, evidence=evidence
    )


def region_tasks() -> list[Task]:
    return [task for task in ENGINEER.plan(brief()).tasks if task.kind == "region"]


def attempt(task: str, ordinal: int, **changes: object) -> Attempt:
    fields: dict[str, object] = {
        "id": f"{task}-{ordinal}", "parent": None, "base": None, "task": task, "plan_version": 1, "ordinal": ordinal,
        "program": "p",
        "evidence": "e", "review": "r", "tier": None,
        "built": False, "correct": False, "kept": False, "route": "code",
        "route_reason": "", "predicted_ms": 0.0,
    }  # fmt: skip
    return Attempt.model_validate(fields | changes)


def test_plan_starts_with_the_cuda_graph_and_orders_regions_by_saving() -> None:
    plan = ENGINEER.plan(brief())
    assert plan.tasks[0].id == CUDA_GRAPH
    regions = plan.tasks[1:]
    savings = [task.predicted_ms for task in regions]
    assert savings[0] == max(savings) > 0
    assert {task.title for task in regions} == {
        "layer_norm",
        "silu + mul",
        "residual add + layer_norm",
        "residual add + softmax",
    }
    assert all(re.search("launch becomes|launches become", task.why) and task.strategy for task in regions)
    assert sum(task.predicted_ms for task in plan.tasks) < brief().baseline.predicted_ms
    assert plan == ENGINEER.plan(brief()), "deterministic"


def test_plan_for_an_opaque_program_has_no_tasks_and_says_so() -> None:
    plan = ENGINEER.plan(brief_of(OpGraph(inputs=(), call={}, state=(), nodes=(), outputs=None, opaque="it branches on data.")))
    assert plan.tasks == ()
    assert "cannot" in plan.summary
    assert "it branches on data" in plan.summary


def test_no_cuda_graph_where_the_host_waits() -> None:
    given = brief()
    waiting = Node(name="n", op="aten.item.default", args=(), outputs=())
    graph = given.graph.model_copy(update={"nodes": (*given.graph.nodes, waiting)})
    assert CUDA_GRAPH not in {task.id for task in ENGINEER.plan(brief_of(graph)).tasks}


def test_plan_leaves_out_what_is_kept_or_exhausted() -> None:
    given = brief()
    first, second = region_tasks()[:2]
    region = next(region for region in given.regions if region.id == second.id)
    tries = tuple(attempt(second.id, i) for i in range(count_variants(lower(given.graph, region))))
    tries += (attempt(CUDA_GRAPH, 0),)
    again = ENGINEER.plan(
        Brief(given.settings, given.reference, given.graph, given.regions, given.baseline, tries, (), (first.id,))
    )
    assert {first.id, second.id, CUDA_GRAPH}.isdisjoint(task.id for task in again.tasks)
    assert "tried in every way" in again.summary


def test_write_stitches_one_task_after_another_and_keeps_what_was_accepted() -> None:
    plan = ENGINEER.plan(brief())
    program = first_program(brief())
    kept: tuple[str, ...] = ()
    for task in plan.tasks:
        ordinal = 1 if task is plan.tasks[1] else 0
        draft = ENGINEER.write(assignment(task, program, kept, ordinal))
        assert not draft.exhausted
        assert draft == ENGINEER.write(assignment(task, program, kept, ordinal)), "deterministic"
        program, kept = draft.files, (*kept, task.id)
        assert set(read_manifest(program)["tasks"]) == set(kept)
    manifest = read_manifest(program)
    assert manifest["name"] == "example"
    strategies = {region["id"]: kernel for region in manifest["regions"] for kernel in [region["kernel"]]}
    kernel = next(kernel for kernel in manifest["kernels"] if kernel["name"] == strategies[plan.tasks[1].id])
    assert kernel["strategy"].startswith("variant 1:"), "a kept task keeps the variant that was accepted"
    compile(program["model_new.py"], "model_new.py", "exec")
    assert json.loads(program["program.json"])["host"] == ["cuda_graph"]


def test_every_variant_is_another_program_and_then_it_is_exhausted() -> None:
    task = region_tasks()[0]
    region = next(region for region in brief().regions if region.id == task.id)
    count = count_variants(lower(brief().graph, region))
    sources = set()
    for ordinal in range(count):
        files = ENGINEER.write(assignment(task, ordinal=ordinal)).files
        sources.add("".join(str(text) for path, text in sorted(files.items()) if path.endswith(".cu")))
    assert len(sources) == count
    over = ENGINEER.write(assignment(task, ordinal=count))
    assert over.exhausted == f"All {counted(count, 'variant')} of this kernel were tried."
    assert over.files == {}


def test_a_draft_that_a_person_changed_is_none_of_the_variants() -> None:
    """What was shown and replaced is offered again, should the replacement fail."""
    replay, region = ENGINEER.plan(brief()).tasks[0], region_tasks()[0]
    for task in (replay, region):
        changed = attempt(task.id, 0, edited=True)
        given = replace(assignment(task, ordinal=1), brief=replace(brief(), history=(changed,)))
        assert ENGINEER.write(given).files == ENGINEER.write(assignment(task)).files
        own = attempt(task.id, 1)
        after = replace(given, ordinal=2, brief=replace(brief(), history=(changed, own)))
        assert ENGINEER.write(after).files != ENGINEER.write(given).files
    assert replay in ENGINEER.plan(replace(brief(), history=(attempt(replay.id, 0, edited=True),))).tasks


@pytest.mark.parametrize(
    "task",
    [
        Task(id="r99", kind="region", title="unknown", regions=("r99",)),
        Task(id="host:streams", kind="host", title="streams"),
        Task(id="r01", kind="region", title="linear", regions=("r01",)),
    ],
    ids=lambda task: task.title,
)
def test_write_says_what_it_cannot(task: Task) -> None:
    assert ENGINEER.write(assignment(task)).exhausted


def test_the_note_names_the_failure_before() -> None:
    task = region_tasks()[0]
    failed = Evidence(build=BuildResult(ok=True), check=CheckResult(ok=False, tier="simulated", reasons=("output is off",)))
    assert "output is off" in ENGINEER.write(assignment(task, ordinal=1, evidence=failed)).note


def test_under_strict_it_plans_only_what_strict_can_accept() -> None:
    strict = replace(brief(), settings=Settings(policy="strict"))
    plan = ENGINEER.plan(strict)
    assert plan.tasks == ()
    assert plan.summary.startswith("the built-in engineer leaves ")
    assert plan.summary.endswith(" to torch, which policy strict refuses")
    assert "linear" in plan.summary
    start = ENGINEER.plan(replace(strict, settings=Settings(policy="strict", model="openai:x")))
    assert start.tasks, "a chat model goes on from there"
    assert CUDA_GRAPH not in [task.id for task in start.tasks], "strict counts the copies around a graph"
    fusible = replace(strict, regions=tuple(region for region in brief().regions if region.kind != "library"))
    assert {task.id for task in ENGINEER.plan(fusible).tasks} == {r.id for r in fusible.regions if r.kind == "fusible"}


BUILT = BuildResult(ok=True)
RIGHT = CheckResult(ok=True, tier="timed", own_share=0.4)


def timing(saving: float) -> TimingResult:
    return TimingResult(
        reference_ms=1.0, previous_ms=1.0, program_ms=1.0 - saving, saving_ms=saving, saving_low_ms=saving * 0.9,
        saving_high_ms=saving * 1.1, samples=50,
    )  # fmt: skip


def test_review_quotes_the_first_compiler_error() -> None:
    log = "In file included from x\nkernels/a.cu(12): error: identifier 'foo' is undefined\nmore"
    review = ENGINEER.review(assignment(region_tasks()[0]), Draft({}), Evidence(build=BuildResult(ok=False, log=log)))
    assert "kernels/a.cu(12): error: identifier 'foo' is undefined" in review.bottleneck
    assert review.route == "code"
    assert "next variant" in review.suggestion


def test_review_names_the_worst_output() -> None:
    outputs = (
        OutputError(name="a", max_error=2e-6, max_bound=1e-6, norm_error=0, norm_bound=1, ok=False),
        OutputError(name="b", max_error=0.5, max_bound=1e-6, norm_error=9, norm_bound=1, ok=False, note="at [0, 3]"),
        OutputError(name="c", max_error=0.9, max_bound=1.0, norm_error=0, norm_bound=1, ok=True),
    )
    wrong = Evidence(build=BUILT, check=CheckResult(ok=False, tier="simulated", outputs=outputs))
    review = ENGINEER.review(assignment(region_tasks()[0]), Draft({}), wrong)
    assert "b is off by 0.5 where 1e-06 is allowed (at [0, 3])" in review.bottleneck


def test_review_on_the_simulator_goes_on() -> None:
    right = Evidence(build=BUILT, check=CheckResult(ok=True, tier="simulated", own_share=0.4), tier="simulated")
    review = ENGINEER.review(assignment(region_tasks()[0]), Draft({}), right)
    assert review.route == "next_task"
    assert "40%" in review.bottleneck


def test_review_of_times_compares_with_the_prediction() -> None:
    task = region_tasks()[0]
    reached = ENGINEER.review(assignment(task), Draft({}), Evidence(build=BUILT, check=RIGHT, timing=timing(task.predicted_ms)))
    assert reached.route == "next_task"
    missed = Evidence(build=BUILT, check=RIGHT, timing=timing(task.predicted_ms * 0.1))
    review = ENGINEER.review(assignment(task), Draft({}), missed)
    assert review.route == "code"
    assert "launch latency" in review.bottleneck, "64 rows of 64 are nothing for a GPU"
    region = next(region for region in brief().regions if region.id == task.id)
    last = count_variants(lower(brief().graph, region)) - 1
    assert ENGINEER.review(assignment(task, ordinal=last), Draft({}), missed).route == "next_task"


def test_products_that_gain_are_split_first_and_all_regions_stitched_at_once() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
        graph = capture(module, (torch.randn(8192, 512),), {})
    known = brief_of(graph)
    device = DEVICE.model_copy(update={"tflops": {**DEVICE.tflops, "float16": 790.0}})
    given = replace(known, baseline=known.baseline.model_copy(update={"device": device}))
    plan = ENGINEER.plan(given)
    task = next(task for task in plan.tasks if task.kind == "graph")
    assert task.id == SPLIT_PRODUCTS
    assert task.regions == ("s00", "s07", "s14")
    assert task.predicted_ms > 0.5 * given.baseline.predicted_ms
    assert (said := re.search(r"predicted to save ([\d.]+) of ([\d.]+) ms", plan.summary))
    assert round(task.predicted_ms, 3) <= float(said[1]) < float(said[2]), "a byte is saved once"
    assignment = Assignment(brief=given, plan=plan, task=task, ordinal=0, program=write_program(graph), kept=())
    files = ENGINEER.write(assignment).files
    assert str(files["model_new.py"]).count("torch.mm(") == 2
    assert {region["id"] for region in read_manifest(files)["regions"]} == set(task.regions)
    assert ENGINEER.write(replace(assignment, ordinal=1)).exhausted
    # The program is kept: its graph is the session's now, and all its regions have kernels.
    after = rewrite(graph, SPLIT_PRODUCTS, device)
    later = replace(given, graph=after, regions=partition(after), kept=(SPLIT_PRODUCTS,), program=files)
    assert [task.id for task in ENGINEER.plan(later).tasks] == [CUDA_GRAPH]
    exact = replace(given, settings=given.settings.model_copy(update={"precision": "tf32"}))
    assert all(task.kind != "graph" for task in ENGINEER.plan(exact).tasks)


def test_on_a_gpu_convolutions_are_carried_in_channels_last_order() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1)).eval()
        given = brief_of(capture(module, (torch.randn(4, 8, 32, 32),), {}))
    assert all(task.kind != "graph" for task in ENGINEER.plan(given).tasks)
    there = replace(given, settings=given.settings.model_copy(update={"target": "cuda"}))
    plan = ENGINEER.plan(there)
    task = next(task for task in plan.tasks if task.kind == "graph")
    assert task.id == CHANNELS_LAST
    assignment = Assignment(brief=there, plan=plan, task=task, ordinal=0, program=write_program(there.graph), kept=())
    text = str(ENGINEER.write(assignment).files["model_new.py"])
    assert text.count("F.conv2d(") == 2
    assert "weight_last, None" in text
