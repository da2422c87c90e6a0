"""What the sandbox costs: making a worker, its first work, a compiler command; with a GPU also a CUDA context inside.

    python benchmarks/sandbox.py                          # a table; results in benchmarks/results/

Each line is the median of several: a worker with nothing around it but its supervisor (as the reference's), and one that is
shut in (as a program's). "answers" is the time from the order to the first answer; "context" torch's first tensor on the GPU.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from stitchcuda.sandbox import command
from stitchcuda.state import Target
from stitchcuda.verify.processes import forkserver as forkservers
from stitchcuda.verify.processes.forkserver import ForkServer
from tests.sandbox.prison import Prisoner

ROUNDS = 7
FIRST_WORK = """
import time
started = time.perf_counter()
import torch
x = torch.ones(1 << 20, device="cuda")
torch.cuda.synchronize()
out = {"context_ms": 1e3 * (time.perf_counter() - started)}
"""
GPU_WORK = """
import ctypes, time, torch
out = {}
def part(name, act):
    started = time.perf_counter()
    try:
        act()
        out[name] = round(1e3 * (time.perf_counter() - started), 1)
    except Exception as error:
        out[name] = f"{type(error).__name__}: {str(error)[:200]}"
x = torch.randn(512, 512, device="cuda")
part("gemm", lambda: (x @ x).sum().item())
image, weight = torch.randn(1, 8, 32, 32, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
part("conv", lambda: torch.nn.functional.conv2d(image, weight).sum().item())
part("pinned", lambda: torch.empty(1 << 24).pin_memory().to("cuda", non_blocking=True).sum().item())
def graph():
    g = torch.cuda.CUDAGraph()
    y = torch.zeros(64, device="cuda")
    with torch.cuda.graph(g):
        y.add_(1)
    g.replay(); torch.cuda.synchronize()
    assert y[0].item() == 1
part("graph", graph)
def profile():
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        (x @ x).sum().item()
    assert any(event.device_type == torch.autograd.DeviceType.CUDA for event in p.events()), "CUPTI saw no kernel"
part("cupti", profile)
source = "template <typename T> T f(T a) { return a + 1; }"
part("jiterator (NVRTC)", lambda: torch.cuda.jiterator._create_jit_fn(source)(x).sum().item())
part("event", lambda: torch.cuda.Event(enable_timing=True).record())
part("write its scratch", lambda: open(scratch + "/x", "w").write("x"))
part("read outside", lambda: open("/root/.bashrc").read())
part("fork", lambda: __import__("subprocess").run(["true"]))
"""


def main() -> None:
    forkservers._WORKERS = {"program": "tests.sandbox.hostile", "reference": "tests.sandbox.hostile"}
    forkserver = ForkServer()
    target: Target = "cuda" if torch.cuda.is_available() else "sim"
    figures: dict[str, Any] = {}
    for label, kind in (("supervised", "reference"), ("shut in", "program")):
        rows: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            with Prisoner(forkserver, kind=kind, target=target) as prisoner:
                row = {"spawn_ms": 1e3 * (time.perf_counter() - started)}
                prisoner.does("out = 1")
                row["answers_ms"] = 1e3 * (time.perf_counter() - started)
                if target == "cuda" and len(rows) < 3:
                    said = prisoner.does(FIRST_WORK, 60)
                    row |= said if isinstance(said, dict) else {"failed": said}
                if target == "cuda" and not rows:
                    figures[f"{label}: GPU work"] = prisoner.does(GPU_WORK, 120)
                    figures[f"{label}: output"] = prisoner.child.output()[-1500:]
                    figures[f"{label}: protections"] = prisoner.child.protections._asdict()
                started = time.perf_counter()
                prisoner.child.end()
                row["end_ms"] = 1e3 * (time.perf_counter() - started)
                rows.append(row)
        for name in ("spawn_ms", "answers_ms", "context_ms", "end_ms"):
            values = [row[name] for row in rows if name in row]
            figures[f"{label}: {name}"] = round(statistics.median(values), 1) if values else None
        figures[f"{label}: failures"] = [row["failed"] for row in rows if "failed" in row]
    forkserver.close()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        command.run(["true"], seconds=10)
        times.append(1e3 * (time.perf_counter() - started))
    figures["a command: ms"] = round(statistics.median(times), 1)
    device = torch.cuda.get_device_name() if target == "cuda" else platform.processor() or platform.machine()
    result = {"date": str(date.today()), "device": device, "kernel": platform.release(), "torch": torch.__version__, **figures}
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"sandbox-{target}.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, value in result.items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
