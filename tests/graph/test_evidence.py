"""What the tools saw reaches planner, engineer, report and outcome; what a winner does wrong costs it its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.engineers.prompt import planner_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.nodes.attempt_figures import UNREAD
from stitchcuda.sessions.session import Session
from stitchcuda.state import BuildResult, Evidence, ProfileResult, SanitizerResult
from stitchcuda.tools.build.nvcc import NO_SOURCE
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from tests.graph.tiny import Script, ScriptedEngineer, TinyHands, tiny_session
from tests.sessions.test_session import H200
from tests.tools.profiles import profile

SEEN = profile(("own_kernel(float*)", "own", "(root)", 1, 0.5))
LESSER = "nsys: it is not on this machine"
SCRIPT: Script = {"a": ["saves 0.2"], "b": ["saves 0.3"]}


class SeeingHands(TinyHands):
    """A GPU on which profilers work as far as a test wants."""

    def __init__(self, *, counters: str = "", why: str = "", errors: tuple[str, ...] = ()) -> None:
        super().__init__(H200, timed=True)
        self.counters, self.why, self.errors = counters, why, errors

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        self._called("reference profile" if program is None else "profile")
        source = "cupti" if self.why else "nsys"
        return ProfileResult(tool="nsys", source=source, why=self.why, bottleneck="the softmax", lines=("busy",)), SEEN  # type: ignore[arg-type]

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        assert system == SEEN
        if self.counters:
            return ProfileResult(tool="ncu", skipped=self.counters), None
        kernel = KernelProfile(name="own_kernel(float*)", bound="memory", limiter="DRAM")
        result = ProfileResult(tool="ncu", source="ncu", bottleneck="own_kernel is bound by memory")
        return result, CountedKernels(kernels=(kernel,))

    def sanitize(self, program: Path) -> SanitizerResult:
        errors = self.errors if "b saves" in (program / "drafts.txt").read_text() else ()
        return SanitizerResult(clean=not errors, tools=("memcheck",), errors=errors)


def ended(
    folder: Path, hands: SeeingHands, script: Script = SCRIPT, *, sanitize: bool = True
) -> tuple[Session, ScriptedEngineer, str]:
    engineer = ScriptedEngineer(script)
    session = tiny_session(folder, sanitize=sanitize).run(device="cuda", engineer=engineer, tools=hands)
    report = session.outcome().report
    assert report is not None
    return session, engineer, Path(report).read_text()


def test_with_counters_it_is_measured(tmp_path: Path) -> None:
    session, engineer, report = ended(tmp_path, SeeingHands())
    outcome = session.outcome()
    assert (outcome.tier, outcome.accepted, outcome.missing) == ("measured", True, ())
    budget = PromptBudget(TokenCounter("unknown"))
    assert "Where the time of an eager call goes: the softmax." in planner_prompt(engineer.briefs[0], budget)
    assert "- program, by nsys: the softmax" in report
    assert "- its kernels, by ncu: own_kernel is bound by memory" in report
    assert "- compute-sanitizer (memcheck): nothing wrong" in report
    final = session.state()["final"]
    assert final is not None
    assert final.kernels is not None
    assert final.kernels.digest is not None
    kept = CountedKernels.model_validate_json(session.home.store.get(final.kernels.digest))
    assert kept.kernels[0].limiter == "DRAM"


def test_without_counters_it_is_timed_and_says_why(tmp_path: Path) -> None:
    session, _, report = ended(tmp_path, SeeingHands(counters="the driver keeps them", why=LESSER))
    outcome = session.outcome()
    assert (outcome.tier, outcome.accepted) == ("timed", True)
    assert outcome.missing == (f"nsys: cupti in its place, since {LESSER}", "ncu: the driver keeps them")
    assert f"- program, by cupti (in place of nsys: {LESSER}): the softmax" in report
    assert "- its kernels: not profiled: the driver keeps them" in report
    notes = session.state()["notes"]
    assert f"nsys_profile: cupti in place of nsys ({LESSER})" in notes
    assert "ncu_profile skipped: the driver keeps them" in notes


def test_what_was_not_built_is_said_of_its_attempt_and_what_the_machine_lacks_once(tmp_path: Path) -> None:
    class Hands(TinyHands):
        def build(self, program: Path) -> BuildResult:
            drafts = (program / "drafts.txt").read_text()
            why = "no CUDA toolkit" if "c saves" in drafts else "" if "b saves" in drafts else NO_SOURCE
            return BuildResult(ok=True, skipped=why)

    script: Script = {name: ["saves 0.2"] for name in "abcd"}
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer(script), tools=Hands())
    said = [note for note in session.state()["notes"] if "nvcc_build skipped" in note]
    assert said == [f"a #0: nvcc_build skipped: {NO_SOURCE}", "nvcc_build skipped: no CUDA toolkit"]


def test_attempts_are_not_profiled_for_an_engineer_that_goes_by_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedEngineer, "reads_profiles", False)
    hands = SeeingHands(counters="the driver keeps them")
    session, _, report = ended(tmp_path, hands)
    assert (hands.calls.count("reference profile"), hands.calls.count("profile")) == (1, 1)
    assert session.outcome().missing == ("ncu: the driver keeps them",)
    assert "- program, by nsys: the softmax" in report
    assert not any(UNREAD in note for note in session.state()["notes"])
    unread = Evidence.model_validate_json(session.home.store.get(session.attempts()[0].evidence))
    assert unread.system is not None
    assert unread.kernels is not None
    assert (unread.system.skipped, unread.kernels.skipped, unread.tier) == (UNREAD, UNREAD, "timed")


def test_who_did_not_look_is_said_where_nothing_was_kept_too(tmp_path: Path) -> None:
    hands = SeeingHands(counters="the driver keeps them", why=LESSER)
    session, _, report = ended(tmp_path, hands, {"a": ["saves 0.0"], "b": ["saves 0.0"]})
    outcome = session.outcome()
    assert (outcome.tier, outcome.accepted, session.state()["final"]) == (None, False, None)
    assert outcome.missing == (f"nsys: cupti in its place, since {LESSER}", "ncu: the driver keeps them")
    assert f"- programs: nsys: cupti in its place, since {LESSER}\n- programs: ncu: the driver keeps them" in report
    assert f"- reference, by cupti (in place of nsys: {LESSER}): the softmax" in report


def test_memory_errors_are_looked_for_only_on_request(tmp_path: Path) -> None:
    session, _, report = ended(tmp_path, SeeingHands(errors=("memcheck: an error that nobody looks for",)), sanitize=False)
    assert session.outcome().accepted
    assert "compute-sanitizer" not in report


def test_a_winner_with_memory_errors_is_given_up(tmp_path: Path) -> None:
    session, _, _ = ended(tmp_path, SeeingHands(errors=("memcheck: Invalid __global__ write of size 4 bytes in own_kernel",)))
    outcome = session.outcome()
    assert outcome.accepted
    assert outcome.speedup is not None
    assert round(outcome.speedup, 2) == 1.25  # of task a alone
    given_up = [note for note in session.state()["notes"] if "is given up" in note]
    assert len(given_up) == 1
    assert "Invalid __global__ write" in given_up[0]


def test_the_reference_is_profiled_once_and_each_correct_program(tmp_path: Path) -> None:
    hands = SeeingHands()
    ended(tmp_path, hands)
    assert hands.calls.count("reference profile") == 1
    assert hands.calls.count("profile") == len(SCRIPT) + 1
