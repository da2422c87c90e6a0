"""A profile in columns that fit a terminal, alone and before and after; what is left out is summed."""

from __future__ import annotations

from stitchcuda.tools.profile.profile_table import comparison, table
from stitchcuda.tools.profile.system_profile import ELSEWHERE, HostCall, SystemProfile
from tests.tools.profiles import ELEMENTWISE, profile

WIDE = 100


def test_one_profile() -> None:
    act = (("act", "framework", "mlp", 2, 0.15), ("act", "framework", ELSEWHERE, 1, 0.1))
    seen = profile(("gemm", "vendor", "mlp", 1, 0.75), *act)  # type: ignore[arg-type]
    assert table(seen).splitlines() == [
        "region                                            device ms        share     launches     host ms*",
        "mlp                                                   0.900         90 %            3        0.010",
        "(elsewhere)                                           0.100         10 %            1        0.010",
        "all                                                   1.000        100 %            4        0.020",
        "* in calls in which ranges mark the regions and slow the host down: more than in a plain call",
        "",
        "kernel                                            device ms        share     launches        whose",
        "gemm                                                  0.750         75 %            1       vendor",
        "act                                                   0.250         25 %            3    framework",
        "all                                                   1.000        100 %            4",
    ]


def test_before_and_after() -> None:
    before = profile(
        ("gemm", "vendor", "mlp", 1, 0.75), (ELEMENTWISE, "framework", "norm", 5, 0.25), idle=0.5,
        host=(HostCall(name="cudaLaunchKernel", calls=6, ms=0.06),), sync_ms=0.0,
    )  # fmt: skip
    after = profile(
        ("gemm", "vendor", "mlp", 1, 0.75), ("norm_kernel", "own", "norm", 1, 0.05),
        host=(HostCall(name="cudaLaunchKernel", calls=2, ms=0.02),), sync_ms=0.0,
    )  # fmt: skip
    assert comparison(before, after, names=("reference", "program")).splitlines() == [
        "one call                                          reference      program       change",
        "on the device, first to last work                   1.50 ms     0.800 ms        -47 %",
        "device busy                                         1.00 ms     0.800 ms        -20 %",
        "device idle in between                             0.500 ms         0 ms       -100 %",
        "host inside of CUDA's API                          0.060 ms     0.020 ms        -67 %",
        "kernels                                                   6            2        -67 %",
        "",
        "region                                         reference ms   program ms       change     launches",
        "mlp                                                   0.750        0.750       +0.000       1 -> 1",
        "norm                                                  0.250        0.050       -0.200       5 -> 1",
        "all                                                   1.000        0.800       -0.200       6 -> 2",
        "",
        "kernel                                         reference ms   program ms       change     launches",
        "gemm                                                  0.750        0.750       +0.000       1 -> 1",
        "vectorized_elementwise_kernel<MulFunctor>             0.250            -       -0.250       5 -> 0",
        "norm_kernel                                               -        0.050       +0.050       0 -> 1",
        "all                                                   1.000        0.800       -0.200       6 -> 2",
    ]


def test_many_long_names_fit() -> None:
    kernels = [
        (f"void ns::kernel_{number}_{'x' * 300}(int)", "own", f"blocks.*.{'deep.' * 30}{number}: linear", 123_456, 1234.5)
        for number in range(40)
    ]
    seen = profile(*kernels)  # type: ignore[arg-type]
    for text in (table(seen), comparison(seen, seen, names=("the reference", "the program"))):
        assert max(map(len, text.splitlines())) <= WIDE
        assert "(30 more)" in text
        assert "49380.000" in text, "the sum holds what is left out"


def test_nothing_but_a_time() -> None:
    nothing = SystemProfile(source="events", calls=3, span_ms=1.5)
    assert table(nothing) == "nothing but the time of a call is known: 1.50 ms"
    assert "1.50 ms      1.50 ms         +0 %" in comparison(nothing, nothing).splitlines()[1]
