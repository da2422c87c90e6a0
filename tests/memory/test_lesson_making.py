"""From a session's records to a lesson: situation, prediction, measurement, and why a task was refused."""

from __future__ import annotations

from typing import Any

import pytest

from stitchcuda.memory import Situation, Tensor, make_lesson, make_situation
from stitchcuda.memory.lesson import Lesson
from stitchcuda.state import (
    Attempt,
    Baseline,
    BuildResult,
    CheckResult,
    DeviceFacts,
    Evidence,
    Region,
    Review,
    Settings,
    Task,
    TensorSpec,
    TimingResult,
)

DEVICE = DeviceFacts(
    name="NVIDIA H200", target="cuda", arch="sm_90a", torch="2.13.0", sm_count=132, bandwidth_gbs=4e3, tflops={}, launch_us=4.0
)  # fmt: skip
BASELINE = Baseline(capture="c" * 64, regions="d" * 64, device=DEVICE, eager_ms=0.5, predicted_ms=0.4, floor_ms=0.1)
SETTINGS = Settings(target="cuda")
TASK = Task(id="r01", kind="region", title="add + norm", regions=("r01",), predicted_ms=0.05, strategy="one block per row")
CORRECT = CheckResult(ok=True, tier="timed", seeds=3)
TIMING = TimingResult(
    reference_ms=0.5, previous_ms=0.3, program_ms=0.26, saving_ms=0.04, saving_low_ms=0.03, saving_high_ms=0.05, samples=20
)
REVIEW = Review(bottleneck="bound by memory", suggestion="Go on.", route="next_task")


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype="float32", strides=tuple(1 for _ in shape))


def region(name: str, kind: Any, operators: tuple[str, ...], instances: int, *tensors: TensorSpec) -> Region:
    return Region(
        id=name, title=name, kind=kind, operators=operators, nodes=(("n",),) * instances, scopes=("",) * instances,
        inputs=tensors[:-1], outputs=tensors[-1:], launches=1, eager_bytes=1, fused_bytes=1, flops=1,
    )  # fmt: skip


W, X, Y, Z = spec("w", 512), spec("x", 64, 512), spec("y", 64, 512), spec("z", 64, 2048)
NORM = region("r01", "fusible", ("aten.add.Tensor", "aten.layer_norm.default"), 12, W, X, Y)
LINEAR = region("r02", "library", ("aten.linear.default",), 24, Y, Z)
VIEW = region("r03", "view", ("aten.view.default",), 12, Z, spec("v", 8, 8, 2048))
REGIONS = (NORM, LINEAR, VIEW)


def attempt(**more: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": "a1", "parent": None, "base": None, "task": "r01", "plan_version": 1, "ordinal": 0, "program": "b" * 64,
        "evidence": "e" * 64, "review": "f" * 64, "tier": "timed", "built": True, "correct": True, "kept": True,
        "route": "next_task", "route_reason": "saves 0.04 ms", "predicted_ms": 0.05, "saving_ms": 0.04,
        "note": "Rows stay in registers.",
    }  # fmt: skip
    return Attempt(**(values | more))


def made(task: Task = TASK, evidence: Evidence | None = None, **more: Any) -> Lesson:
    evidence = evidence or Evidence(build=BuildResult(ok=True), check=CORRECT, timing=TIMING, tier="timed")
    given = {"regions": REGIONS, "baseline": BASELINE, "settings": SETTINGS}
    return make_lesson("s", task, attempt(**more), evidence, REVIEW, **given)  # type: ignore[arg-type]


def test_a_task_that_was_kept() -> None:
    lesson = made()
    assert lesson.situation == Situation(
        operators=(("aten.add.Tensor", 1), ("aten.layer_norm.default", 1)),
        tensors=tuple(Tensor(shape=shape, dtype="float32") for shape in ((64, 512), (64, 512), (512,))),
        bottleneck="bound by memory",
        device="NVIDIA H200",
        arch="sm_90a",
        precision="reference",
        torch="2.13.0",
    )
    assert (lesson.kind, lesson.title, lesson.strategy, lesson.feature) == ("region", "add + norm", "one block per row", "")
    assert (lesson.predicted_ms, lesson.saving_ms, lesson.saving_low_ms, lesson.saving_high_ms) == (0.05, 0.04, 0.03, 0.05)
    assert lesson.runtime_ms == 0.3, "of the program before it"
    assert (lesson.outcome, lesson.reason, lesson.tier, lesson.note) == ("accepted", "", "timed", "Rows stay in registers.")
    assert (lesson.session, lesson.attempt, lesson.evidence, lesson.program) == ("s", "a1", "e" * 64, "b" * 64)


def test_why_a_task_was_refused() -> None:
    refused: dict[str, dict[str, Any]] = {
        "does not pay": {"saving_ms": -0.01},
        "not correct: output 0 is off": {"correct": False, "diagnosis": "output 0 is off", "saving_ms": None},
        "not built: error: no xs": {"built": False, "correct": False, "diagnosis": "error: no xs", "saving_ms": None},
        "not kept: correct but not timed": {"saving_ms": None, "route_reason": "not kept: correct but not timed"},
    }
    assert [made(kept=False, **how).reason for how in refused.values()] == list(refused)
    assert {made(kept=False, **how).outcome for how in refused.values()} == {"refuted"}


def test_without_a_gpu_nothing_is_claimed() -> None:
    evidence = Evidence(build=BuildResult(ok=True), check=CORRECT, tier="simulated")
    lesson = made(evidence=evidence, tier="simulated", saving_ms=None)
    assert (lesson.saving_ms, lesson.saving_low_ms, lesson.saving_high_ms) == (None, None, None)
    assert lesson.runtime_ms == 0.5
    assert lesson.outcome == "accepted"


def test_a_host_side_task_is_about_the_whole_program() -> None:
    task = Task(id="host:cuda_graph", kind="host", title="CUDA graph replay", strategy="capture once")
    lesson = made(task)
    assert lesson.feature == "cuda_graph"
    assert lesson.situation.operators == (("aten.add.Tensor", 1), ("aten.layer_norm.default", 1), ("aten.linear.default", 2))
    assert lesson.situation.tensors[0].shape == (64, 2048)


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_figures_that_are_none_spoil_no_lesson(figure: float) -> None:
    timing = TIMING.model_copy(update={"saving_ms": figure, "previous_ms": figure})
    lesson = made(TASK.model_copy(update={"predicted_ms": figure}), Evidence(build=BuildResult(ok=True), timing=timing))
    assert (lesson.predicted_ms, lesson.saving_ms, lesson.runtime_ms) == (0.0, None, None)


def test_a_program_of_many_operators_and_tensors_fits() -> None:
    many = [region(f"r{n}", "library", (f"aten.op{n}.default",), 1 + n % 3, X, spec("y", n + 1)) for n in range(100)]
    situation = make_situation(many, BASELINE, SETTINGS)
    assert len(situation.operators) == 64
    assert {count for _, count in situation.operators} == {2, 3}, "the rarest are left out"
    assert len(situation.tensors) == 32
    assert situation.tensors[0].shape == (64, 512)
    assert make_situation((), BASELINE, SETTINGS).operators == ()
