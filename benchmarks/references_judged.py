"""By which references of a KernelBench level can programs be judged? `python benchmarks/references_judged.py LEVEL_FOLDER...`

Needs a GPU; LEVEL_FOLDER is such as CHECKOUT/KernelBench/level1 of a copy of github.com/ScalingIntelligence/KernelBench. Each
reference is also the program, with its class renamed to ModelNew: the verifier must find it right in every question and refuse
it only for having no kernel of its own. All else is a fault of the reference ("broken"), or ours. What asks for more memory
than is free beside others on its GPU is judged once more alone, in the end. With `--json FILE` it goes on where the file ends.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.tools.device.device import device_facts

NO_KERNEL = "own kernels hold 0.0% of the work"
BROKEN = "is degenerate|is constant"
SECONDS = 400                              # for one verdict


def verdict(reference: Path, program: Path, gpu: str, cores: set[int]) -> dict[str, Any]:
    """Runs the command line on one GPU and some cores. Returns what it said."""
    begun = time.monotonic()
    command = f"{sys.executable} -m stitchcuda verify {program} --reference {reference} --device cuda --json"
    try:
        ended = subprocess.run(
            command.split(), capture_output=True, text=True, timeout=SECONDS, env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"seconds": SECONDS, "said": f"no verdict within {SECONDS} s", "notes": []}
    failed: dict[str, Any] = {"reasons": [ended.stderr.strip()[-400:]], "notes": []}
    found: dict[str, Any] = json.loads(ended.stdout) if ended.returncode in (0, 1) else failed
    said = "; ".join(found["reasons"])
    return {"seconds": time.monotonic() - begun, "said": said, "notes": found["notes"], "taken": found.get("seconds")}


def by_number(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)[:2]]


def outcome(said: str) -> str:
    return "judged" if NO_KERNEL in said else "broken" if re.search(BROKEN, said) else "not judged"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("levels", type=Path, nargs="+")
    parser.add_argument("--gpus", default="0", help="such as 0,1,2,3")
    parser.add_argument("--jobs", type=int, default=2, help="verdicts at once on each GPU")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no verdict after so long")
    parser.add_argument("--json", type=Path, help="a line for each verdict, as they come")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if given.json and given.json.exists():
        rows = {row["name"]: row for row in map(json.loads, given.json.read_text().splitlines())}
    with tempfile.TemporaryDirectory() as folder:
        left: queue.SimpleQueue[tuple[str, Path, Path]] = queue.SimpleQueue()
        alone: queue.SimpleQueue[tuple[str, Path, Path]] = queue.SimpleQueue()
        for level in given.levels:
            for reference in sorted(level.glob("*.py"), key=lambda path: int(path.name.split("_")[0])):
                program = Path(folder) / level.name / reference.name
                program.parent.mkdir(exist_ok=True)
                program.write_text(re.sub(r"\bModel\b", "ModelNew", reference.read_text()))
                if f"{level.name}/{reference.stem}" not in rows:
                    left.put((f"{level.name}/{reference.stem}", reference, program))
        gpus, until, lock = given.gpus.split(","), time.monotonic() + given.seconds, threading.Lock()
        every = sorted(os.sched_getaffinity(0))

        def work(place: int, waiting: queue.SimpleQueue[tuple[str, Path, Path]], *, last: bool) -> None:
            cores = set(every[place * len(every) // len(gpus) : (place + 1) * len(every) // len(gpus)])
            while time.monotonic() < until:
                try:
                    name, reference, program = waiting.get_nowait()
                except queue.Empty:
                    return
                found = verdict(reference, program, gpus[place], cores)
                beside = given.jobs > 1 and not last
                if beside and "memory" in found["said"] and outcome(found["said"]) == "not judged":
                    alone.put((name, reference, program))
                    continue
                with lock:
                    rows[name] = {"name": name, **found}
                    if given.json:
                        with given.json.open("a") as file:
                            file.write(f"{json.dumps(rows[name])}\n")

        for waiting, jobs in ((left, given.jobs), (alone, 1)):
            threads = [
                threading.Thread(target=work, args=(place, waiting), kwargs={"last": waiting is alone})
                for place in range(len(gpus)) for _ in range(jobs)
            ]  # fmt: skip
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    facts = device_facts("cuda")
    folders = " ".join(f"{level.parent.name}/{level.name}" for level in given.levels)
    outcomes = [outcome(row["said"]) for row in rows.values()]
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in ("judged", "broken", "not judged"))
    command = f"python benchmarks/references_judged.py {folders} --gpus {given.gpus} --jobs {given.jobs}"
    lines = [
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {facts.name}, driver {facts.driver}, torch {facts.torch}. {counts}.", "",
        "| reference | s | outcome | said |", "|---|---|---|---|",
    ]  # fmt: skip
    for name in sorted(rows, key=by_number):
        row = rows[name]
        special = [note for note in row["notes"] if "judged at the given sizes" not in note and "values beyond" not in note]
        kind = outcome(row["said"])
        told = "; ".join(special) if kind == "judged" else row["said"]
        lines.append(f"| {name} | {row['seconds']:.0f} | {kind} | {told.replace('|', '/')[:300]} |")
    print("\n".join(lines))
    if given.table:
        given.table.write_text("\n".join(lines) + "\n")
    return int("not judged" in outcomes)


if __name__ == "__main__":
    sys.exit(main())
