"""A session small enough for many tests: in-process tools and an engineer that both go by words in the program's text.

The graph, the nodes, the store, the ledger and the checkpoints are the real ones. `Script` says, task by task, what each draft
is: "build error", "wrong", or "saves 0.2" (milliseconds, of a reference that takes 1 ms).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from stitchcuda.compiler.capture.op_graph import Node, OpGraph, ValueRef
from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.graph.opening import open_record
from stitchcuda.sessions.session import Session
from stitchcuda.state import (
    BuildResult,
    CheckResult,
    DeviceFacts,
    Evidence,
    Plan,
    ProfileResult,
    Review,
    SanitizerResult,
    Task,
    TensorSpec,
    Tier,
    TimingResult,
)
from stitchcuda.store import Workspace
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.reference.baseline_times import BaselineTimes

SIM = DeviceFacts(
    name="NVIDIA H200", target="sim", arch="sm_90a", sm_count=132, bandwidth_gbs=4800, tflops={"float32": 67}, launch_us=5
)
X = TensorSpec(name="x", shape=(64, 256), dtype="float32", strides=(256, 1))
Y = X.model_copy(update={"name": "y"})
GRAPH = OpGraph(
    inputs=(X,),
    call={"args": (ValueRef(value="x"),), "kwargs": {}, "names": ("x",)},
    state=(),
    nodes=(Node(name="relu", op="aten.relu.default", args=(ValueRef(value="x"),), outputs=(Y,)),),
    outputs=ValueRef(value="y"),
)
REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
Script = dict[str, list[str]]


class TinyHands:
    """Tools that read the program's drafts.txt: one line per stitched draft, such as "a saves 0.2"."""

    def __init__(self, device: DeviceFacts = SIM, *, timed: bool = False) -> None:
        self.facts = device
        self.timed = timed
        self.before: Callable[[str], None] = lambda tool: None
        self.calls: list[str] = []

    def device(self) -> DeviceFacts:
        return self.facts

    def study(self) -> ReferenceFacts:
        self._called("study")
        return ReferenceFacts(capture=GRAPH.model_dump_json(), eager_ms=1.0 if self.timed else None)

    def build(self, program: Path) -> BuildResult:
        self._called("build")
        broken = "build error" in _drafts(program)
        return BuildResult(ok=not broken, log=f"{program}/kernels/a.cu(7): error: expected a ';'" if broken else "")

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        return [self.build(program) for program in programs]

    def compile(self, program: Path) -> BuildResult:
        return self.build(program)

    def check(self, program: Path, seeds: int) -> CheckResult:
        self._called("check")
        wrong = "wrong" in _drafts(program)
        tier: Tier = "timed" if self.timed else "simulated"
        return CheckResult(ok=not wrong, tier=tier, seeds=seeds, reasons=("y is off by 0.25",) if wrong else (), own_share=0.5)

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        return [self.check(program, seeds) for program in programs]

    def verify(self, program: Path, seeds: int) -> CheckResult:
        self._called("verify")
        found = self.check(program, seeds)
        return found.model_copy(update={"ok": found.ok and "fragile" not in _drafts(program)})

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        if not self.timed:
            return None
        self._called("time")
        before, after = _milliseconds(previous), _milliseconds(program)
        saving = before - after
        return TimingResult(
            reference_ms=1.0, previous_ms=before, program_ms=after, saving_ms=saving, saving_low_ms=saving - 0.005,
            saving_high_ms=saving + 0.005, samples=10,
        )  # fmt: skip

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        return ProfileResult(tool="nsys", skipped="there is no GPU here"), None

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        return ProfileResult(tool="ncu", skipped="there is no GPU here"), None

    def sanitize(self, program: Path) -> SanitizerResult:
        return SanitizerResult(skipped=("memcheck: there is no GPU here",))

    def baselines(self) -> BaselineTimes:
        return BaselineTimes(reference="0" * 64, name="tiny.py", device="", skipped="there is no GPU here")

    def close(self) -> None:
        self._called("close")

    def _called(self, tool: str) -> None:
        self.before(tool)
        self.calls.append(tool)


class ScriptedEngineer:
    """Writes what its script says; every call is recorded."""

    name = "script"
    reads_docs = False
    reads_profiles = True

    def __init__(self, script: Script, *, predicted_ms: float = 0.2) -> None:
        self.script = script
        self.predicted_ms = predicted_ms
        self.briefs: list[Brief] = []
        self.assignments: list[Assignment] = []

    def plan(self, brief: Brief) -> Plan:
        self.briefs.append(brief)
        tasks = [Task(id=name, kind="region", title=f"task {name}", predicted_ms=self.predicted_ms) for name in self.script]
        return Plan(version=0, tasks=tuple(tasks))

    def write(self, assignment: Assignment) -> Draft:
        self.assignments.append(assignment)
        drafts = self.script[assignment.task.id]
        if assignment.ordinal >= len(drafts):
            return Draft(files={}, exhausted="the script ends here")
        line = f"{assignment.task.id} {drafts[assignment.ordinal]}\n"
        files = dict(assignment.program)
        lines = str(files.get("drafts.txt", "")).splitlines(keepends=True)
        others = [found for found in lines if not found.startswith(f"{assignment.task.id} ")]
        return Draft(files=files | {"drafts.txt": "".join([*others, line])}, note=line)

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        ok = bool(evidence.check and evidence.check.ok)
        return Review(bottleneck="none", suggestion="none", route="next_task" if ok else "code")


def tiny_session(folder: Path, name: str = "tiny", **settings: object) -> Session:
    """A new session that has not run yet, on the simulator unless told otherwise."""
    reference = folder / "reference.py"
    reference.write_text(REFERENCE)
    home = Workspace(folder / "workspace")
    return Session(home, open_record(home, reference, None, name=name, device="sim", settings=dict(settings)))


def _drafts(program: Path) -> str:
    """What drafts.txt says, and kernels/drafts.cu, which an agent's program may have."""
    paths = (program / "drafts.txt", program / "kernels/drafts.cu")
    return "".join(path.read_text() for path in paths if path.exists())


def _milliseconds(program: Path) -> float:
    return 1.0 - sum(float(saved) for saved in re.findall(r"saves (-?[\d.]+)", _drafts(program)))
