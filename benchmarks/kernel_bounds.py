"""What a kernel's profile says of three kernels whose bound is known, and its bandwidth beside a count of bytes over time.

    python -m benchmarks.kernel_bounds [--small] [--json FILE] [--keep DIR]
    python -m benchmarks.kernel_bounds --build                  # only builds the kernels; needs no GPU

A streaming triad (memory), FMA chains at full occupancy (compute) and a few warps chasing pointers (latency), in
benchmarks/kernel_bounds/. They run once under ncu, and in another process between CUDA events, each time with a cold L2; there
a kernel's bytes and flops are counted from its sizes. Each reads arrays far larger than L2, all of them, once. Exits with 1 if
a bound or limiter is another one, or a DRAM bandwidth more than 10 % off the counted one; then ncu's output is printed whole.
`--small` halves the arrays. `--keep` writes the report and what it must say, as tests/tools/profiling/fixtures has them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.errors import StitchError
from stitchcuda.sandbox.command import Finished, unconfined
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.profile import kernel_text, ncu_command, ncu_report
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from stitchcuda.tools.profile.ncu_command import ChosenKernel

SOURCES = Path(__file__).resolve().parent / "kernel_bounds"
KNOWN = {
    "triad": ("memory", r"^DRAM bandwidth$"),
    # One FMA of a warp a cycle is what a quarter of a multiprocessor can issue and what its FP32 units can take.
    "fma_chains": ("compute", r"^(instruction issue|FP32 units)$"),
    "pointer_chase": ("latency", r"^too few blocks \(.*\), warps wait for global or local memory \("),
}
"""Bound and limiter by construction; the limiter as a pattern."""
CALLS, WARM, TOLERANCE = 20, 3, 0.10
ARRAY, SMALL = 1 << 29, 1 << 28            # bytes; an H200's L2 has 50 MB
ROUNDS, FACTOR, SUMMAND = 256, 0.999, 0.001
CHAINS = 1024


@dataclass(frozen=True)
class Case:
    """One kernel, ready to be launched, and what it moves and computes by its sizes."""

    launch: Callable[[], object]
    right: Callable[[], bool]              # what the last launch wrote
    bytes: int
    flops: int
    threads: int


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


def cases(kernels: Any, array: int, device: str = "cuda") -> dict[str, Case]:
    """Arrays of `array` bytes, a multiple of 64 KiB: three for the triad, one each for the others, read once and whole.

    What the compute and the latency case write is under 0.5 % of what they read: an L2 may keep it.
    """
    import torch

    count = array // 4
    a, b, c = (torch.full((count,), value, device=device) for value in (0.0, 1.0, 2.0))
    start = torch.rand(count, device=device)
    sums = torch.empty(count // 256, device=device)
    wanted = (start.view(2, -1, 128).sum((0, 2)) - 256) * FACTOR**ROUNDS + 256   # a chain's fixed point is 1
    nodes = torch.ones(array // 64, 16, dtype=torch.int32, device=device)
    order = torch.randperm(array // 64, device=device)
    nodes[order, 0] = order.roll(-1).to(torch.int32)
    hops = array // 64 // CHAINS
    starts = order[::hops].to(torch.int32)
    ends = torch.empty(CHAINS, 2, dtype=torch.int32, device=device)
    after = torch.stack((starts.roll(-1), torch.full_like(starts, 15 * hops)), 1)
    return {
        "triad": Case(lambda: kernels.triad(a, b, c), lambda: bool((a == 7).all()), 3 * array, 2 * count, count // 4),
        "fma_chains": Case(
            lambda: kernels.fma_chains(sums, start, FACTOR, SUMMAND, ROUNDS),
            lambda: torch.allclose(sums, wanted, rtol=1e-4),
            array + 4 * sums.numel(), (2 * 8 * ROUNDS + 13) * (count // 8), count // 8,
        ),
        "pointer_chase": Case(
            lambda: kernels.pointer_chase(ends, starts, nodes, hops),
            lambda: torch.equal(ends, after),
            array + 12 * CHAINS, 0, CHAINS,
        ),
    }  # fmt: skip


def call(array: int) -> None:
    """For ncu: each kernel warm, then once between cudaProfilerStart and cudaProfilerStop."""
    import torch

    prepared = cases(build(), array)
    for case in prepared.values():
        case.launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for case in prepared.values():
        case.launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def timed(array: int) -> dict[str, Any]:
    """The device's name, and by kernel the median time between CUDA events with a cold L2 and what was counted."""
    import torch

    prepared = cases(build(), array)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    measured = {}
    for name, case in prepared.items():
        times = []
        for _ in range(WARM + CALLS):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            case.launch()
            end.record()
            torch.cuda.synchronize()
            times.append(float(start.elapsed_time(end)))
        if not case.right():
            raise SystemExit(f"{name} does not compute what it should")
        ms = statistics.median(times[WARM:])
        bound, limiter = KNOWN[name]
        measured[name] = {
            "bound": bound, "limiter": limiter, "us": ms * 1e3, "gbs": case.bytes / ms / 1e6, "gflops": case.flops / ms / 1e6,
            "bytes": case.bytes, "flops": case.flops, "threads": case.threads,
        }  # fmt: skip
    return {"device": torch.cuda.get_device_name(), "kernels": measured}


