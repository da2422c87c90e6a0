"""Nsight Compute's reports, read through NVIDIA's reader: figures, source lines, rules, and files that are no whole report."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.profile import kernel_text, ncu_report
from tests.tools.profile.ncu_files import Launch, Rule, Value, write

NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
TRIAD: dict[str, Value] = {
    "gpu__time_duration.sum": 100_000.0,
    SM: 18.0,
    MEMORY: 91.0,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 91.0,
    f"breakdown:{MEMORY}": "lts__t_sectors.avg,dram__cycles_active.avg",
    "lts__t_sectors.avg": 40.0,
    "dram__cycles_active.avg": 91.0,
    "dram__bytes_read.sum": 200_000_000.0,
    "dram__bytes_write.sum": 100_000_000.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 25_000_000.0,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 10_000_000.0,
    "launch__grid_dim_x": 1024.0,
    "launch__grid_dim_y": 2.0,
    "launch__grid_dim_z": 1.0,
    "launch__block_dim_x": 256.0,
    "launch__block_dim_y": 1.0,
    "launch__block_dim_z": 1.0,
    "launch__registers_per_thread": 40.0,
    "launch__shared_mem_per_block_static": 1024.0,
    "launch__shared_mem_per_block_dynamic": 512.0,
    "launch__occupancy_limit_registers": 6.0,
    "launch__occupancy_limit_shared_mem": 16.0,
    "launch__occupancy_limit_blocks": 32.0,
    "launch__occupancy_limit_warps": 8.0,
    "launch__waves_per_multiprocessor": 12.5,
    "sm__maximum_warps_per_active_cycle_pct": 75.0,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 70.0,
    "smsp__average_warp_latency_per_inst_issued.ratio": 50.0,
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 40.0,
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 5.0,
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 0.0,
}


def test_a_kernel_s_figures_and_what_follows_from_them(tmp_path: Path) -> None:
    report = write(tmp_path / "r.ncu-rep", [Launch("_Z5triadPfPKfS1_i", TRIAD)])
    (profile,) = ncu_report.read(report, shares={"triad(float*, float const*, float const*, int)": 0.6})
    assert profile.name == "triad(float*, float const*, float const*, int)"  # as CUPTI writes it, not as ncu does
    assert profile.share == 0.6
    assert (profile.bound, profile.limiter) == ("memory", "DRAM bandwidth")
    assert (profile.duration_us, profile.grid, profile.block) == (100.0, (1024, 2, 1), (256, 1, 1))
    assert (profile.registers, profile.shared_bytes) == (40, 1536)
    assert profile.dram_gbs == pytest.approx(3000.0)           # 300 MB in 100 us
    assert profile.roofline.flops == pytest.approx(6e11)       # an FMA counts twice
    assert profile.roofline.intensity == pytest.approx(0.2)
    assert profile.occupancy.limited_by == ("registers",)
    assert [(stall.reason, stall.share) for stall in profile.stalls] == [("long_scoreboard", 0.8), ("wait", 0.1)]
    assert profile.metrics["dram__bytes_read.sum"] == 200_000_000.0


def test_what_was_not_measured_is_none_and_not_zero(tmp_path: Path) -> None:
    (profile,) = ncu_report.read(write(tmp_path / "r.ncu-rep", [Launch("_Z5triadPf", {"gpu__time_duration.sum": 5000.0})]))
    assert profile.duration_us == 5.0
    left = profile.model_dump(exclude={"name", "origin", "launches", "duration_us", "roofline", "occupancy", "metrics"})
    assert all(value in (None, "", ()) for value in left.values()), left
    assert all(value is None for value in profile.roofline.model_dump().values())
    assert kernel_text.for_model(profile) == ("triad: its throughputs were not measured", "launch: 5.00 us")


@pytest.mark.parametrize(("matrix", "flops"), [(0.0, 6e11), (30.0, None)])
def test_constants_that_the_tensor_pipe_loads_are_no_matrix_operations(
    tmp_path: Path, matrix: float, flops: float | None
) -> None:
    """As an H200 counts an FP32 kernel whose constants nvcc loads by HFMA2: the pipe is busy, none of its operations is."""
    dmma = "sm__pipe_tensor_op_dmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
    hmma = "sm__pipe_tensor_type_hmma_hgmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
    counted = TRIAD | {
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": 5.3,
        f"breakdown:{SM}": f"sm__inst_executed.avg.pct_of_peak_sustained_elapsed,{dmma},{hmma}",
        dmma: 0.0,
        hmma: matrix,
    }
    (profile,) = ncu_report.read(write(tmp_path / "r.ncu-rep", [Launch("_Z5triadPf", counted)]))
    assert profile.tensor_percent == matrix
    assert profile.roofline.flops == (pytest.approx(flops) if flops else None)


def test_of_several_launches_the_median_one_stands_for_the_kernel(tmp_path: Path) -> None:
    launches = [Launch("_Z1kPf", {"gpu__time_duration.sum": took}) for took in (9000.0, 1000.0, 3000.0)]
    (profile,) = ncu_report.read(write(tmp_path / "r.ncu-rep", [*launches]))
    assert (profile.launches, profile.duration_us) == (3, 3.0)


def test_kernels_come_in_the_order_of_their_share(tmp_path: Path) -> None:
    report = write(tmp_path / "r.ncu-rep", [Launch("_Z5smallPf", {}), Launch("_Z5largePf", {})])
    profiles = ncu_report.read(report, shares={"large(float*)": 0.7, "small(float*)": 0.2}, origins={"large(float*)": "own"})
    assert [(profile.name, profile.origin) for profile in profiles] == [("large(float*)", "own"), ("small(float*)", "")]


def test_a_share_is_found_however_the_name_is_spelled(tmp_path: Path) -> None:
    report = write(tmp_path / "r.ncu-rep", [Launch("_Z5triadPfPKf", {}), Launch("_Z1kIfEvPT_", {}), Launch("_Z1kIiEvPT_", {})])
    shares = {"triad(float *, const float *)": 0.5, "void k<float>(float*)": 0.3, "void k<int>(int *)": 0.2}
    read = {profile.name: profile.share for profile in ncu_report.read(report, shares=shares)}
    assert read == {"triad(float*, float const*)": 0.5, "void k<float>(float*)": 0.3, "void k<int>(int*)": None}


def test_rules_come_with_their_estimates_and_without_links(tmp_path: Path) -> None:
    rules = (
        Rule("HighPipeUtilization", "Low Utilization", "All pipelines are idle.", speedup=92.0, scope=1),
        Rule("UncoalescedGlobalAccess", "Uncoalesced Global Accesses",
             "See the @section:SourceCounters:Source Counters@ and @url:the guide:https://docs.nvidia.com/x.html#y@.",
             speedup=16.0),
        Rule("MemoryL2Compression", "", "The optional metric x could not be found. Collecting it as an additional metric "
             "could enable the rule to provide more guidance.", kind=2),
        Rule("CPIStall", "", "Check the table.", kind=1),
    )  # fmt: skip
    (profile,) = ncu_report.read(write(tmp_path / "r.ncu-rep", [Launch("_Z1kPf", {}, rules=rules)]))
    assert [rule.title for rule in profile.rules] == ["Uncoalesced Global Accesses", "Low Utilization"]
    assert profile.rules[0].message == "See the Source Counters and the guide."
    assert (profile.rules[0].speedup_percent, profile.rules[0].scope, profile.rules[1].scope) == (16.0, "kernel", "local")


@NVCC
def test_samples_are_led_back_to_the_lines_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "scale.cu"
    source.write_text("__global__ void scale(float* x, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                      "    if (i < n)\n        x[i] = x[i] * 2.0f;\n}\n")  # fmt: skip
    report = write(tmp_path / "r.ncu-rep", [sampled(lines_of(source, tmp_path))], (tmp_path / "scale.cubin").read_bytes())
    (profile,) = ncu_report.read(report, root=tmp_path)
    hottest, second = profile.lines[:2]
    assert (hottest.file, hottest.line, hottest.text) == ("scale.cu", 4, "x[i] = x[i] * 2.0f;")
    assert (hottest.share, hottest.stall) == (0.9, "long_scoreboard")
    assert (second.line, second.share, second.stall) == (2, 0.1, "wait")
    assert "scale.cu:4: 90 % long_scoreboard: x[i] = x[i] * 2.0f;" in kernel_text.for_model(profile)
    assert ncu_report.read(report)[0].lines[0].text == ""      # no folder was given: nothing is read that a report names


def lines_of(source: Path, folder: Path) -> Mapping[int, int]:
    """Offset of an instruction by the line it came from, as NVIDIA's reader sees them in the built kernel."""
    nvidia = importlib.import_module("ncu_report")
    kit = toolkit.find_toolkit()
    assert kit is not None
    cubin = folder / f"{source.stem}.cubin"
    subprocess.run([kit.nvcc, "-cubin", "-arch=sm_90", "-lineinfo", "-o", cubin, source], check=True)
    every = Launch("_Z5scalePfi", {}, {"smsp__pcsamp_sample_count": dict.fromkeys(range(0, 0x180, 16), 1)})
    context = nvidia.load_report(str(write(folder / "all.ncu-rep", [every], cubin.read_bytes())))
    action = context.range_by_idx(0).action_by_idx(0)
    addresses = action.metric_by_name("smsp__pcsamp_sample_count").correlation_ids()
    known = {addresses.as_uint64(i): action.source_info(addresses.as_uint64(i)) for i in range(addresses.num_instances())}
    first = min(known)
    return {info.line(): address - first for address, info in known.items() if info is not None}


