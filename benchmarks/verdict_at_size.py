"""What a verdict costs on KernelBench as it is: `python benchmarks/verdict_at_size.py CHECKOUT --ids 1,48 [--table FILE]`.

Needs a GPU; CHECKOUT is a copy of github.com/ScalingIntelligence/KernelBench. A problem's program is the folder `DIR/ID` of
`--programs DIR` (`benchmarks/first_tasks.py` writes them), else the problem itself under the name ModelNew, which is asked all
questions but those about its own kernels. One row a problem: seconds of the baseline; of the build; of two checks within a
session, of which the first draws the input sets; of the last check, with its build for leaving kernels out and its dearest
questions; of one timing; and the most memory that all processes together had on the host (PSS) and on the GPU (all that is in
use there). Rows are printed as they come; `--until` ends it after so many seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.errors import StitchError
from stitchcuda.state import Settings
from stitchcuda.tools.build import nvcc
from stitchcuda.tools.device.device import device_facts
from stitchcuda.verify.client import Judge
from tests.integrity.remains import below

COLUMNS = ("problem", "baseline", "build", "first check", "check", "last check", "timing", "host GiB", "GPU GiB", "remarks")


class PeakMemory:
    """The most memory, in GiB, that the processes below this one had together on the host, and all on the GPU. Sampled."""

    def __init__(self) -> None:
        self.host = self.gpu = 0.0
        self._ended = threading.Event()

    @contextlib.contextmanager
    def sampled(self) -> Iterator[PeakMemory]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _sample(self) -> None:
        me = int(Path("/proc/self").readlink().name)
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={gpu}"]
        while not self._ended.wait(0.25):
            self.host = max(self.host, sum(map(_proportional, below(me))) / 2**30)
            used = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
            self.gpu = max(self.gpu, float(used) / 2**10 if used.isdigit() else 0.0)


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def measured(reference: Path, program: Path, cache: Path, gpu_memory_gb: float | None, *, checks_only: bool) -> list[str]:
    """The cells of one row after the name."""
    took: list[str] = []
    remarks = ""
    peak, arch = PeakMemory(), device_facts("cuda").arch
    settings = Settings(target="cuda", gpu_memory_gb=gpu_memory_gb)
    with peak.sampled(), Judge(reference, settings, cache=cache, arch=arch) as judge:
        for what in COLUMNS[1:7] if not checks_only else COLUMNS[1:5]:
            started = time.monotonic()
            try:
                if what == "baseline":
                    judge.baseline()
                elif what == "build":
                    if not (built := nvcc.build(program, arch=arch, cache=cache, link=True)).ok:
                        return [*took, f"the build failed: {' '.join(built.log.split())[:160]}"]
                elif what == "timing":
                    remarks += f"; {judge.time(program, program).speedup:.2f}x"
                else:
                    found = judge.verify_final(program, seeds=5) if what == "last check" else judge.check(program, seeds=3)
                    if what == "last check":
                        dearest = sorted(found.question_seconds, key=lambda asked: -asked[1])[:4]
                        remarks += ", ".join(f"{question} {seconds:.1f}" for question, seconds in dearest)
                    remarks += "".join(f"; {note}" for note in found.notes if "GPU's memory" in note)
                    remarks += "".join(f"; {reason[:240]}" for reason in found.reasons)
            except (StitchError, RuntimeError) as error:
                return [*took, f"{what}: {' '.join(str(error).split())[-160:]}"]
            took.append(f"{time.monotonic() - started:.1f}")
    return [*took, *(["-"] * (6 - len(took))), f"{peak.host:.1f}", f"{peak.gpu:.1f}", remarks.strip("; ")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--ids", help="such as 1,48; by default all problems of the level")
    parser.add_argument("--programs", type=Path, help="a folder with a folder ID for each problem")
    parser.add_argument("--gpu-memory-gb", type=float, help="stay below a GPU's size")
    parser.add_argument("--checks-only", action="store_true", help="neither the last check nor a timing")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no further problem is begun")
    parser.add_argument("--table", type=Path, help="write the table to this file too")
    given = parser.parse_args()
    level = given.checkout / "KernelBench" / f"level{given.level}"
    problems = {int(path.name.partition("_")[0]): path for path in level.glob("[0-9]*.py")}
    if not problems:
        sys.exit(f"{level} has no problems: give a copy of github.com/ScalingIntelligence/KernelBench")
    facts, started = device_facts("cuda"), time.monotonic()
    lines = [
        f"`python benchmarks/verdict_at_size.py CHECKOUT {' '.join(sys.argv[2:])}`, {time.strftime('%Y-%m-%d')}, {facts.name}, "
        f"driver {facts.driver}, torch {facts.torch}. Seconds.",
        "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}",
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    for number in [int(given_id) for given_id in given.ids.split(",")] if given.ids else sorted(problems):
        if given.programs and not (given.programs / str(number) / "model_new.py").is_file():
            continue                       # nothing to do there, or not captured
        if time.monotonic() - started > given.until:
            break
        with tempfile.TemporaryDirectory() as name:
            folder, source = Path(name), problems[number].read_text()
            (cache := folder / "cache").mkdir()
            program = folder / "new.py"
            if given.programs:
                program = given.programs / str(number)
            else:
                program.write_text(re.sub(r"\bModel\b", "ModelNew", source))
            cells = measured(problems[number], program, cache, given.gpu_memory_gb, checks_only=given.checks_only)
        lines.append(f"| {number} {' | '.join([problems[number].stem.partition('_')[2], *cells])} |")
        print(lines[-1], flush=True)
        if given.table:
            given.table.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
