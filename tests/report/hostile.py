"""What models, compilers and programs may write to be taken for something else, wherever a report shows text of theirs."""

from __future__ import annotations

from pathlib import Path

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.sessions.session import Session
from stitchcuda.state import BuildResult, CheckResult, Evidence, OutputError, Plan, ProfileResult, Review, Task
from stitchcuda.tools.profile.kernel_profile import KernelProfile, Occupancy, Roofline
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from tests.graph.tiny import ScriptedEngineer, TinyHands, tiny_session
from tests.sessions.test_session import H200
from tests.tools.profiles import profile

RUN = "document.documentElement.dataset.ran='yes'"
TEXTS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</pre></style></textarea><img src=x onerror=\"{RUN}\">",
    f"<!--<script>{RUN}//-->",
    f"<svg onload={RUN}><a href='javascript:{RUN}'>here</a>",
    "**bold** [link](https://example.invalid/leak) `code` | cell |",
    "\x1b[31mred\x1b[0m\x1b]8;;https://example.invalid\x07 terminal",
    "{{ 7 * 7 }} {% raw %} %{customdata} $x$ <b>plot</b>",
    "turned \u202e around \u2066 nul \x00 bell \x07 \ud83d end",
)
ALL = " ".join(TEXTS[:-1]) + " turned \u202e around"
"""All of them in one line that can be stored as JSON."""
CITED = f"<b>{TEXTS[0]}</b> (cuBLAS 1, https://example.invalid/x?\"onmouseover={RUN})"


class HostileHands(TinyHands):
    """A GPU whose tools repeat what a program says of itself."""

    def __init__(self) -> None:
        super().__init__(H200, timed=True)

    def build(self, program: Path) -> BuildResult:
        found = super().build(program)
        return found.model_copy(update={"log": "\n".join(map(stored, TEXTS)), "notes": (ALL,)})

    def check(self, program: Path, seeds: int) -> CheckResult:
        found = super().check(program, seeds)
        worst = OutputError(name=ALL, max_error=1e-7, max_bound=1e-6, norm_error=0.0, norm_bound=1.0, ok=found.ok, note=ALL)
        reasons = () if found.ok else (ALL,)
        return found.model_copy(update={"outputs": (worst,), "reasons": reasons, "vendor_share": 0.25, "framework_share": 0.25})

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        seen = profile((ALL, "own", ALL, 1, 0.5), ("gemm<script>", "vendor", "(root)", 2, 0.25), idle=0.1)
        return ProfileResult(tool="nsys", source="nsys", bottleneck=ALL, lines=TEXTS[:5]), seen

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        roofline = Roofline(intensity=4.0, flops=2e12, sm_percent=30.0, memory_percent=70.0)
        kernel = KernelProfile(
            name=ALL, origin="own", share=0.6, duration_us=12.0, bound="memory", limiter=ALL, roofline=roofline,
            occupancy=Occupancy(achieved=50.0), tensor_percent=5.0,
        )  # fmt: skip
        return ProfileResult(tool="ncu", source="ncu", bottleneck=ALL, lines=TEXTS[:5]), CountedKernels(kernels=(kernel,))


class HostileEngineer(ScriptedEngineer):
    """Names its tasks and files like that."""

    def plan(self, brief: Brief) -> Plan:
        plan = super().plan(brief)
        tasks = tuple(task.model_copy(update={"title": ALL, "why": ALL, "strategy": ALL}) for task in plan.tasks)
        more = Task(id=f"x{TEXTS[1]}", kind="region", title=ALL, predicted_ms=0.01, why=ALL)
        return plan.model_copy(update={"tasks": (*tasks, more), "summary": ALL, "host": ALL})

    def write(self, assignment: Assignment) -> Draft:
        if assignment.task.id not in self.script:
            return Draft(files={}, exhausted=ALL)
        draft = super().write(assignment)
        files = dict(draft.files) | {"kernels/<script>.cu": "\n".join(map(stored, TEXTS)), "model_new.py": ALL}
        return Draft(files=files, note=ALL, engineer=ALL)

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        review = super().review(assignment, draft, evidence)
        return review.model_copy(update={"bottleneck": ALL, "suggestion": ALL, "expected_gain": ALL, "citations": (CITED, ALL)})


def hostile_session(folder: Path) -> Session:
    """A session in which everybody writes such things."""
    engineer = HostileEngineer({"a": ["saves 0.2"], "b": ["wrong", "build error", "saves 0.3"]})
    return tiny_session(folder, "hostile").run(device="cuda", engineer=engineer, tools=HostileHands())


def stored(text: str) -> str:
    """As far as UTF-8 can hold it."""
    return text.encode("utf-8", "ignore").decode()
