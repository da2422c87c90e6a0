"""A small session's records, made by hand: gelu then layer_norm over [8, 64], for tests of prompts and engineers."""

from __future__ import annotations

import string

from stitchcuda.compiler.capture.op_graph import Node, OpGraph, StateTensor, ValueRef
from stitchcuda.compiler.regions.present import describe_program
from stitchcuda.engineers import Assignment, Brief, Files
from stitchcuda.state import (
    Attempt,
    Baseline,
    BuildResult,
    CheckResult,
    DeviceFacts,
    Evidence,
    OutputError,
    Plan,
    Region,
    Settings,
    Task,
    TensorSpec,
)

DEVICE = DeviceFacts(
    name="NVIDIA H200",
    target="sim",
    arch="sm_90a",
    sm_count=132,
    bandwidth_gbs=4300.0,
    tflops={"bfloat16": 790.0},
    launch_us=4.0,
)
LONG = "\n".join(f"# {string.ascii_letters[number % 52] * (1 + number // 52)}" for number in range(1500))
"""A reference that does not fit, whose lines differ by more than numbers."""
REFERENCE = "class Model(torch.nn.Module):\n    # the reference's own words\n    ..."
PROGRAM: Files = {"model_new.py": "class ModelNew: ...\n", "program.json": '{"format": 1, "tasks": []}\n'}


def spec(name: str, *shape: int) -> TensorSpec:
    strides = tuple(1 if at == len(shape) - 1 else shape[-1] for at in range(len(shape)))
    return TensorSpec(name=name, shape=shape, dtype="float32", strides=strides)


GRAPH = OpGraph(
    inputs=(spec("x", 8, 64),),
    call={"args": [ValueRef(value="x")], "kwargs": {}},
    state=(StateTensor(spec=spec("p_weight", 64), key="norm.weight", kind="parameter"),),
    nodes=(
        Node(
            name="gelu",
            op="aten.gelu.default",
            args=(ValueRef(value="x"),),
            kwargs={"approximate": "tanh"},
            outputs=(spec("gelu", 8, 64),),
        ),
        Node(
            name="layer_norm",
            op="aten.layer_norm.default",
            args=(ValueRef(value="gelu"), (64,), ValueRef(value="p_weight")),
            outputs=(spec("layer_norm", 8, 64),),
            scope="norm",
        ),
    ),
    outputs=ValueRef(value="layer_norm"),
)
REGION = Region(
    id="r01",
    title="gelu + layer_norm",
    kind="fusible",
    operators=("aten.gelu.default", "aten.layer_norm.default"),
    nodes=(("gelu", "layer_norm"),),
    scopes=("norm",),
    inputs=(spec("x", 8, 64), spec("p_weight", 64)),
    outputs=(spec("layer_norm", 8, 64),),
    launches=2,
    eager_bytes=8448,
    fused_bytes=4352,
    flops=12000,
)
TASK = Task(
    id="r01",
    kind="region",
    title="fuse gelu into layer_norm",
    regions=("r01",),
    predicted_ms=0.005,
    why="two launches where one is enough",
)
PLAN = Plan(version=1, tasks=(TASK,), summary="one region")
ATTEMPT = Attempt(
    id="a1",
    parent=None,
    base=None,
    task="r01",
    plan_version=1,
    ordinal=0,
    program="0",
    evidence="0",
    review="0",
    tier="simulated",
    built=True,
    correct=False,
    kept=False,
    route="code",
    route_reason="not correct",
    predicted_ms=0.005,
    diagnosis="output 0 is wrong",
)
NOT_BUILT = Evidence(build=BuildResult(ok=False, log='kernels/r01.cu(7): error: identifier "xs" is undefined'))
WRONG = Evidence(
    build=BuildResult(ok=True, seconds=2.0),
    check=CheckResult(
        ok=False,
        tier="simulated",
        seeds=3,
        outputs=(
            OutputError(
                name="output 0",
                max_error=0.5,
                max_bound=1e-5,
                norm_error=4.0,
                norm_bound=1e-4,
                ok=False,
                note="worst at [3, 63]",
            ),
        ),
        reasons=("output 0 differs from the reference",),
    ),
    tier="simulated",
)
RIGHT = Evidence(
    build=BuildResult(ok=True),
    check=CheckResult(ok=True, tier="simulated", seeds=3, own_share=0.9, framework_share=0.1, launches=1),
    tier="simulated",
)


def brief(settings: Settings | None = None, **more: object) -> Brief:
    values: dict[str, object] = {
        "present": describe_program(GRAPH, (REGION,), (), DEVICE, "reference", replayed=False),
        "settings": settings or Settings(),
        "reference": REFERENCE,
        "graph": GRAPH,
        "regions": (REGION,),
        "baseline": Baseline(capture="c" * 64, regions="d" * 64, device=DEVICE, predicted_ms=0.02, floor_ms=0.002),
    }
    return Brief(**(values | more))  # type: ignore[arg-type]


def assignment(of: Brief | None = None, /, **more: object) -> Assignment:
    values: dict[str, object] = {
        "brief": of or brief(),
        "plan": PLAN,
        "task": TASK,
        "ordinal": 0,
        "program": PROGRAM,
        "kept": (),
    }
    return Assignment(**(values | more))  # type: ignore[arg-type]
