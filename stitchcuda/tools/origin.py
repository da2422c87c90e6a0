"""Device time by origin on a GPU: own kernels, vendor libraries, framework operators, through CUPTI (torch.profiler).

Names decide: a kernel is the program's own when its source defines it, a vendor's when it is named as cuBLAS, cuDNN and
their kin name theirs. CUPTI needs no counter permission. Runs in workers only. Where to look next: `traffic.py` (the same
question on the simulator), `nsys.py` (who reads the lines).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_GLOBAL = re.compile(r"__global__[\s\S]{0,300}?\b(\w+)\s*(?:<[^;{()]*>)?\s*\((?!\s*\d+\s*[,)])")
_ATTRIBUTES = ("__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "alignas", "__attribute__")
_VENDOR = re.compile(
    r"cublas|cudnn|cutlass|nvjet|gemm|gemv|xmma|cudnn|flash_fwd|flash_attn|fmha|implicit_convolve|winograd|cusparse|cufft|"
    r"splitKreduce|dot_kernel|sm\d\d_|ampere_|volta_|hopper_|convolve|nchwToNhwc|nhwcToNchw|RNN_|LSTM|GRU",
    re.IGNORECASE,
)


def own_kernels(folder: Path) -> tuple[str, ...]:
    """Names of the `__global__` functions in a program's sources, inline ones included."""
    names: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cu", ".cuh", ".py", ".h", ".hpp") and path.is_file():
            text = path.read_text(errors="replace")
            for attribute in _ATTRIBUTES:
                text = re.sub(rf"{attribute}\s*\((?:[^()]|\([^()]*\))*\)", " ", text)
            names += _GLOBAL.findall(text)
    return tuple(dict.fromkeys(names))


def classify(kernel: str, own: tuple[str, ...]) -> str:
    """"own", "vendor" or "framework" for a demangled kernel name."""
    plain = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    base = re.split(r"[<(]", plain)[0].split("::")[-1].strip()
    if base in own:
        return "own"
    return "vendor" if _VENDOR.search(kernel) else "framework"


def profile(call: Callable[[], object], own: tuple[str, ...], *, restore: Callable[[], None]) -> dict[str, Any]:
    """Profile one warm call: {own, vendor, framework} shares of device time, launches of own kernels, time by kernel.

    `span_ms` is from the first kernel's start to the last one's end, `busy_ms` what kernels took, so their difference is
    time in which the device waited for the host.
    """
    restore()
    call()
    restore()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        call()
        torch.cuda.synchronize()
    totals = {"own": 0.0, "vendor": 0.0, "framework": 0.0}
    launches = 0
    kernels: dict[str, list[float]] = {}
    starts: list[float] = []
    ends: list[float] = []
    for event in recorded.events():
        on_device = str(event.device_type).endswith("CUDA")
        if not on_device or event.name.startswith(("ProfilerStep", "Activity Buffer")):
            continue
        took = float(event.time_range.elapsed_us())
        kind = classify(event.name, own)
        totals[kind] += took
        launches += kind == "own"
        starts.append(float(event.time_range.start))
        ends.append(float(event.time_range.end))
        entry = kernels.setdefault(event.name, [0.0, 0])
        entry[0] += took
        entry[1] += 1
    total = sum(totals.values())
    ranked = sorted(kernels.items(), key=lambda item: -item[1][0])[:20]
    return {
        **{kind: took / total if total else 0.0 for kind, took in totals.items()},
        "launches": launches,
        "kernels": [[name, took / 1e3, int(count), classify(name, own)] for name, (took, count) in ranked],
        "launched": int(sum(count for _, count in kernels.values())),
        "busy_ms": total / 1e3,
        "span_ms": (max(ends) - min(starts)) / 1e3 if ends else 0.0,
    }
