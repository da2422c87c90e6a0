"""Hundreds of hostile programs in a row before one judge, an honest one every tenth: what is refused, accepted and left behind.

    python -m tests.integrity.hostile_runs [--device sim|cuda] [--runs 200]   prints a summary in Markdown

It decides nothing but that: each verdict against the sentences in `tests/integrity/faults.py`, each leftover counted. Where to
look next: `tests/integrity/test_faults.py`, `tests/integrity/remains.py`.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import Settings, Target
from stitchcuda.verify.client import Judge
from tests.integrity import faults, remains
from tests.integrity.faults import Fault

LIMITS = Limits(call_s=2, start_s=5, check_s=20, memory_gib=2, disk_gib=0.125, file_gib=0.125, tasks=200)
GPU_LIMITS = Limits(call_s=3, start_s=20, check_s=40, memory_gib=8, disk_gib=0.125, file_gib=0.125, tasks=400)
_HONEST_EVERY = 10
_SHORT = ("forks", "stops itself", "garbage", "memory")
SHORT = (*faults.KERNELS, *faults.PYTHON[4:7], *faults.RESULTS[:2], *(one for one in faults.NATIVE if one.name in _SHORT))
_DEVICE_MEMORY = "import torch; print(torch.cuda.mem_get_info()[0])"


@dataclass
class Summary:
    """What happened in all runs of one judge."""

    target: Target
    seconds: float = 0.0
    hostile: int = 0
    honest: int = 0
    wrong: list[str] = field(default_factory=list)     # verdicts that are not what they should be, and errors
    reasons: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    processes: int = 0                     # more than the judge had after its first run
    scratch: int = 0                       # entries in the judge's folder, likewise
    memory: int = 0                        # bytes of the judge, likewise
    descriptors: int = 0                   # of the judge, likewise
    left: list[str] = field(default_factory=list)      # after it was closed
    device_memory: int = 0                 # bytes less than before

    def lines(self) -> list[str]:
        """Markdown."""
        kinds = [f"| {kind} | {count} |" for kind, count in self.reasons.most_common()]
        return [
            f"{self.hostile} hostile and {self.honest} honest runs on {self.target} in one judge: {self.seconds:.0f} s, "
            f"the slowest {self.slowest[0]:.1f} s ({self.slowest[1]}).",
            "",
            f"- verdicts that are wrong: {len(self.wrong)}",
            *(f"  - {one}" for one in self.wrong),
            f"- of the judge, after the last run against after the first: {self.processes:+d} processes, "
            f"{self.scratch:+d} scratch entries, {self.memory / 2**20:+.1f} MiB, {self.descriptors:+d} descriptors",
            f"- left after it was closed: {', '.join(self.left) or 'nothing'}",
            *([f"- device memory: {self.device_memory / 2**20:+.0f} MiB in use"] if self.target == "cuda" else []),
            "",
            "| reason | runs |",
            "|---|---|",
            *kinds,
        ]


def rotation(target: Target) -> tuple[Fault, ...]:
    """Every fault that shows on the target."""
    every = (*faults.KERNELS, *faults.NATIVE, *faults.PYTHON, *faults.RESULTS, *faults.FORGED)
    return tuple(one for one in every if one.on in ("both", target))


def run(target: Target, runs: int, folder: Path, *, seed: int = 1, programs: Sequence[Fault] = ()) -> Summary:
    """`runs` hostile programs, in a shuffled order, each kind before any a second time; an honest one after every tenth."""
    summary = Summary(target)
    reference = folder / "reference.py"
    reference.write_text(faults.REFERENCE)
    cache = folder / "cache"
    cache.mkdir()
    honest = faults.write(faults.honest(), folder / "honest")
    free = _device_memory(target)
    with remains.marked() as mark:
        with Judge(reference, Settings(target=target), cache=cache) as builder:    # in its own time: compilers are slow
            result = builder.check(honest, seeds=1)
            if not result.ok:
                raise RuntimeError(f"the honest program is refused: {'; '.join(result.reasons)}")
        started = time.monotonic()
        with Judge(reference, Settings(target=target), cache=cache, bounds=GPU_LIMITS if target == "cuda" else LIMITS) as judge:
            _judged(summary, judge, faults.honest(), honest)
            before = _held(judge, mark)
            chance = random.Random(seed)
            waiting: list[Fault] = []
            for number in range(runs):
                if not waiting:
                    waiting = list(programs or rotation(target))
                    chance.shuffle(waiting)
                fault = waiting.pop()
                _judged(summary, judge, fault, faults.write(fault, folder / f"program-{number}"))
                if number % _HONEST_EVERY == _HONEST_EVERY - 1:
                    _judged(summary, judge, faults.honest(), honest)
                    print(f"{number + 1} runs, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            remains.soon(lambda: _held(judge, mark)[0] <= before[0])
            after = _held(judge, mark)
            summary.processes, summary.scratch, summary.memory, summary.descriptors = (
                now - then for now, then in zip(after, before, strict=True)
            )
        summary.seconds = time.monotonic() - started
        remains.soon(lambda: not remains.processes(mark))
        summary.left = [f"process {pid}" for pid in sorted(remains.processes(mark))] + sorted(remains.scratch())
    summary.device_memory = free - _device_memory(target)
    return summary


def _judged(summary: Summary, judge: Judge, fault: Fault, program: Path) -> None:
    started = time.monotonic()
    try:
        result = judge.check(program, seeds=1)
    except Exception as error:             # whatever a program does, the judge answers: an error is a finding
        summary.wrong.append(f"{fault.name}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
        return
    seconds = time.monotonic() - started
    summary.slowest = max(summary.slowest, (seconds, fault.name))
    said = "; ".join(result.reasons)
    if fault.name == "honest":
        summary.honest += 1
    else:
        summary.hostile += 1
        summary.reasons[_kind(said)] += 1
    if not faults.expected(fault, ok=result.ok, said=said):
        summary.wrong.append(f"{fault.name}: {'accepted' if result.ok else said[:200]}")


def _held(judge: Judge, mark: str) -> tuple[int, int, int, int]:
    process = judge._process
    assert process is not None
    return (
        len(remains.processes(mark)),
        len(remains.inside(judge._scratch)),
        remains.resident(process.pid),
        remains.descriptors(process.pid),
    )


def _kind(said: str) -> str:
    """A reason without its details."""
    said = re.sub(r"\(.*?\)|'.*?'|\d+", "…", said.split(":")[0].split("\n")[0])
    return said[:90] or "accepted: what it does harms nobody"


def _device_memory(target: Target) -> int:
    """Free bytes of the GPU, as a process that ends at once sees them."""
    if target != "cuda":
        return 0
    return int(subprocess.run([sys.executable, "-c", _DEVICE_MEMORY], capture_output=True, check=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description="hostile programs in a row before one judge")
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--runs", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        summary = run(chosen.device, chosen.runs, Path(folder))
    print("\n".join(summary.lines()))
    return 1 if summary.wrong or summary.left else 0


if __name__ == "__main__":
    sys.exit(main())
