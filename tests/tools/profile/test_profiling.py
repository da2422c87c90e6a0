"""Tiers: what is missing or denied costs its own evidence and no other, and every profile says why it is no better."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox.command import Finished
from stitchcuda.state import DeviceFacts
from stitchcuda.tools.profile import memory_errors, ncu, ncu_command, nsys, nsys_command, profile_report, profiling, sanitizer
from stitchcuda.tools.profile.ncu_command import COUNTERS_DENIED
from stitchcuda.tools.profile.profile_report import ProfileReport
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.runner import Runner
from stitchcuda.tools.profile.system_profile import grouped
from tests.tools.profile.test_cupti_trace import Trace
from tests.tools.profile.test_cupti_trace import trace as trace  # a fixture
from tests.tools.profile.test_ncu_command import fake
from tests.tools.profile.test_nsys_command import fake as fake_nsys
from tests.tools.profile.test_nsys_command import sample
from tests.tools.profiles import profile

REPORTS = 'echo "==PROF== Profiling \\"own_kernel\\" - 0: 0%....50%....100% - 38 passes"; echo report > "$report"'


class GpuJudge:
    """A judge on a GPU host, as far as rehearsals go: `cupti` is what torch.profiler would write; commands in front are run."""

    target = "cuda"

    def __init__(self, cupti: str | None = None, events: bool = True) -> None:
        self.cupti, self.events = cupti, events
        self.environment: dict[str, str] = {}

    def run_under(
        self, program: Path | None, under: Sequence[str], out: Path, *, how: str, environment: Mapping[str, str], **more: Any
    ) -> tuple[Finished, tuple[str, ...]]:
        import subprocess

        self.environment = dict(environment)
        if how == "cupti" and self.cupti is not None:
            (out / "trace.json").write_text(self.cupti)
        elif how == "events" and self.events:
            (out / "events.json").write_text(json.dumps({"ms": [3.0, 1.0, 2.0]}))
        elif not under:
            return Finished(1, "Traceback\nRuntimeError: CUPTI_ERROR_NOT_INITIALIZED\n", 1.0), ()
        if under:
            if how == "nsys":
                sample(out)
            done = subprocess.run([*under, "true"], capture_output=True, text=True, check=False)
            return Finished(done.returncode, done.stdout + done.stderr, 1.0), ("own_kernel(float*)",)
        return Finished(0, "", 1.0), ("void own_kernel(float*)",)


def judge(**facts: Any) -> Runner:
    return cast(Runner, GpuJudge(**facts))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the shell's tools, no profiler, and a folder in front for what a test puts there."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for finder in (nsys_command.find_nsys(), ncu_command.find_ncu(), sanitizer.find_sanitizer()):
        assert finder is None, "this machine has NVIDIA's profilers; these tests want one without"
    return tmp_path / "bin"


def test_nsys_is_asked_first(alone: Path, trace: Trace, tmp_path: Path) -> None:
    fake_nsys(alone)
    found = profiling.system_profile(judge(cupti=trace.written(tmp_path).read_text()), None)
    assert (found.source, found.why) == ("nsys", "")
    assert found.kernels[0].name == "k(int)"


def test_without_nsys_it_is_cupti_and_says_so(alone: Path, trace: Trace, tmp_path: Path) -> None:
    found = profiling.system_profile(judge(cupti=trace.written(tmp_path).read_text()), tmp_path)
    assert found.source == "cupti"
    assert found.why == "nsys: it is not on this machine; install NVIDIA's nsight-systems"
    assert {one.origin for one in found.kernels} == {"own", "vendor"}
    result, _ = nsys.profile_system(tmp_path, judge(cupti=trace.written(tmp_path).read_text()))
    assert result.source == "cupti"
    assert "install NVIDIA's nsight-systems" in result.why
    assert "install NVIDIA's nsight-systems" in result.lines[0]


def test_an_nsys_that_fails_is_named_with_its_reason(alone: Path, trace: Trace, tmp_path: Path) -> None:
    fake_nsys(alone, profile='echo "nsys: Permission denied"; exit 1')
    found = profiling.system_profile(judge(cupti=trace.written(tmp_path).read_text()), None)
    assert found.source == "cupti"
    assert "Permission denied" in found.why


def test_without_cupti_the_time_of_a_call_is_left(alone: Path) -> None:
    found = profiling.system_profile(judge(), None)
    assert (found.source, found.span_ms, found.busy_ms, found.kernels) == ("events", 2.0, None, ())
    assert "CUPTI: the call ended with code 1: RuntimeError: CUPTI_ERROR_NOT_INITIALIZED" in found.why
    result, counted = ncu.profile_kernels(Path(), judge(), found)
    assert result.skipped == "the system profile names no kernel to look at"
    assert counted is None


@pytest.mark.parametrize(
    "said",
    [
        "", "[]", '{"ms": "fast"}', '{"ms": []}', '{"ms": [null]}', '{"ms": [-1]}', '{"ms": [NaN]}', '{"ms": [1e999]}',
        '{"ms": [1' + "0" * 400 + "]}", "[" * 9000,
    ],
)  # fmt: skip
def test_times_that_are_none_are_no_profile(said: str, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = GpuJudge(events=False)

    def forged(*_: Any, how: str, **__: Any) -> tuple[Finished, tuple[str, ...]]:
        if how == "events":
            (_[2] / "events.json").write_text(said)
            return Finished(0, "", 1.0), ()
        return Finished(1, "no\n", 1.0), ()

    monkeypatch.setattr(gpu, "run_under", forged)
    with pytest.raises(Unavailable, match="events: the times of the events cannot be read"):
        profiling.system_profile(cast(Runner, gpu), None)


def test_a_pipe_in_place_of_the_times_is_not_waited_for(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(Path, "open", lambda place, *_, **__: opened.append(place))

    def forged(*given: Any, how: str, **__: Any) -> tuple[Finished, tuple[str, ...]]:
        os.mkfifo(given[2] / ("trace.json" if how == "cupti" else "events.json"))
        return Finished(0, "", 1.0), ()

    gpu = GpuJudge()
    monkeypatch.setattr(gpu, "run_under", forged)
    with pytest.raises(Unavailable, match=r"CUPTI: \S+trace.json cannot be read.*; events: \S+events.json cannot be read"):
        profiling.system_profile(cast(Runner, gpu), None)
    assert not opened


def test_a_trace_that_nothing_can_be_made_of_leaves_the_next_tier(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise LookupError("of a kind that nobody thought of")

    monkeypatch.setattr(profiling, "read_trace", failing)
    found = profiling.system_profile(judge(cupti="{}"), None)
    assert found.source == "events"
    assert "CUPTI: the trace cannot be read (LookupError: of a kind that nobody thought of)" in found.why


def test_with_nothing_at_all_all_reasons_are_given(alone: Path) -> None:
    with pytest.raises(Unavailable, match=r"nsys: it is not.*; CUPTI: the call ended.*; events: the call ended"):
        profiling.system_profile(judge(events=False), None)
    result, found = nsys.profile_system(None, judge(events=False))
    assert found is None
    assert "events: the call ended" in result.skipped


SYSTEM = profile(("own_kernel(float*)", "own", "(elsewhere)", 2, 0.5), ("sm90_gemm", "vendor", "(elsewhere)", 1, 0.4))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1', COUNTERS_DENIED),
        ('echo "==WARNING== No kernels were profiled."', "none of the chosen kernels was launched"),
        (REPORTS, "is no report of Nsight Compute"),
    ],
)
def test_without_counters_it_is_said_why(alone: Path, body: str, why: str) -> None:
    fake(alone, body)
    result, counted = ncu.profile_kernels(Path(), judge(), SYSTEM)
    assert counted is None
    assert why in result.skipped
    assert result.source == ""


def test_without_ncu_it_is_said_where_it_comes_from(alone: Path) -> None:
    assert "comes with the CUDA toolkit" in ncu.profile_kernels(Path(), judge(), SYSTEM)[0].skipped


def test_a_program_without_kernels_of_its_own_is_not_looked_at(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "model_new.py").write_text("import torch\n")
    found = memory_errors.sanitize(tmp_path, judge())
    assert found.clean is None
    assert set(found.skipped) == {f"{tool}: the program has no kernel of its own" for tool in sanitizer.TOOLS}


def test_without_a_sanitizer_each_tool_says_so(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text("__global__ void own_kernel(float* x) {}\n")
    found = memory_errors.sanitize(tmp_path, judge())
    assert found.clean is None
    assert [one.partition(":")[0] for one in found.skipped] == list(sanitizer.TOOLS)


def test_a_memory_error_is_an_error_and_a_race_a_warning(alone: Path, tmp_path: Path) -> None:
    from tests.tools.profile.test_sanitizer import MEMCHECK, RACECHECK

    alone.mkdir()
    for name, log in (("memcheck", MEMCHECK), ("racecheck", RACECHECK)):
        (alone / name).write_text(log)
    tool = alone / "compute-sanitizer"
    (alone / "other").write_text(
        "========= Program hit cudaErrorNotReady (error 600) due to \"device not ready\" on CUDA API call to cudaEventQuery.\n"
        "=========\n========= ERROR SUMMARY: 1 error\n"
    )
    tool.write_text(f'#!/bin/sh\necho "$@" >> "{alone}/asked"\ncat "{alone}/$2" 2>/dev/null || cat "{alone}/other"\n')
    tool.chmod(0o755)
    (tmp_path / "own.cu").write_text("__global__ void own_kernel(float* x) {}\n")
    gpu = GpuJudge()
    found = memory_errors.sanitize(tmp_path, cast(Runner, gpu))
    assert found.clean is False
    assert found.tools == sanitizer.TOOLS
    assert found.errors
    assert all(one.startswith("memcheck") for one in found.errors)
    assert any(one.startswith("racecheck") for one in found.warnings)
    assert any("cudaErrorNotReady" in one for one in found.warnings)
    assert gpu.environment == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    asked = (alone / "asked").read_text().splitlines()
    assert len(asked) == 4
    looked = {one.split()[1]: "--kernel-name kernel_substring=own_kernel" in one for one in asked}
    assert looked == {"memcheck": True, "racecheck": True, "synccheck": True, "initcheck": False}


@pytest.mark.parametrize(("code", "clean"), [(0, True), (255, None)])
def test_a_program_is_clean_only_where_every_tool_ended_well(
    code: int, clean: bool | None, alone: Path, tmp_path: Path
) -> None:
    alone.mkdir()
    (tool := alone / "compute-sanitizer").write_text(
        f'#!/bin/sh\necho "========= ERROR SUMMARY: 0 errors"\n[ "$2" != racecheck ] || exit {code}\n'
    )
    tool.chmod(0o755)
    (tmp_path / "own.cu").write_text("__global__ void own_kernel(float* x) {}\n")
    found = memory_errors.sanitize(tmp_path, judge())
    assert (found.clean, found.tools) == (clean, sanitizer.TOOLS)
    assert not found.warnings
    wanted = () if clean else (f"racecheck: racecheck or the program under it ended with {code}; there may be more",)
    assert found.notes == wanted


def test_what_all_tools_have_to_say_is_said_once(alone: Path, tmp_path: Path) -> None:
    alone.mkdir()
    (tool := alone / "compute-sanitizer").write_text(
        '#!/bin/sh\necho "cudaErrorStreamCaptureUnsupported"\necho "========= ERROR SUMMARY: 0 errors"\n'
    )
    tool.chmod(0o755)
    (tmp_path / "own.cu").write_text("__global__ void own_kernel(float* x) {}\n")
    found = memory_errors.sanitize(tmp_path, judge())
    (said,) = found.notes
    assert said.startswith("memcheck, racecheck, initcheck, synccheck: the program records CUDA graphs")
    assert found.clean


def test_regions_of_a_program_and_its_reference_meet_in_their_modules() -> None:
    found = grouped(profile(
        ("a", "own", "blocks.*.attention.query: linear", 12, 1.0), ("b", "own", "blocks.*.attention: softmax", 6, 2.0),
        ("c", "own", "blocks.*", 6, 0.5), ("d", "own", "head", 1, 0.1), ("e", "own", "(elsewhere)", 1, 0.1),
    ))  # fmt: skip
    assert [(one.name, one.device_ms, one.launches) for one in found.regions] == [
        ("blocks.*.attention", 3.0, 18), ("blocks.*", 0.5, 6), ("head", 0.1, 1), ("(elsewhere)", 0.1, 1),
    ]  # fmt: skip


def report(**more: Any) -> ProfileReport:
    device = DeviceFacts(
        name="NVIDIA H200", target="cuda", arch="sm_90a", sm_count=132, bandwidth_gbs=4300.0, tflops={"float32": 51.0},
        launch_us=4.5, driver="580.1", torch="2.11", measured=True,
    )  # fmt: skip
    facts: dict[str, Any] = {"floor_ms": 0.3, "floor_binds": "bandwidth", "reference": SYSTEM}
    return ProfileReport(**{"name": "vit.py", "device": device, **facts, **more})


def test_a_report_fits_a_screen_and_leaves_nothing_out_silently() -> None:
    long = profile(*((f"kernel_{i}(float*)", "framework", f"layers.{i}: op", 3, 0.1 + i / 100) for i in range(60)), idle=1.0)
    text = profile_report.text(report(reference=long))
    lines = text.splitlines()
    assert len(lines) <= 45
    assert all(len(line) <= 100 for line in lines[3:] if not line.startswith(("counters", "speed of light")))
    assert "speed of light 0.300 ms (bandwidth; ceilings measured): the device is busy 79.0 times as long" in text
    assert "counters: none (not asked for: --counters reads them)" in text


def test_a_program_stands_beside_its_reference() -> None:
    text = profile_report.text(report(program=profile(("own_kernel(float*)", "own", "(root)", 1, 0.45))))
    assert "reference" in text
    assert "program" in text
    assert "own_kernel" in text


def test_a_lesser_source_is_named_at_the_end() -> None:
    lesser = SYSTEM.model_copy(update={"source": "cupti", "why": "nsys: it is not on this machine"})
    text = profile_report.text(report(reference=lesser, kernels=CountedKernels(skipped=COUNTERS_DENIED)))
    assert text.endswith("the reference was seen through CUPTI: nsys: it is not on this machine")
    assert f"counters: none ({COUNTERS_DENIED})" in text
    assert json.loads(report(reference=lesser).model_dump_json())["reference"]["why"] == "nsys: it is not on this machine"
