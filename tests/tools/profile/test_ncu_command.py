"""Running Nsight Compute: which kernels, with which call, and what its refusals mean. ncu is a small script here."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.profile import ncu_command
from stitchcuda.tools.profile.ncu_command import ChosenKernel, choose, command, find_ncu, profile

TRIAD = ChosenKernel(name="triad(float*, float const*)", ms=6.0, launches=2, origin="own")
GEMM = ChosenKernel(name="void cutlass::gemm<int, 4>(int)", ms=3.0, launches=1, origin="vendor")


def run(order: Sequence[str], environment: Mapping[str, str]) -> Finished:
    done = subprocess.run(order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return Finished(done.returncode, done.stdout, 1.5)


def fake(folder: Path, body: str, name: str = "ncu") -> Path:
    """An executable that knows its call's `--export` as $report and the kernels' pattern as $kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    parse = 'while [ $# -gt 0 ]; do case "$1" in --export) report="$2";; --kernel-name) kernels="$2";; esac; shift; done'
    path = folder / name
    path.write_text(f'#!/bin/sh\nall="$*"\n{parse}\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def value(order: Sequence[str], option: str) -> str:
    return order[order.index(option) + 1]


def test_the_kernels_that_take_the_time_are_chosen() -> None:
    tail = [ChosenKernel(name=f"k{i}(int)", ms=0.02) for i in range(20)]
    assert choose([*tail, GEMM, TRIAD]) == (TRIAD, GEMM)
    assert len(choose([ChosenKernel(name=f"k{i}(int)", ms=1.0) for i in range(9)])) == 3
    assert choose([]) == ()


def test_an_own_kernel_has_a_place_however_little_it_takes() -> None:
    vendor = [ChosenKernel(name=f"v{i}(int)", ms=10.0, origin="vendor") for i in range(3)]
    own = ChosenKernel(name="mine(float*)", ms=0.1, origin="own")
    assert choose([*vendor, own]) == (*vendor[:2], own)


def test_kernels_of_one_name_count_together() -> None:
    variants = [ChosenKernel(name=f"void at::reduce<{i}>(int)", ms=2.0, launches=3) for i in range(4)]
    (chosen, _) = choose([*variants, TRIAD])
    assert (chosen.ms, chosen.launches) == (8.0, 12)


def test_copies_and_graphs_are_no_kernels_but_take_device_time() -> None:
    copy, graph = ChosenKernel(name="copy", ms=100.0, origin="copy"), ChosenKernel(name="CUDA graph 1", ms=50.0)
    assert choose([copy, graph, GEMM]) == ()  # 2 % of the device time
    assert choose([copy, graph, TRIAD]) == (TRIAD,)  # own


def test_the_call_asks_for_these_kernels_and_leaves_the_clocks_alone(tmp_path: Path) -> None:
    order = command(Path("/x/ncu"), ("python", "-m", "program"), tmp_path / "r.ncu-rep", (TRIAD, GEMM))
    assert order[0] == "/x/ncu"
    assert order[-3:] == ("python", "-m", "program")
    assert value(order, "--kernel-name") == "regex:^(gemm|triad)$"
    assert (value(order, "--filter-mode"), value(order, "--launch-count")) == ("per-launch-config", "1")
    older = command(Path("/x/ncu"), ("program",), tmp_path / "r.ncu-rep", (TRIAD, GEMM), filters=False)
    assert ("--filter-mode" in older, value(older, "--launch-count")) == (False, "3")
    assert (value(order, "--clock-control"), value(order, "--profile-from-start")) == ("none", "off")
    assert (value(order, "--cache-control"), value(order, "--replay-mode")) == ("all", "kernel")
    sections = {order[i + 1] for i, part in enumerate(order) if part == "--section"}
    assert {"SpeedOfLight", "SpeedOfLight_RooflineChart", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats",
            "WarpStateStats", "SourceCounters"} <= sections  # fmt: skip
    metrics = value(order, "--metrics").split(",")
    assert {"dram__bytes_read.sum", "lts__t_sector_hit_rate.pct", "launch__occupancy_limit_registers"} <= set(metrics)
    assert len(metrics) == len(set(metrics))


def test_a_report_comes_back_with_the_names_of_its_kernels(tmp_path: Path) -> None:
    ncu = fake(tmp_path, 'echo "==PROF== Profiling \\"triad\\" - 0: 0%....100% - 38 passes"; echo NVR > "$report"')
    came = profile(("program",), (TRIAD,), tmp_path, run=run, ncu=ncu)
    assert (came.skipped, came.kernels, came.missed) == ("", ("triad",), ())
    assert [report.is_file() for report in came.reports] == [True]


def test_a_kernel_that_the_limit_left_out_gets_a_run_of_its_own(tmp_path: Path) -> None:
    ncu = fake(tmp_path, 'case "$kernels" in *triad*) name=triad;; *) name=gemm;; esac\n'
                         'echo "==PROF== Profiling \\"$name\\" - 0: 100%"; echo NVR > "$report"')  # fmt: skip
    came = profile(("program",), (TRIAD, GEMM), tmp_path, run=run, ncu=ncu)
    assert (came.kernels, came.missed, len(came.reports)) == (("triad", "gemm"), (), 2)
    assert came.seconds == 3.0


def test_a_metric_that_this_ncu_does_not_know_costs_a_second_run_and_not_the_profile(tmp_path: Path) -> None:
    gone = "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active"
    ncu = fake(tmp_path, f'case "$all" in *{gone}*) echo "==ERROR== Failed to find metric {gone}"; exit 1;; esac\n'
                         'echo "==PROF== Profiling \\"triad\\" - 0: 100%"; echo NVR > "$report"')  # fmt: skip
    came = profile(("program",), (TRIAD,), tmp_path, run=run, ncu=ncu)
    assert came.kernels == ("triad",)
    assert came.notes == (f"this ncu does not know {gone}",)


def test_an_older_ncu_profiles_launches_as_they_come(tmp_path: Path) -> None:
    gone = "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active"
    refused = "echo '==ERROR== unrecognised option --filter-mode.'; exit 1"
    ncu = fake(tmp_path, f'case "$all" in *filter-mode*) {refused};; esac\n'
                         f'case "$all" in *{gone}*) echo "==ERROR== Failed to find metric {gone}"; exit 1;; esac\n'
                         'echo "==PROF== Profiling \\"triad\\" - 0: 100%"; echo NVR > "$report"')  # fmt: skip
    came = profile(("program",), (TRIAD,), tmp_path, run=run, ncu=ncu)
    assert came.kernels == ("triad",)
    assert came.notes == (
        "this ncu does not know --filter-mode: the first 12 launches were profiled", f"this ncu does not know {gone}"
    )
    assert came.seconds == 4.5


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
         "target device 0. For instructions on enabling permissions and to get more information see https://developer.nvidia.com/x",
         "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "--cap-add=SYS_ADMIN"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "update the driver"),
        ("==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was "
         "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data.",
         "dcgmi profile --pause"),
        ("==PROF== Connected to process 7\n==ERROR== The application returned an error code (3).\n==WARNING== No kernels were "
         "profiled.", "Nsight Compute ended with 1: The application returned an error code (3). No kernels were profiled."),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence_with_the_remedy(tmp_path: Path, said: str, remedy: str) -> None:
    (tmp_path / "said").write_text(said + "\n")
    came = profile(("program",), (TRIAD,), tmp_path, run=run, ncu=fake(tmp_path, f"cat {tmp_path}/said; exit 1"))
    assert came.reports == ()
    assert remedy in came.skipped
    assert "\n" not in came.skipped


def test_kernels_that_never_ran_are_said_so(tmp_path: Path) -> None:
    ncu = fake(tmp_path, 'echo "==PROF== Connected to process 7"; echo "==WARNING== No kernels were profiled."')
    assert "cudaProfilerStart" in profile(("program",), (TRIAD,), tmp_path, run=run, ncu=ncu).skipped


def test_an_old_report_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "kernels-0.ncu-rep").write_text("of another run")
    came = profile(("program",), (TRIAD,), tmp_path, run=run, ncu=fake(tmp_path, 'echo "==PROF== Profiling \\"triad\\" - 0:"'))
    assert came.reports == ()
    assert came.skipped


def test_ncu_is_found_on_the_path_and_where_nvidia_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    places = (f"{tmp_path}/opt/*", f"{tmp_path}/none/bin")
    assert find_ncu(places) is None
    older, newer = (fake(tmp_path / "opt" / version, "true") for version in ("2024.3.2", "2025.10.1"))
    assert older.is_file()
    assert find_ncu(places) == newer       # by number, not by spelling
    on_path = fake(tmp_path / "bin", "true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_ncu(places) == on_path


def test_without_ncu_the_profile_is_skipped_and_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu_command, "find_ncu", lambda: None)
    assert "comes with the CUDA toolkit" in profile(("program",), (TRIAD,), tmp_path, run=run).skipped