class Outside:
    """Runs a command without a sandbox: the kernels are this repository's own. Keeps what was printed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Finished:
        finished = unconfined(command, seconds=600, env={**os.environ, **environment})
        self.said.append(f"$ {' '.join(command)}\n{finished.output}")
        return finished


def off(profile: KernelProfile, known: Mapping[str, Any]) -> float | None:
    """How far ncu's DRAM bandwidth is from the counted one, as a share of the latter; None where ncu gave none."""
    return profile.dram_gbs / known["gbs"] - 1 if profile.dram_gbs is not None else None


def wrong(profiles: Mapping[str, KernelProfile], kernels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is not as it should be, a sentence each."""
    said = []
    for name, known in kernels.items():
        if (profile := profiles.get(name)) is None:
            said.append(f"{name}: ncu did not profile it")
            continue
        if profile.bound != known["bound"]:
            said.append(f"{name}: bound by {profile.bound or 'nothing known'} instead of {known['bound']}")
        if not re.search(known["limiter"], profile.limiter):
            said.append(f"{name}: limited by {profile.limiter or 'nothing known'}; expected {known['limiter']}")
        share = off(profile, known)
        if share is None or abs(share) > TOLERANCE:
            said.append(f"{name}: {_number(profile.dram_gbs)} GB/s by ncu, {known['gbs']:.1f} by bytes over time")
    return said


def table(profiles: Mapping[str, KernelProfile], kernels: Mapping[str, Mapping[str, Any]]) -> str:
    """As Markdown, a row for each kernel that was profiled."""
    head = ("kernel", "expected", "bound", "limiter", "GB/s ncu", "GB/s counted", "off", "Gflop/s ncu", "Gflop/s counted",
            "us ncu", "us events")  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for name, profile in profiles.items():
        known, share, flops = kernels[name], off(profile, kernels[name]), profile.roofline.flops
        rows.append((
            name, known["bound"], profile.bound or "-", profile.limiter or "-", _number(profile.dram_gbs),
            _number(known["gbs"]), "-" if share is None else f"{100 * share:+.1f} %",
            _number(flops / 1e9 if flops is not None else None), _number(known["gflops"]),
            _number(profile.duration_us), _number(known["us"]),
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | None) -> str:
    return f"{value:.1f}" if value is not None else "-"


def keep(folder: Path, report: Path, measured: Mapping[str, Any]) -> None:
    """The report and, measured without it, what must be read from it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel_bounds.ncu-rep.gz").write_bytes(gzip.compress(report.read_bytes(), 9, mtime=0))
    (folder / "kernel_bounds.expected.json").write_text(f"{json.dumps(measured, indent=1)}\n")


def versions(run: Outside) -> dict[str, str]:
    driver = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], {}).output
    said = run([str(ncu_command.find_ncu() or "true"), "--version"], {}).output
    return {"driver": driver.split("\n")[0], "ncu": (re.findall(r"Version (\S+)", said) or ["not found"])[0]}


def worker(what: str, small: bool) -> list[str]:
    return [sys.executable, "-m", "benchmarks.kernel_bounds", f"--{what}", *(["--small"] if small else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the report and what it must say")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    for inner in ("build", "call", "time"):
        parser.add_argument(f"--{inner}", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    array = SMALL if given.small else ARRAY
    if given.build:
        if shutil.which("nvidia-smi") is None:
            os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0")
        build()
        print("built")
        return 0
    if given.call:
        call(array)
        return 0
    if given.time:
        print(json.dumps(timed(array)))
        return 0
    run = Outside()
    clock = run(worker("time", given.small), {})
    if clock.code != 0:
        print(clock.output, file=sys.stderr)
        raise SystemExit("the kernels do not run here; see above")
    measured = json.loads(clock.output.strip().splitlines()[-1])
    measured |= versions(run)
    kernels = measured["kernels"]
    profiles: dict[str, KernelProfile] = {}
    with tempfile.TemporaryDirectory() as scratch:
        target, chosen = worker("call", given.small), [ChosenKernel(name=name) for name in KNOWN]
        done = ncu_command.profile(target, chosen, Path(scratch), run=run)
        print("\n".join((f"ncu: {done.seconds:.0f} s", *done.notes, *([done.skipped] if done.skipped else []))))
        try:
            for report in done.reports:    # one; a second only for what the first run missed
                if given.keep is not None and report == done.reports[0]:
                    keep(given.keep, report, measured)
                profiles |= {base_name(profile.name): profile for profile in ncu_report.read(report, root=SOURCES)}
        except StitchError as why:
            print(why)
    said = wrong(profiles, kernels)
    print(f"\n{measured['device']}, driver {measured['driver']}, ncu {measured['ncu']}\n\n{table(profiles, kernels)}\n")
    print("\n\n".join(kernel_text.for_person(profile) for profile in profiles.values()))
    if given.json is not None:
        found = {
            name: {"off": off(profile, kernels[name]), "profile": profile.model_dump()} for name, profile in profiles.items()
        }
        given.json.write_text(json.dumps(measured | {"found": found, "wrong": said}, indent=1))
    if said:
        print("\n".join(("\nnot as expected:", *said, "", *run.said[3:])), file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
