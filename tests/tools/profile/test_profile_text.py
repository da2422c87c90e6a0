"""A profile says what limits a call: the host, copies, one region, one kernel, or nothing in particular."""

from __future__ import annotations

import pytest

from stitchcuda.tools.profile.profile_text import amount, bottleneck, clipped, lines, ms
from stitchcuda.tools.profile.system_profile import ELSEWHERE, CopyTime, Gaps, HostCall, SystemProfile, short_name
from tests.tools.profiles import ELEMENTWISE, profile


def test_the_host_launches_too_slowly() -> None:
    said = bottleneck(profile(("k", "own", "r", 118, 0.7), idle=0.5))
    assert said == "the host: the device waits 42 % of the time, 0.500 ms of 1.20 ms, while 118 kernels are launched one by one"


def test_the_host_waits_for_the_device() -> None:
    said = bottleneck(profile(("k", "own", "r", 4, 0.7), idle=0.5, syncs=3, sync_ms=0.2))
    assert said.endswith("; the host waits for the device 3 times in a call, and launches nothing meanwhile")


def test_between_graphs() -> None:
    said = bottleneck(profile(("k", "own", "r", 40, 0.7), idle=0.5, graph_launches=2, graph_share=0.9))
    assert said.endswith("between 2 CUDA graph launches and what runs outside of them")


def test_copies_to_and_from_the_host() -> None:
    inside = CopyTime(kind="Device-to-Device", count=1, size=5, ms=0.1)
    copies = (CopyTime(kind="Host-to-Device", count=2, size=12e6, ms=0.6), inside)
    said = bottleneck(profile(("copy Host-to-Device", "copy", "r", 2, 0.6), ("k", "own", "r", 1, 0.4), copies=copies))
    assert said == "copies between host and device: 0.600 ms of 1.00 ms on the device, for 12.0 MB"


def test_a_region_with_the_kernel_that_it_spends_its_time_in() -> None:
    seen = profile(("gemm", "vendor", "mlp", 1, 0.5), ("act", "framework", "mlp", 1, 0.1), ("n", "own", "norm", 2, 0.4))
    said = bottleneck(seen)
    assert said == "mlp: 60 % of the device time, 0.600 ms, in 2 launches; mostly vendor kernel gemm, 0.500 ms"


def test_a_kernel_that_is_everywhere_outweighs_each_region() -> None:
    kernels = [(ELEMENTWISE, "framework", f"layer {number}", 3.0, 0.2) for number in range(5)]
    said = bottleneck(profile(*kernels))  # type: ignore[arg-type]
    expected = "framework kernel vectorized_elementwise_kernel<MulFunctor>: 100 % of the device time, 1.00 ms, in 15 launches"
    assert said == expected


def test_no_single_place() -> None:
    kernels = [(f"k{number}", "framework", f"r{number}", 1.0, 0.1) for number in range(20)]
    said = bottleneck(profile(*kernels))  # type: ignore[arg-type]
    assert said == "no single place: 20 kernels share 2.00 ms; the largest, k0, takes 5 %"


def test_what_is_not_known_is_not_guessed() -> None:
    nothing = SystemProfile(source="events", why="CUPTI is in use", calls=30, span_ms=1.5)
    assert bottleneck(nothing) == "not known: only the time of a call was measured, 1.50 ms"
    assert lines(nothing) == (
        "CUDA events, mean of 30 calls (CUPTI is in use)", "a call took 1.50 ms; what ran in it is not known",
    )  # fmt: skip


def test_a_profile_in_lines() -> None:
    seen = profile(
        ("gemm", "vendor", "mlp", 1, 0.75), ("act", "framework", ELSEWHERE, 2, 0.25), idle=0.1,
        gaps=Gaps(count=2, total_ms=0.1, longest_ms=0.07, before="act"), streams=1, graph_launches=1, graph_share=1 / 3,
        host=(HostCall(name="cudaLaunchKernel", calls=2, ms=0.02), HostCall(name="cudaGraphLaunch", calls=1, ms=0.01)),
        syncs=1, sync_ms=0.5, copies=(CopyTime(kind="Device-to-Host", count=1, size=4, ms=0.001),),
        notes=("something was lost",),
    )  # fmt: skip
    assert lines(seen) == (
        "Nsight Systems, mean of 10 calls",
        "device: busy 1.00 ms of 1.10 ms, idle 0.100 ms in 2 gaps, the longest 0.070 ms before act",
        "3 kernels, 1 CUDA graph launch (33 % of the kernels), 1 stream; device time: vendor 75 %, framework 25 %",
        "host: 0.030 ms inside of CUDA's API, most in cudaLaunchKernel 0.020 ms (2x), cudaGraphLaunch 0.010 ms (1x)",
        "the host waits for the device 1 time, 0.500 ms in all",
        "copies: Device-to-Host 1x, 4 B, 0.0010 ms",
        "region mlp: 75 % of the device time, 0.750 ms, 1 launch",
        "region (elsewhere): 25 % of the device time, 0.250 ms, 2 launches",
        "vendor kernel gemm: 75 % of the device time, 0.750 ms, 1 launch, in mlp",
        "framework kernel act: 25 % of the device time, 0.250 ms, 2 launches, in (elsewhere)",
        "something was lost",
    )


def test_a_long_profile_stays_short() -> None:
    seen = profile(*[(ELEMENTWISE + str(number), "framework", f"r{number}", 1.0, 0.1) for number in range(99)])
    assert len(lines(seen)) <= 16
    assert max(map(len, lines(seen))) < 200


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ELEMENTWISE, "vectorized_elementwise_kernel<MulFunctor>"),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
            "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>"
            "(at::TensorIteratorBase&, ...)::{lambda(int)#1}>(int, ...)",
            "elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(...)",
            "reduce_kernel<MeanOps>",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*, float const*)", "softmax_warp_forward"),
        ("void <unnamed>::softmax_warp_forward<float, (int)10>(float *, const float *)", "softmax_warp_forward"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(Params)", "Kernel2"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN"),
        ("my_kernel", "my_kernel"),
        ("copy Host-to-Device", "copy Host-to-Device"),
        ("CUDA graph 5, as a whole", "CUDA graph 5, as a whole"),
    ],
)
def test_names_for_people(name: str, short: str) -> None:
    assert short_name(name) == short


def test_figures_for_people() -> None:
    assert [ms(value) for value in (0, 0.0004, 0.0123, 0.5, 1.2345, 12.345, 1234.5)] == [
        "0 ms", "0.0004 ms", "0.012 ms", "0.500 ms", "1.23 ms", "12.3 ms", "1234 ms",
    ]  # fmt: skip
    assert [amount(size) for size in (4, 999, 999.6, 4.2e6, 999.7e6, 2.5e12)] == [
        "4 B", "999 B", "1.0 kB", "4.2 MB", "1.0 GB", "2500 GB",
    ]  # fmt: skip
    assert clipped("a_very_long_kernel_name_tail", 12) == "a_very_l…ail"
    assert clipped("short", 5) == "short"
