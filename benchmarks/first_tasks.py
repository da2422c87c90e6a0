"""The built-in engineer's first program for each problem of KernelBench: `python benchmarks/first_tasks.py CHECKOUT OUT`.

CHECKOUT is a copy of github.com/ScalingIntelligence/KernelBench. A problem is captured at its real size on the CPU and
planned with the nominal figures of an H200; its first kernel task is written to the folder OUT/ID, or its graph task where it
has none. Nothing is built or judged: `benchmarks/verdict_at_size.py --programs OUT` does that on a GPU. Each problem has a
process of its own with a time limit, and what is in OUT already is left alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.compiler.capture.capture import trace
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.engineers import Assignment, Brief
from stitchcuda.engineers.builtin import BuiltinEngineer
from stitchcuda.state import Baseline, Settings
from stitchcuda.tools.device.device import device_facts
from stitchcuda.verify.reference.reference import load_reference

LIMIT_S = 600


def write(problem: Path, out: Path) -> str:
    """Writes the program of one problem to the folder `out`. Returns the task's title, or why there is no program."""
    reference = load_reference(problem)
    args, kwargs = reference.inputs(0)
    traced = trace(reference.module, args, kwargs)
    graph = traced.graph
    if graph.opaque:
        return f"not captured: {graph.opaque}"
    regions, device = partition(graph), device_facts("sim", predict_for="h200")
    eager, floor = cost.eager_ms(graph, regions, device), cost.floor_ms(graph, device)
    baseline = Baseline(capture="", regions="", device=device, predicted_ms=eager, floor_ms=floor)
    brief = Brief(
        settings=Settings(target="sim"), reference=reference.source, graph=graph, regions=tuple(regions), baseline=baseline
    )  # fmt: skip
    engineer = BuiltinEngineer()
    plan = engineer.plan(brief)
    task = next((task for task in plan.tasks if task.kind == "region"), next(iter(plan.tasks), None))
    if task is None:
        return "nothing to do"
    first = write_program(graph, reference=reference.source, name=problem.stem)
    draft = engineer.write(Assignment(brief=brief, plan=plan, task=task, ordinal=0, program=first, kept=()))
    for name, text in draft.files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return task.title if draft.files else draft.exhausted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(write(given.one, given.out))
        return 0
    folder = given.checkout / "KernelBench" / f"level{given.level}"
    for problem in sorted(folder.glob("[0-9]*.py"), key=lambda path: int(path.name.split("_")[0])):
        number = problem.name.split("_")[0]
        if (given.out / number).exists():
            continue
        command = [sys.executable, __file__, str(given.checkout), str(given.out / number), "--one", str(problem)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1:]
        except subprocess.TimeoutExpired:
            said = [f"no answer in {LIMIT_S} s"]
        print(f"{problem.stem}: {said[0] if said else 'nothing'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
