"""The benchmark of kernels with known bounds: its kernels on the simulator, and what it takes for wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from benchmarks.kernel_bounds import CHAINS, KNOWN, SOURCES, cases, keep, table, wrong
from stitchcuda.simulator.build import build_simulated
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from tests.simulator.programs import CACHE, HOME

MEASURED = {name: {"bound": bound, "limiter": limiter, "us": 100.0, "gbs": 200.0, "gflops": 1.0}
            for name, (bound, limiter) in KNOWN.items()}  # fmt: skip
LIMITERS = {
    "triad": "DRAM bandwidth",
    "fma_chains": "instruction issue",
    "pointer_chase": "too few blocks (0.0076 of a full wave), warps wait for global or local memory (99 % of their time)",
}


def profiled(**changed: dict[str, Any]) -> dict[str, KernelProfile]:
    """Profiles as they should be, but for what is given."""
    return {
        name: KernelProfile.model_validate(
            {"name": name, "bound": bound, "limiter": LIMITERS[name], "dram_gbs": 200.0} | changed.get(name, {})
        )
        for name, (bound, _) in KNOWN.items()
    }


def test_the_kernels_compute_what_they_should_and_touch_all_that_is_counted() -> None:
    sources = [*sorted(SOURCES.glob("*.cu")), SOURCES / "binding.cc"]
    kernels = tvm_ffi.load_module(str(build_simulated(sources, name="kernel_bounds", cache=CACHE, home=HOME)))
    array = 64 * CHAINS * 4
    prepared = cases(kernels, array, "cpu")
    assert set(prepared) == set(KNOWN)
    for name, case in prepared.items():
        assert not case.right(), f"{name} before it ran"
        case.launch()
        assert case.right(), name
    least = {"triad": 3, "fma_chains": 1, "pointer_chase": 1}
    for name, case in prepared.items():
        assert least[name] * array <= case.bytes <= (least[name] + 0.05) * array


def test_profiles_that_agree_are_not_wrong() -> None:
    assert wrong(profiled(), MEASURED) == []
    assert wrong(profiled(triad={"dram_gbs": 219.0}, fma_chains={"limiter": "FP32 units"}), MEASURED) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"triad": {"dram_gbs": 221.0}}, "triad: 221.0 GB/s by ncu, 200.0 by bytes over time"),
        ({"fma_chains": {"dram_gbs": 179.0}}, "fma_chains: 179.0 GB/s by ncu, 200.0 by bytes over time"),
        ({"pointer_chase": {"dram_gbs": None}}, "pointer_chase: - GB/s by ncu, 200.0 by bytes over time"),
        ({"fma_chains": {"bound": "latency"}}, "fma_chains: bound by latency instead of compute"),
        ({"triad": {"bound": None}}, "triad: bound by nothing known instead of memory"),
        ({"triad": {"limiter": "L2 bandwidth"}}, "triad: limited by L2 bandwidth; expected ^DRAM bandwidth$"),
        ({"pointer_chase": {"limiter": LIMITERS["pointer_chase"].replace("global or local", "shared")}},
         "pointer_chase: limited by too few blocks"),
    ],
)  # fmt: skip
def test_one_figure_that_is_off_is_said_and_nothing_else(changed: dict[str, dict[str, Any]], said: str) -> None:
    (sentence,) = wrong(profiled(**changed), MEASURED)
    assert sentence.startswith(said)


def test_a_kernel_that_was_not_profiled_is_said() -> None:
    profiles = profiled()
    del profiles["triad"]
    assert wrong(profiles, MEASURED) == ["triad: ncu did not profile it"]


def test_the_table_has_the_deviation_of_each_kernel() -> None:
    rows = table(profiled(triad={"dram_gbs": 190.0}, pointer_chase={"dram_gbs": None}), MEASURED).splitlines()
    assert [row.split(" | ")[6] for row in rows[2:]] == ["-5.0 %", "+0.0 %", "-"]


def test_what_is_kept_is_the_report_and_what_was_measured_without_it(tmp_path: Path) -> None:
    (tmp_path / "kernels-0.ncu-rep").write_bytes(b"NVR\0")
    keep(tmp_path / "kept", tmp_path / "kernels-0.ncu-rep", {"device": "a GPU", "kernels": MEASURED})
    assert gzip.decompress((tmp_path / "kept" / "kernel_bounds.ncu-rep.gz").read_bytes()) == b"NVR\0"
    kept = json.loads((tmp_path / "kept" / "kernel_bounds.expected.json").read_text())
    assert kept == {"device": "a GPU", "kernels": MEASURED}
