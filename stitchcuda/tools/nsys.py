"""The system's view of one call: which kernels took the time, and how long the device waited for the host.

Where Nsight Systems itself is not run, CUPTI through torch.profiler answers the same questions from inside the program
worker. Without a GPU nothing is measured and the result says so. Where to look next: `origin.py`, `ncu.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.state import ProfileResult
from stitchcuda.tools.check import Judge

_KERNELS = 8                               # lines for a reader; the long tail says nothing
_HOST_BOUND = 0.3                          # share of the span in which the device waits


def profile_system(program: Path, judge: Judge) -> ProfileResult:
    """Kernel time by name, launches and device idle time of one warm call; `skipped` says why there is none."""
    try:
        seen = judge.profile(program)
    except Unavailable as why:
        return ProfileResult(tool="nsys", skipped=f"no GPU on this machine ({why})")
    return ProfileResult(tool="nsys", bottleneck=_bottleneck(seen), lines=_lines(seen))


def _lines(seen: dict[str, Any]) -> tuple[str, ...]:
    busy, span = float(seen["busy_ms"]), float(seen["span_ms"])
    idle = max(0.0, span - busy)
    head = (
        f"{seen['launched']} kernel launches, {seen['launches']} of them own; device busy {busy:.3f} ms of {span:.3f} ms, "
        f"idle {idle:.3f} ms (through CUPTI)"
    )
    kernels = [
        f"{took:8.3f} ms {100 * took / busy if busy else 0:5.1f} % {count:4d}x {origin:9s} {name[:120]}"
        for name, took, count, origin in seen["kernels"][:_KERNELS]
    ]
    return (head, *kernels)


def _bottleneck(seen: dict[str, Any]) -> str:
    busy, span = float(seen["busy_ms"]), float(seen["span_ms"])
    if span > 0 and (span - busy) / span > _HOST_BOUND:
        return f"the host: the device waits {100 * (span - busy) / span:.0f} % of the time between launches"
    if not seen["kernels"]:
        return "no kernel ran"
    name, took, count, origin = seen["kernels"][0]
    share = 100 * took / busy if busy else 0.0
    return f"{origin} kernel {name[:80]}: {took:.3f} ms in {count} launches, {share:.0f} % of the device time"