def sampled(by_line: Mapping[int, int]) -> Launch:
    return Launch("_Z5scalePfi", {}, {
        "smsp__pcsamp_sample_count": {by_line[4]: 90, by_line[2]: 10},
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": {by_line[4]: 80},
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued": {by_line[2]: 999},
        "smsp__pcsamp_warps_issue_stalled_selected": {by_line[2]: 5},
        "smsp__pcsamp_warps_issue_stalled_wait": {by_line[4]: 10, by_line[2]: 5},
    })  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"NV"])
def test_a_file_of_another_kind_is_said_to_be_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ncu-rep").write_bytes(content)
    with pytest.raises(Unavailable, match="no report of Nsight Compute"):
        ncu_report.read(tmp_path / "x.ncu-rep")
    with pytest.raises(Unavailable, match="No such file"):
        ncu_report.read(tmp_path / "none.ncu-rep")


def test_a_report_whose_inside_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    report = write(tmp_path / "r.ncu-rep", [Launch("_Z1aPf", TRIAD)])
    report.write_bytes(report.read_bytes().replace(b"\x52\x06\x08\x01\x10\x01\x18\x01", b"\x52\x06\xff\xff\xff\xff\xff\xff"))
    with pytest.raises(Unavailable, match=r"damaged|cannot be read"):
        ncu_report.read(report)


def test_without_nvidia_s_reader_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setattr(ncu_report, "find_ncu", lambda: None)
    assert "pip install 'ncu-report" in ncu_report.missing()
    with pytest.raises(Unavailable, match="pip install"):
        ncu_report.read(write(tmp_path / "r.ncu-rep", [Launch("_Z1aPf", {})]))


def test_the_reader_that_nsight_compute_brings_is_used_where_none_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ncu_report.missing()                   # imported, so that it is put back afterwards
    home = tmp_path / "nsight-compute" / "2025.3.1"
    (home / "extras" / "python").mkdir(parents=True)
    (home / "extras" / "python" / "ncu_report.py").write_text("load_report = None\n")
    monkeypatch.setattr(ncu_report, "find_ncu", lambda: home / "ncu")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("site-packages")])
    monkeypatch.delitem(sys.modules, "ncu_report")
    assert ncu_report.missing() == ""
    assert sys.modules["ncu_report"].__file__ == str(home / "extras" / "python" / "ncu_report.py")
    assert str(home / "extras" / "python") not in sys.path
