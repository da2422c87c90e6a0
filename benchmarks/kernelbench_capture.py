"""How many KernelBench problems are captured and partitioned, and into what. Nothing is run: only captured.

    python benchmarks/kernelbench_capture.py CHECKOUT [--level 3]

CHECKOUT is a working tree of KernelBench. Each problem is captured in a process of its own with a time limit, as some of
them allocate gigabytes of inputs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LIMIT_S = 300


def examine(problem: Path) -> dict[str, object]:
    """Captures one problem in this process: operators, regions by kind, share of non-library bytes in fusible regions."""
    from stitchcuda.compiler.capture.capture import capture
    from stitchcuda.compiler.regions.partition import partition
    from stitchcuda.verify.reference.reference import load_reference

    reference = load_reference(problem)
    args, kwargs = reference.inputs(0)
    graph = capture(reference.module, args, kwargs)
    if graph.opaque:
        return {"opaque": graph.opaque}
    regions = partition(graph)
    kinds = Counter(region.kind for region in regions)
    fusible = sum(region.eager_bytes for region in regions if region.kind == "fusible")
    other = sum(region.eager_bytes for region in regions if region.kind == "library")
    saved = sum(region.eager_bytes - region.fused_bytes for region in regions if region.kind == "fusible")
    return {
        "operators": len(graph.nodes),
        "regions": dict(kinds),
        "instances": sum(len(region.nodes) for region in regions if region.kind == "fusible"),
        "fusible_bytes": fusible,
        "library_bytes": other,
        "saved_bytes": saved,
    }


def ask(checkout: Path, problem: Path) -> tuple[dict[str, Any] | None, str]:
    """The answer of a process of its own, or None and why there is none."""
    command = [sys.executable, __file__, str(checkout), "--one", str(problem)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {LIMIT_S} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode:
        return None, lines[-1] if lines else f"exit code {done.returncode}"
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="problems captured at the same time")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(examine(options.one)))
        return 0
    folder = options.checkout / "KernelBench" / f"level{options.level}"
    problems = sorted(folder.glob("*.py"), key=lambda path: int(path.name.split("_")[0]))
    if not problems:
        print(f"no problems under {folder}", file=sys.stderr)
        return 2
    print("| problem | operators | fusible regions (instances) | library | bytes outside library operators | saved by fusion |")
    print("|" + " --- |" * 6)
    captured = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(lambda problem: ask(options.checkout, problem), problems))
    for problem, (result, failure) in zip(problems, answers, strict=True):
        if result is None or "opaque" in result:
            print(f"| {problem.stem} | not captured: {failure if result is None else result['opaque']} | | | | |", flush=True)
            continue
        captured += 1
        total = result["fusible_bytes"] + result["library_bytes"]
        kinds = result["regions"]
        print(
            f"| {problem.stem} | {result['operators']} | {kinds.get('fusible', 0)} ({result['instances']})"
            f" | {kinds.get('library', 0)} | {result['fusible_bytes'] / total:.0%}"
            f" | {result['saved_bytes'] / max(1, result['fusible_bytes']):.0%} |",
            flush=True,
        )
    print(f"\n{captured} of {len(problems)} captured and partitioned.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
