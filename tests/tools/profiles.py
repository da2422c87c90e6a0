"""Profiles for what reads them: every figure is given by the test, the rest is zero or not known."""

from __future__ import annotations

from typing import Any

from stitchcuda.tools.profile.system_profile import KernelTime, Origin, RegionTime, SystemProfile, short_name

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, at::native::BinaryFunctor<float>)"
)


def profile(*kernels: tuple[str, Origin, str, float, float], idle: float = 0.0, **more: Any) -> SystemProfile:
    """Of kernels (name, origin, region, launches, ms), one after another, with `idle` ms between them."""
    busy = sum(kernel[4] for kernel in kernels)
    regions: dict[str, list[float]] = {}
    for _, _, region, launches, took in kernels:
        regions.setdefault(region, [0.0, 0.0])
        regions[region][0] += took
        regions[region][1] += launches
    facts: dict[str, Any] = {
        "source": "nsys",
        "calls": 10,
        "span_ms": busy + idle,
        "busy_ms": busy,
        "idle_ms": idle,
        "launches": sum(kernel[3] for kernel in kernels if kernel[1] != "copy"),
        "kernels": tuple(
            KernelTime(
                name=name, short=short_name(name), origin=origin, region=region, launches=launches, ms=took, share=took / busy,
            )
            for name, origin, region, launches, took in sorted(kernels, key=lambda kernel: -kernel[4])
        ),
        "regions": tuple(
            RegionTime(name=name, device_ms=took, host_ms=0.01, launches=launches, share=took / busy)
            for name, (took, launches) in sorted(regions.items(), key=lambda item: -item[1][0])
        ),
    }
    return SystemProfile(**facts | more)
