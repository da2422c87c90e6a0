"""How far apart judgings of one ratio lie: the same program timed again and again, each time in a new process.

    python benchmarks/timing_repeatability.py                  # 20 judgings of each case
    python benchmarks/timing_repeatability.py --judgings 7 --write

Needs a GPU. Target: p95 / p5 of the ratio below 1.03 for kernels over 100 µs. The table is printed, and with `--write` put
into benchmarks/results/timing_repeatability.md. The program is four kernels, each a quarter of its time.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stitchcuda.state import Settings, TimingResult  # noqa: E402
from stitchcuda.tools.device import device  # noqa: E402
from stitchcuda.verify.client import Judge  # noqa: E402

TARGET = 1.03
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        x = torch.tanh(x) + y
        return torch.tanh(x) + y

def get_inputs():
    return [torch.randn(ROWS, 4096), torch.rand(ROWS, 4096)]
"""
PROGRAM = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x, y):
        x = torch.tanh(x).add_(y)
        return torch.tanh_(x).add_(y)
"""
CASES = {"1 MiB per tensor": 64, "32 MiB per tensor": 2048, "128 MiB per tensor": 8192, "256 MiB per tensor": 16384}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judgings", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    facts = device.device_facts("cuda")
    lines = [
        "| case | program | ratio, median | p95 / p5 | judgings | refused | seconds per judging |",
        "|---|---|---|---|---|---|---|",
        *(row(name, rows, options.judgings) for name, rows in CASES.items()),
    ]
    text = (
        f"# Repeatability of timing\n\n{datetime.date.today()}, {facts.name}, driver {facts.driver}, torch {facts.torch}.\n"
        f"Command: `python benchmarks/timing_repeatability.py --judgings {options.judgings} --write`. "
        f"Target: p95 / p5 below {TARGET} for kernels over 100 µs.\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if options.write:
        (ROOT / "benchmarks/results/timing_repeatability.md").write_text(text)
    return 0


def row(name: str, rows: int, judgings: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        reference, program = Path(folder) / "reference.py", Path(folder) / "model_new.py"
        reference.write_text(REFERENCE.replace("ROWS", str(rows)))
        program.write_text(PROGRAM)
        results: list[TimingResult] = []
        with Judge(reference, Settings(target="cuda"), cache=Path(folder) / "cache") as judge:
            judge.time(program, program)   # the reference's own start
            started = time.monotonic()
            for _ in range(judgings):
                results.append(result := judge.time(program, program))
                figures = f"{result.reference_ms:.4f} ms / {result.program_ms:.4f} ms, {result.ratio:.4f}"
                print(f"{name}: {figures}", *result.refused, *result.notes, sep="; ", file=sys.stderr, flush=True)
            took = (time.monotonic() - started) / judgings
    ratios = sorted(result.ratio for result in results)
    low, *_, high = statistics.quantiles(ratios, n=20, method="inclusive")
    ms = statistics.median(result.program_ms for result in results)
    refused = sum(bool(result.refused) for result in results)
    return (
        f"| {name} | {ms:.4f} ms | {statistics.median(ratios):.4f} | {high / low:.4f} | {judgings} | {refused} | {took:.2f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
