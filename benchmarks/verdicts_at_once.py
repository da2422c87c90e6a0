"""Verdicts a minute by sessions side by side on one GPU: `python benchmarks/verdicts_at_once.py CHECKOUT PROGRAMS --ids 4,7,8`.

Needs a GPU; CHECKOUT is a copy of github.com/ScalingIntelligence/KernelBench, PROGRAMS what `benchmarks/first_tasks.py` wrote.
A `VerifierPool` judges the same programs with 1, 3 and 6 of them at once, each time with an empty cache: build, last check, two
timings. One row each: verdicts a minute, the factor over the first row, the verdicts that differ from it, and the speed-ups
that differ by more than `FAR`. With `--at-once 1,1,3` the second row shows how far timings alone lie apart.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.tools.device.device import device_facts
from stitchcuda.verify.api import Verdict
from stitchcuda.verify.pool import VerifierPool

FAR = 0.03                                 # of a speed-up: goal


def judged(pairs: list[tuple[Path, Path]], at_once: int) -> tuple[list[Verdict | str], float]:
    """Returns (a verdict, or an error's text, for each (program, reference); the seconds that all took)."""
    with tempfile.TemporaryDirectory() as cache, VerifierPool(at_once=at_once, target="cuda", cache=Path(cache)) as pool:
        started = time.monotonic()
        waiting = [pool.submit(program, reference) for program, reference in pairs]
        found: list[Verdict | str] = []
        for future in waiting:
            error = future.exception()
            found.append(future.result() if error is None else f"{type(error).__name__}: {error}")
        return found, time.monotonic() - started


def said(verdict: Verdict) -> tuple[bool, list[str]]:
    """Whether it was accepted and why not, without figures, which differ a little each time."""
    return verdict.accepted, [re.sub(r"[\d.]+", "N", reason) for reason in verdict.reasons]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--ids", required=True)
    parser.add_argument("--at-once", default="1,3,6")
    parser.add_argument("--table", type=Path, help="write the table to this file too")
    given = parser.parse_args()
    level, facts = given.checkout / "KernelBench" / f"level{given.level}", device_facts("cuda")
    pairs = [(given.programs / number, next(level.glob(f"{number}_*.py"))) for number in given.ids.split(",")]
    lines = [
        f"`python benchmarks/verdicts_at_once.py CHECKOUT PROGRAMS --ids {given.ids}`, {time.strftime('%Y-%m-%d')}, "
        f"{facts.name}, driver {facts.driver}, torch {facts.torch}.", "",
        "| at once | seconds | verdicts a minute | factor | verdicts that differ | speed-ups that differ by over 3 % |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    first: list[Verdict | str] = []
    first_s = 0.0
    details = [""]
    for at_once in map(int, given.at_once.split(",")):
        found, seconds = judged(pairs, at_once)
        first, first_s = first or found, first_s or seconds
        differ, far = [], []
        for number, before, now in zip(given.ids.split(","), first, found, strict=True):
            if isinstance(before, str) or isinstance(now, str):
                differ += [number] if before != now else []
                continue
            differ += [number] if said(before) != said(now) else []
            if before.speedup and now.speedup and abs(change := now.speedup / before.speedup - 1) > FAR:
                far.append(f"{number} ({change:+.1%})")
        rate = 60 * len(pairs) / seconds
        lines.append(
            f"| {at_once} | {seconds:.1f} | {rate:.1f} | {first_s / seconds:.2f} | {', '.join(differ) or 'none'} | "
            f"{', '.join(far) or 'none'} |"
        )
        print(lines[-1], flush=True)
        for number, verdict in zip(given.ids.split(","), found, strict=True):
            line = verdict if isinstance(verdict, str) else (
                f"{verdict.speedup} accepted {verdict.accepted} {'; '.join(verdict.reasons)[:200]}"
            )
            details.append(f"- {at_once} at once, problem {number}: {line}")
        if given.table:
            given.table.write_text("\n".join([*lines, *details]) + "\n")
    print("\n".join(details))
    return 0


if __name__ == "__main__":
    sys.exit(main())
