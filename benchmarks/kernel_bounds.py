"""What a kernel's profile says of three kernels whose bound is known, and its bandwidth beside a count of bytes over time.

    python -m benchmarks.kernel_bounds [--keep DIR] [--small]   # a table, and one in JSON on request (--json FILE)
    python -m benchmarks.kernel_bounds --build                  # only builds the kernels; needs no GPU

A streaming triad (memory), FMA chains at full occupancy (compute) and a few warps chasing pointers (latency), in
benchmarks/kernel_bounds/. They run once under ncu, and in another process between CUDA events, each time with a cold L2; there
a kernel's bytes and flops are counted from its sizes. Exits with 1 where a bound is not as expected, or where ncu's DRAM
bandwidth of the triad is more than 10 % off the counted one; then ncu's output is printed whole. `--keep DIR` keeps the
reports; `--small` makes sizes so small that a report is a file for tests, and says nothing of bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.errors import StitchError
from stitchcuda.sandbox.command import Finished
from stitchcuda.tools import kernel_text, ncu_command, ncu_report, toolkit
from stitchcuda.tools.kernel_names import base_name
from stitchcuda.tools.kernel_profile import KernelProfile
from stitchcuda.tools.ncu_command import Chosen

SOURCES = Path(__file__).resolve().parent / "kernel_bounds"
NAMES = {"triad": "memory", "fma_chains": "compute", "pointer_chase": "latency"}
CALLS, TOLERANCE = 20, 0.10
ROUNDS, HOPS, CHAINS = 8192, 4000, 8


@dataclass(frozen=True)
class Case:
    """One kernel, ready to be launched, and what it moves and computes by its sizes."""

    launch: Callable[[], object]
    bytes: int
    flops: int


def build() -> Any:
    """The three kernels through tvm-ffi, as generated programs build theirs; built once per version of the sources."""
    import tvm_ffi.cpp

    kit = toolkit.find_toolkit()
    if kit is None:
        raise SystemExit(toolkit.missing())
    os.environ.setdefault("CUDA_HOME", str(kit.home))
    kernels = sorted(SOURCES.glob("*.cu"))
    return tvm_ffi.cpp.load(
        "kernel_bounds",
        cpp_files=[str(SOURCES / "binding.cc")],
        cuda_files=[str(kernel) for kernel in kernels],
        extra_cuda_cflags=["-lineinfo"],
        extra_include_paths=[str(folder) for folder in kit.includes],
    )


def cases(small: bool) -> dict[str, Case]:
    """Sizes: the triad moves 1.6 GB, far more than any L2 holds; the chain is 256 MB long; the FMAs fill every GPU of today."""
    import torch

    kernels = build()
    count, blocks, links, rounds, hops = (1 << 16, 64, 1 << 12, 64, 64) if small else (1 << 27, 2112, 1 << 26, ROUNDS, HOPS)
    a, b, c = (torch.ones(count, device="cuda") for _ in range(3))
    out = torch.empty(blocks * 256, device="cuda")
    order = torch.randperm(links, device="cuda")
    following = torch.empty(links, dtype=torch.int32, device="cuda")
    following[order] = order.roll(-1).to(torch.int32)
    ends = torch.empty(8 * 32, dtype=torch.int32, device="cuda")
    return {
        "triad": Case(lambda: kernels.triad(a, b, c), 12 * count, 2 * count),
        "fma_chains": Case(lambda: kernels.fma_chains(out, rounds), 4 * out.numel(), 2 * CHAINS * rounds * out.numel()),
        "pointer_chase": Case(lambda: kernels.pointer_chase(ends, following, hops), 32 * hops * ends.numel(), 0),
    }


def call(small: bool) -> None:
    """For ncu: each kernel warm, then once between cudaProfilerStart and cudaProfilerStop."""
    import torch

    prepared = cases(small)
    for case in prepared.values():
        case.launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for case in prepared.values():
        case.launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def timed(small: bool) -> dict[str, dict[str, float]]:
    """Median milliseconds between CUDA events, cold L2, with the counted bytes and flops."""
    import torch

    prepared = cases(small)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    results = {}
    for name, case in prepared.items():
        times = []
        for _ in range(CALLS + 3):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            case.launch()
            end.record()
            torch.cuda.synchronize()
            times.append(float(start.elapsed_time(end)))
        results[name] = {"ms": statistics.median(times[3:]), "bytes": case.bytes, "flops": case.flops}
    results["device"] = {torch.cuda.get_device_name(): 0.0}
    return results


class Outside:
    """Runs a command without a sandbox: the kernels are this repository's own. Keeps what was printed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(
        self,
        command: Sequence[str],
        /,
        *,
        seconds: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> Finished:
        started = time.monotonic()
        try:
            done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=seconds, check=False)  # fmt: skip
            finished = Finished(done.returncode, done.stdout, time.monotonic() - started)
        except subprocess.TimeoutExpired as late:
            text = late.output.decode(errors="replace") if isinstance(late.output, bytes) else late.output or ""
            finished = Finished(-9, text, seconds, timed_out=True)
        self.said.append(f"$ {' '.join(command)}\n{finished.output}")
        return finished


