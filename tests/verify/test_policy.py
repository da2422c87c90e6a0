"""What the policies accept: pure rules on a check and a timing, and `strict` on the simulator."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stitchcuda.nodes.context import Context
from stitchcuda.nodes.final_check import _gather
from stitchcuda.state import BuildResult, CheckResult, KernelRole, ProfileResult, Settings, TimingResult
from stitchcuda.verify.api import verify
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.policy import apply_policy, policy_reasons
from stitchcuda.verify.timing import rounds
from tests.verify import programs
from tests.verify.test_device_time import recorded
from tests.verify.test_timing import timed_result

NEEDED = (KernelRole(name="tail_kernel", role="needed"),)
# A real case: own kernels take 0.12 of 7.3 ms, and library kernels of 1.2 of 8.4 ms are gone.
SMALL = CheckResult(
    ok=True, tier="timed", own_share=0.017, vendor_share=0.9, framework_share=0.083, elsewhere=7_176_000, whole=8_400_000,
    replaced=0.146, kernels=NEEDED,
)  # fmt: skip
SURE = timed_result(1 / 1.15).model_copy(update={"certain_ratio": 1.149})


def stitched(folder: Path, timing: TimingResult | None = SURE, **changes: Any) -> tuple[tuple[str, ...], str]:
    return policy_reasons(folder, "stitched", SMALL.model_copy(update=changes), timing)


def test_a_small_share_that_saves_time_for_certain_is_a_label(tmp_path: Path) -> None:
    assert stitched(tmp_path) == ((), "small own share")
    assert apply_policy(tmp_path, "stitched", SMALL, SURE).label == "small own share"
    assert stitched(tmp_path, own_share=0.001, replaced=0.002) == ((), "small own share")
    assert stitched(tmp_path, own_share=0.2) == ((), "")
    assert stitched(tmp_path, None) == ((), "small own share"), "it is not thrown away before it was timed"


def test_a_small_share_without_certain_gain_is_refused(tmp_path: Path) -> None:
    (reason,), _ = stitched(tmp_path, SURE.model_copy(update={"certain_ratio": 0.998}))
    assert "own kernels hold 1.7% of the work and 5% are needed" in reason
    assert "faster for certain, and its slowest timing shows 0.998x at least" in reason
    assert stitched(tmp_path, timed_result(0.5))[0], "timed in one process only"
    assert stitched(tmp_path, SURE.model_copy(update={"refused": ("clocks disagree",)}))[0]


def test_a_copy_of_what_torch_computed_takes_nothing_over(tmp_path: Path) -> None:
    """Not even if it is faster, for example by a CUDA graph that is not declared; it is refused before it is timed."""
    for timing in (SURE, None):
        for replaced in (0.0, 0.014):
            (reason,), _ = stitched(tmp_path, timing, replaced=replaced)
            assert "library kernels only" in reason
    assert stitched(tmp_path, replaced=0.015) == ((), "small own share")


def test_a_gain_by_other_library_kernels_is_not_its_own(tmp_path: Path) -> None:
    """As a12_bias_kernel_large: mm for linear, with an own kernel for the bias."""
    (reason,), _ = stitched(tmp_path, exchanged=0.66)
    assert "the work was exchanged: library kernels that the reference does not run take 2.38" in reason
    assert "its own 0.1241 ms" in reason
    assert stitched(tmp_path, exchanged=1.0)[0]
    assert stitched(tmp_path, exchanged=0.04) == ((), "small own share"), "a fill beside an own kernel is no exchange"


@pytest.mark.parametrize("kernels", [(), (KernelRole(name="a", role="undecided"),)])
def test_a_small_share_has_to_be_needed(kernels: tuple[KernelRole, ...], tmp_path: Path) -> None:
    assert stitched(tmp_path, kernels=kernels) == (
        ("policy stitched: own kernels hold 1.7% of the work and 5% are needed where no host-side task is declared",), ""
    )  # fmt: skip


def test_the_simulator_says_what_it_cannot_see(tmp_path: Path) -> None:
    (reason,), _ = stitched(tmp_path, None, tier="simulated")
    assert "the simulator times nothing: on a GPU (--device cuda) a smaller share is accepted" in reason
    assert "simulator" not in stitched(tmp_path, None, tier="simulated", kernels=())[0][0]


def test_certain_is_what_the_slowest_of_several_timings_shows() -> None:
    def timed(ratio: float, low: float) -> TimingResult:
        return timed_result(1 / ratio).model_copy(update={"ratio_low": low})

    assert not rounds.combine_timings([timed(1.2, 1.19)]).faster_for_certain
    assert rounds.combine_timings([timed(1.2, 1.19), timed(1.02, 1.01)]).faster_for_certain
    assert not rounds.combine_timings([timed(1.2, 1.19), timed(1.01, 0.999)]).faster_for_certain
    slow = rounds.combine_timings([timed(1.6, 1.5), timed(1.5, 1.4), timed(0.9, 0.8)])
    assert slow.ratio == pytest.approx(1.5)
    assert (slow.certain_ratio, slow.faster_for_certain) == (0.8, False)


def test_a_session_asks_its_policy_again_once_the_program_is_timed(tmp_path: Path) -> None:
    def gathered(timing: TimingResult) -> CheckResult:
        skipped = ProfileResult(tool="nsys", skipped="no GPU"), None
        tools = SimpleNamespace(
            build=lambda folder: BuildResult(ok=True), verify=lambda folder, seeds: SMALL, time=lambda *_, twice: timing,
            profile_system=lambda folder: skipped, profile_kernels=lambda *_: skipped,
        )  # fmt: skip
        context = SimpleNamespace(
            tools=tools, settings=Settings(target="cuda"), program_folder=lambda digest: tmp_path, emit=lambda *_, **__: None,
            store_profile=lambda found, whole: found,
        )  # fmt: skip
        check = _gather(cast("Context", context), "a", "b", 5).check
        assert check is not None
        return check

    assert (gathered(SURE).ok, gathered(SURE).label) == (True, "small own share")
    assert "faster for certain" in gathered(timed_result(1.0)).reasons[0]


def test_strict_counts_what_torch_asks_libraries_for(tmp_path: Path) -> None:
    check = CheckResult(ok=True, tier="timed", own_share=0.37, vendor_share=0.63)
    assert policy_reasons(tmp_path, "strict", check) == ((), "")
    (reason,), _ = policy_reasons(tmp_path, "strict", check.model_copy(update={"vendor_by_torch": 0.63}))
    assert "63% of the work is in framework operators, 63% in libraries' kernels that torch calls" in reason
    host = check.model_copy(update={"host_bytes": 5000, "whole": 60_000})
    assert "policy strict: 5000 bytes" in policy_reasons(tmp_path, "strict", host)[0][0]


def test_a_trace_tells_whose_call_of_a_library_it_was() -> None:
    rows = [("mine", 0, 40, 7), ("sm90_gemm", 40, 30, 7), ("cudnn_conv", 70, 20, 7), ("sm90_gemm", 90, 10, 7)]
    trace = recorded(rows, replays=1, replayed=[3])
    trace.by_torch.extend([1, 9])

    def by_torch(*, calls_vendors: bool) -> float:
        return device_time.summarize(trace, ["mine"], calls_vendors=calls_vendors).vendor_by_torch

    assert by_torch(calls_vendors=True) == 0.3
    assert by_torch(calls_vendors=False) == 0.6, "also what a replayed graph holds: nobody else calls a library"


@pytest.mark.more
def test_strict_refuses_linear_called_from_torch(tmp_path: Path) -> None:
    """Whoever's kernel it launches. The own kernel does all the rest."""
    without = {"        self.norm = nn.BatchNorm1d(features)\n": "", "self.norm(self.linear(x))": "self.linear(x)"}
    reference, program = programs.REFERENCE, programs.kernel_program(tmp_path / "program") / "model_new.py"
    model = program.read_text()
    for old, new in without.items():
        reference, model = reference.replace(old, new), model.replace(old, new)
    program.write_text(model)
    (tmp_path / "reference.py").write_text(reference)
    given = tmp_path / "program", tmp_path / "reference.py"
    found = verify(*given, target="sim", policy="strict", cache=tmp_path / "cache", seeds=2)
    assert not found.accepted
    assert found.shares.framework == 0.0 < found.shares.vendor
    line = 1 + next(number for number, text in enumerate(model.splitlines()) if "self.linear(x)" in text)
    assert "of the work is in framework operators" in found.reasons[0]
    assert f"(addmm in model_new.py line {line})" in found.reasons[0]
