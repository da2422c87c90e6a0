"""What bounds a kernel: NVIDIA's thresholds, and what a model and a person are told."""

from __future__ import annotations

import pytest

from stitchcuda.tools.profile import kernel_text
from stitchcuda.tools.profile.kernel_profile import (
    Bound,
    KernelProfile,
    Occupancy,
    Roofline,
    RuleResult,
    SourceLine,
    Stall,
    bound_of,
    limiter_of,
    occupancy_limits,
    unit_of,
)

FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed"
LSU = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    ("sm", "memory", "busiest", "bound"),
    [
        (20.0, 91.0, FMA, "memory"),
        (85.0, 30.0, FMA, "compute"),
        (59.9, 59.9, FMA, "latency"),
        (60.0, 10.0, FMA, "compute"),      # the threshold itself is no longer latency
        (10.0, 60.0, FMA, "memory"),
        (83.2, 83.1, FMA, "compute"),      # balanced: the busier one
        (83.2, 83.1, LSU, "memory"),       # balanced, but the multiprocessors are busy with loads
        (95.0, 40.0, LSU, "compute"),      # not balanced: the figures decide
        (None, 90.0, FMA, None),
        (90.0, None, FMA, None),
    ],
)
def test_the_bound_follows_the_speed_of_light_rule(sm: float | None, memory: float | None, busiest: str, bound: Bound) -> None:
    assert bound_of(Roofline(sm_percent=sm, memory_percent=memory), busiest) == bound


def test_a_kernel_that_waits_is_told_for_what() -> None:
    few = Occupancy(theoretical=100.0, achieved=6.0, waves=0.02)
    waits = (Stall(reason="long_scoreboard", share=0.8),)
    assert limiter_of("latency", few, waits) == (
        "too few blocks (0.02 of a full wave), warps wait for global or local memory (80 % of their time)"
    )
    assert limiter_of("latency", Occupancy(achieved=20.0), ()) == "few warps at a time (20 % of what fits)"
    assert limiter_of(None, few, waits) == ""


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("dram__cycles_active.avg.pct_of_peak_sustained_elapsed", "DRAM bandwidth"),
        ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "L2 bandwidth"),
        ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", "L1 and shared memory bandwidth"),
        (FMA, "FP32 units"),
        ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", "special functions and conversions"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor cores"),
        ("sm__inst_executed.avg.pct_of_peak_sustained_elapsed", "instruction issue"),
        ("", ""),
        ("something__of.the.future", ""),
    ],
)
def test_the_busiest_part_is_named_in_words(metric: str, unit: str) -> None:
    assert unit_of(metric) == unit


def test_occupancy_names_every_resource_that_allows_the_fewest_blocks() -> None:
    limits = {"registers": 4.0, "shared memory": 4.0, "blocks": 32.0, "barriers": None}
    assert occupancy_limits(limits, 50.0) == ("registers", "shared memory")
    assert occupancy_limits(limits, 100.0) == ()  # all warps fit: four blocks are enough
    assert occupancy_limits({"registers": None}, 50.0) == ()


PROFILE = KernelProfile(
    name="void ns::triad<float>(float*, float const*)",
    origin="own",
    share=0.42,
    duration_us=12.5,
    bound="memory",
    limiter="DRAM bandwidth",
    roofline=Roofline(sm_percent=12.0, memory_percent=93.4, dram_percent=93.4, flops=2.5e11, intensity=0.17),
    occupancy=Occupancy(theoretical=50.0, achieved=45.0, limited_by=("registers",)),
    dram_gbs=4123.0,
    stalls=(Stall(reason="long_scoreboard", share=0.9), Stall(reason="wait", share=0.05)),
    rules=(RuleResult(rule="R", title="Uncoalesced", message="word " * 200, speedup_percent=12.0, scope="kernel"),),
    lines=(SourceLine(file="triad.cu", line=7, share=0.8, stall="long_scoreboard", text="a[i] = b[i];"),),
)


def test_a_model_reads_a_few_short_lines_and_nothing_that_was_not_measured() -> None:
    said = kernel_text.for_model(PROFILE)
    assert said[0] == "triad is bound by memory: DRAM bandwidth (memory 93 %, multiprocessors 12 % of their peak)"
    assert "memory: DRAM 93 %, 4.12 TB/s" in said
    assert "arithmetic: 250.00 Gflop/s, 0.17 flop/byte" in said
    assert "occupancy: achieved 45 %, possible 50 %, limited by registers" in said
    assert "triad.cu:7: 80 % long_scoreboard: a[i] = b[i];" in said
    assert said[-1].endswith("... (ncu's estimate: 12 %)")
    assert len(said) < 12
    assert all(len(line) < 400 and "None" not in line for line in said)


def test_a_person_reads_whose_kernel_it_is_and_what_it_takes() -> None:
    first, *rest = kernel_text.for_person(PROFILE).splitlines()
    assert first == "void ns::triad<float>(float*, float const*) (own, 42 % of the device time)"
    assert len(rest) == len(kernel_text.for_model(PROFILE))
    many = PROFILE.model_copy(update={"rules": PROFILE.rules * 5})
    *_, last, more = kernel_text.for_person(many).splitlines()
    assert last.startswith("  ncu: Uncoalesced")
    assert more == "  2 more of ncu's rules: --json has them"
    assert kernel_text.for_person(many).count("ncu: Uncoalesced") == 3


def test_a_profile_survives_being_stored() -> None:
    assert KernelProfile.model_validate_json(PROFILE.model_dump_json()) == PROFILE