def table(profiles: Mapping[str, KernelProfile], times: Mapping[str, Mapping[str, float]]) -> tuple[str, list[str]]:
    """The rows as Markdown, and what is not as it should be."""
    head = ("kernel", "expected", "bound", "limiter", "GB/s ncu", "GB/s counted", "Gflop/s ncu", "Gflop/s counted",
            "us ncu", "us events")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    wrong = []
    for name, expected in NAMES.items():
        profile, clock = profiles.get(name), times[name]
        seconds = clock["ms"] / 1e3
        if profile is None:
            wrong.append(f"{name}: ncu did not profile it")
            continue
        counted = clock["bytes"] / seconds / 1e9
        flops = profile.roofline.flops
        lines.append("| " + " | ".join((
            name, expected, profile.bound or "-", profile.limiter or "-", _number(profile.dram_gbs), _number(counted),
            _number(flops / 1e9 if flops is not None else None), _number(clock["flops"] / seconds / 1e9),
            _number(profile.duration_us), _number(clock["ms"] * 1e3),
        )) + " |")  # fmt: skip
        if profile.bound != expected:
            wrong.append(f"{name}: {profile.bound or 'unknown'} instead of {expected}")
        if name == "triad" and (profile.dram_gbs is None or abs(profile.dram_gbs / counted - 1) > TOLERANCE):
            wrong.append(f"triad: {_number(profile.dram_gbs)} GB/s by ncu, {counted:.0f} by bytes over time")
    return "\n".join(lines), wrong


def _number(value: float | None) -> str:
    return f"{value:.1f}" if value is not None else "-"


def worker(what: str, small: bool) -> list[str]:
    return [sys.executable, "-m", "benchmarks.kernel_bounds", f"--{what}", *(["--small"] if small else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the reports")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    for inner in ("build", "call", "time"):
        parser.add_argument(f"--{inner}", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build:
        build()
        print("built")
        return 0
    if given.call:
        call(given.small)
        return 0
    if given.time:
        print(json.dumps(timed(given.small)))
        return 0
    run = Outside()
    clock = run(worker("time", given.small), seconds=600)
    if clock.code != 0:
        print(clock.output, file=sys.stderr)
        raise SystemExit("the kernels do not run here; see above")
    times = json.loads(clock.output.strip().splitlines()[-1])
    with tempfile.TemporaryDirectory() as scratch:
        target, chosen = worker("call", given.small), [Chosen(name=name) for name in NAMES]
        done = ncu_command.profile(target, chosen, Path(scratch), run=run, seconds=600, env=dict(os.environ))
        print("\n".join((f"ncu: {done.seconds:.0f} s", *done.notes, *([done.skipped] if done.skipped else []))))
        profiles: dict[str, KernelProfile] = {}
        try:
            for report in done.reports:
                if given.keep is not None:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(report, given.keep / report.name)
                profiles |= {base_name(profile.name): profile for profile in ncu_report.read(report, root=SOURCES)}
        except StitchError as why:
            print(why)
    said, wrong = table(profiles, times)
    wrong = [sentence for sentence in wrong if not given.small or "did not" in sentence]
    print(f"\n{', '.join(times['device'])}\n\n{said}\n")
    print("\n\n".join(kernel_text.for_person(profile) for profile in profiles.values()))
    if given.json is not None:
        found = {"times": times, "profiles": {name: profile.model_dump() for name, profile in profiles.items()}}
        given.json.write_text(json.dumps(found, indent=1))
    if wrong:
        print("\n".join(("\nnot as expected:", *wrong, "", *run.said[1:])), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
