"""A report that Nsight Compute wrote on a real GPU: what is read out of it against what was measured without it, and its ruins.

fixtures/README.md says how the report was made. The expectations lie beside it and come from the benchmark that made it: bounds
by construction, times between CUDA events, bytes and flops counted from the kernels' sizes.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.profile import ncu_report, report_reader
from stitchcuda.tools.profile.kernel_profile import KernelProfile

FIXTURES = Path(__file__).parent / "fixtures"
PACKED = FIXTURES / "kernel_bounds.ncu-rep.gz"
KNOWN: dict[str, dict[str, Any]] = json.loads((FIXTURES / "kernel_bounds.expected.json").read_text())["kernels"]
WHOLE = gzip.decompress(PACKED.read_bytes())
RATE, LATENCY, SM = (
    b"dram__bytes.sum.per_second",
    b"smsp__average_warp_latency_per_inst_issued.ratio",
    b"sm__throughput.avg.pct_of_peak_sustained_elapsed",
)


def read(tmp_path: Path, content: bytes = WHOLE) -> dict[str, KernelProfile]:
    (tmp_path / "r.ncu-rep").write_bytes(content)
    return {base_name(profile.name): profile for profile in ncu_report.read(tmp_path / "r.ncu-rep")}


def without(metric: bytes) -> bytes:
    """The report of a version that does not know a metric: it has one of another name."""
    assert metric in WHOLE
    return WHOLE.replace(metric, metric[:-6] + b"_other")


def test_bounds_and_limiters_are_those_the_kernels_were_written_for(tmp_path: Path) -> None:
    profiles = read(tmp_path)
    assert set(profiles) == set(KNOWN) == {"triad", "fma_chains", "pointer_chase"}
    assert {name: profile.bound for name, profile in profiles.items()} == {name: one["bound"] for name, one in KNOWN.items()}
    assert not [profile.limiter for name, profile in profiles.items() if not re.search(KNOWN[name]["limiter"], profile.limiter)]


def test_figures_agree_with_events_and_with_counted_bytes_and_flops(tmp_path: Path) -> None:
    compared = set()
    for name, profile in read(tmp_path).items():
        known = KNOWN[name]
        assert profile.duration_us == pytest.approx(known["us"], rel=0.1), name
        assert profile.roofline.flops == pytest.approx(known["gflops"] * 1e9, rel=0.1), name
        assert profile.grid is not None
        assert profile.block is not None
        assert profile.grid[0] * profile.block[0] == known["threads"], name
        if "gbs" in known:                 # the first recording's kernels did not all move their bytes through DRAM
            compared.add(name)
            assert profile.dram_gbs == pytest.approx(known["gbs"], rel=0.1), name
            moved = (profile.dram_read_bytes or 0) + (profile.dram_write_bytes or 0)
            assert moved == pytest.approx(known["bytes"], rel=0.1), name
    assert "triad" in compared


def test_samples_lead_to_lines_whose_text_the_report_holds(tmp_path: Path) -> None:
    for name, profile in read(tmp_path).items():
        hottest = profile.lines[0]
        assert hottest.file.endswith(f"/kernel_bounds/{name}.cu")
        assert hottest.text in WHOLE.decode(errors="replace").split("__global__", 1)[1]
        assert hottest.text
        assert 0.5 < sum(line.share for line in profile.lines) <= 1.0001
        assert profile.stalls[0].share > 0.5
        assert profile.rules


def test_the_process_of_its_own_reads_the_same(tmp_path: Path) -> None:
    here = read(tmp_path)
    assert {base_name(one.name): one for one in report_reader.read_apart(tmp_path / "r.ncu-rep")} == here


def test_without_the_rate_the_bandwidth_follows_from_bytes_and_time(tmp_path: Path) -> None:
    whole, other = read(tmp_path), read(tmp_path, without(RATE))
    assert RATE.decode() not in other["triad"].metrics
    assert {name: one.dram_gbs for name, one in other.items()} == pytest.approx(
        {name: one.dram_gbs for name, one in whole.items()}, rel=1e-3
    )


def test_without_the_averages_stalls_come_from_the_samples(tmp_path: Path) -> None:
    whole, other = read(tmp_path), read(tmp_path, without(LATENCY))
    for name in KNOWN:
        first, again = whole[name].stalls[0], other[name].stalls[0]
        assert again.reason == first.reason, name
        assert again.share == pytest.approx(first.share, abs=0.1)
        assert again.share != first.share


def test_without_a_throughput_no_bound_is_named(tmp_path: Path) -> None:
    assert {(one.bound, one.limiter) for one in read(tmp_path, without(SM)).values()} == {(None, "")}


def test_a_report_cut_off_anywhere_is_refused_or_gives_its_first_kernels_unchanged(tmp_path: Path) -> None:
    whole = list(read(tmp_path).values())
    for kept in random.Random(20261122).choices(range(8, len(WHOLE)), k=20):
        try:
            found = list(read(tmp_path, WHOLE[:kept]).values())
        except Unavailable:
            continue
        assert found == whole[: len(found)]


def test_a_damaged_report_is_refused_or_read_and_never_ends_the_process(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(3):
        at = chance.randrange(len(WHOLE) - 64)
        (tmp_path / "d.ncu-rep").write_bytes(WHOLE[:at] + chance.randbytes(64) + WHOLE[at + 64 :])
        assert came_of(tmp_path / "d.ncu-rep") in ("3 kernels", "0 kernels", "profile the kernels again")


def came_of(report: Path) -> str:
    try:
        return f"{len(report_reader.read_apart(report))} kernels"
    except Unavailable as refused:
        return str(refused).split("; ")[-1]


def test_the_recording_is_small_and_names_nobody() -> None:
    assert PACKED.stat().st_size < 200_000
    assert re.findall(rb"/(?:home|root|Users)/[\w./-]*", WHOLE) == []
