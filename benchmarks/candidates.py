"""One candidate and eight: `python benchmarks/candidates.py --device sim` (or cuda), without any model's time.

The built-in engineer's kernels for one example make a program, and other variants of single kernels its candidates, each with
a kernel that nobody has built before. Two more are copies of candidates with other comments and other names for variables.
They go through what a session uses: `build_many`, fingerprints, `Judge.check_many`, and on a GPU `Judge.time` one after the
other and profiles of the fastest.
The judge has seen the reference and the program before, as a session's has. `--serial`: the same eight one by one as well.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
from stitchcuda.compiler.capture.op_graph import OpGraph  # noqa: E402
from stitchcuda.compiler.codegen.emit import count_variants, emit  # noqa: E402
from stitchcuda.compiler.lower.ir import Stitch  # noqa: E402
from stitchcuda.compiler.lower.lower import bind, lower  # noqa: E402
from stitchcuda.compiler.printing.program import write_program  # noqa: E402
from stitchcuda.compiler.regions.partition import partition  # noqa: E402
from stitchcuda.state import BuildResult, DeviceFacts, Settings  # noqa: E402
from stitchcuda.tools.build.build_pool import build_many  # noqa: E402
from stitchcuda.tools.device.device import device_facts  # noqa: E402
from stitchcuda.tools.profile.ncu import profile_kernels  # noqa: E402
from stitchcuda.tools.profile.nsys import profile_system  # noqa: E402
from stitchcuda.verify.client import Judge  # noqa: E402
from stitchcuda.verify.messages.judge_requests import ReferenceFacts  # noqa: E402

SEEDS = 3                                  # as a session's checks have
COPIES = 2
T = TypeVar("T")


class Writer:
    """Programs of one reference, by the variant of each region's kernel."""

    def __init__(self, reference: Path, facts: ReferenceFacts, folder: Path) -> None:
        self._graph = OpGraph.model_validate_json(facts.capture)
        self._text, self._folder = reference.read_text(), folder
        self._constants = Path(facts.constants).read_bytes() if facts.constants else None
        fusible = [region for region in partition(self._graph) if region.kind == "fusible"]
        self._regions = {region.id: (region, lower(self._graph, region)) for region in fusible}

    def others(self) -> list[tuple[str, int]]:
        """(region, variant) of every kernel that is not the program's, the variants of one region far from each other."""
        found = [(name, number) for name, (_, kernel) in self._regions.items() for number in range(1, count_variants(kernel))]
        return sorted(found, key=lambda kind: (kind[1], kind[0]))

    def program(self, name: str, chosen: tuple[str, int] | None = None) -> Path:
        stitches = []
        for key, (region, kernel) in self._regions.items():
            source = emit(kernel, chosen[1] if chosen and chosen[0] == key else 0)
            stitches.append(Stitch(region=key, kernel=kernel, source=source, instances=bind(self._graph, region, kernel)))
        files = write_program(self._graph, stitches, reference=self._text, constants=self._constants)
        for path, content in files.items():
            (self._folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return self._folder / name

    def copy(self, program: Path, name: str) -> Path:
        """The same program, as somebody else might have written it down."""
        made = Path(shutil.copytree(program, self._folder / name))
        for path in made.rglob("*.cu"):
            text = re.sub(r"\bt(\d+)(?=\b|_)", r"value_\1", path.read_text())
            path.write_text("// Written once more.\n" + text.replace("// ", "//  "))
        return made


class Clock:
    """Seconds of each part of a step, summed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - started

    @property
    def all(self) -> float:
        return sum(self.seconds.values())


class Step:
    """What a session does with the candidates of one step."""

    def __init__(self, judge: Judge, device: DeviceFacts, cache: Path, before: Path) -> None:
        self._judge, self._device, self._cache, self._before = judge, device, cache, before

    def __call__(self, programs: list[Path], clock: Clock) -> list[str]:
        """Builds, checks and times them; a line on each that is a duplicate of another."""
        on_gpu = self._device.target == "cuda"
        with clock.during("build"):
            built = build_many(programs, arch=self._device.arch, cache=self._cache, link=on_gpu, machine=True)
        kept, said = distinct(programs, built)
        with clock.during("check"):
            results = self._judge.check_many(kept, seeds=SEEDS)
        for program, result in zip(kept, results, strict=True):
            if not result.ok:
                sys.exit(f"{program.name} was refused: {'; '.join(result.reasons)}")
        savings = {}
        for program in kept if on_gpu else ():
            with clock.during("time"):
                savings[program] = self._judge.time(program, self._before).saving_ms
        if savings:                        # the one that the step goes on with is looked at, as in a session
            with clock.during("profile"):
                best = max(savings, key=lambda program: savings[program])
                profile_kernels(best, self._judge, profile_system(best, self._judge)[1])
        return said


def distinct(programs: list[Path], built: list[BuildResult]) -> tuple[list[Path], list[str]]:
    """Programs of different fingerprints, and a line on each of the others."""
    first: dict[str, Path] = {}
    said: list[str] = []
    for program, result in zip(programs, built, strict=True):
        if not result.ok:
            sys.exit(f"{program.name} does not build: {result.log}")
        if result.code and result.code in first:
            said.append(f"{program.name} is {first[result.code].name} ({result.code[:8]})")
        else:
            first[result.code or str(program)] = program
    return list(first.values()), said


def session(given: argparse.Namespace, device: DeviceFacts, use: Callable[[Writer, Step], T]) -> T:
    """Calls `use` with a judge that started with an empty cache and has judged the program which the candidates differ from."""
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        cache.mkdir()
        settings = Settings(target=given.device)
        with Judge(given.reference, settings, cache=cache, arch=device.arch) as judge:
            writer = Writer(given.reference, judge.baseline(), folder)
            before = writer.program("program")
            step = Step(judge, device, cache, before)
            step([before], Clock())
            return use(writer, step)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--reference", type=Path, default=HERE.parent.parent / "examples" / "transformer_block.py")
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--serial", action="store_true", help="the same one by one as well, in a session of their own")
    parser.add_argument("--table", type=Path, help="write the table to this file")
    given = parser.parse_args()
    device = device_facts(given.device)

    def together(writer: Writer, step: Step) -> tuple[Clock, Clock, list[str]]:
        single, *others = writer.others()
        if len(others) < given.candidates:
            parser.error(f"{given.reference.name} has variants for {len(others)} candidates")
        of_single, of_several = Clock(), Clock()
        step([writer.program("single", single)], of_single)
        made = [writer.program(f"candidate-{number}", kind) for number, kind in enumerate(others[: given.candidates])]
        copies = [writer.copy(made[number], f"copy-{number}") for number in range(min(COPIES, len(made)))]
        return of_single, of_several, step([*made, *copies], of_several)

    def one_by_one(writer: Writer, step: Step) -> Clock:
        clock = Clock()
        for number, kind in enumerate(writer.others()[1 : given.candidates + 1]):
            step([writer.program(f"candidate-{number}", kind)], clock)
        return clock

    of_single, of_several, said = session(given, device, together)
    columns = [("1", of_single), (f"{given.candidates} and {COPIES} copies", of_several)]
    if given.serial:
        columns.append((f"{given.candidates} one by one", session(given, device, one_by_one)))
    heads = [head for head, _ in columns]
    lines = [f"| seconds | {' | '.join(heads)} | ratio |", "|" + "---|" * (len(heads) + 2)]
    for part in (*of_single.seconds, "all"):
        took = [clock.all if part == "all" else clock.seconds[part] for _, clock in columns]
        lines.append(f"| {part} | {' | '.join(f'{value:.2f}' for value in took)} | {took[1] / took[0]:.2f} |")
    where = device.name if given.device == "cuda" else f"the simulator on {len(os.sched_getaffinity(0))} cores"
    what_ran = f"`python benchmarks/candidates.py --device {given.device}`, {time.strftime('%Y-%m-%d')}, {given.reference.name}"
    head = [f"{what_ran}, {where}, torch {device.torch}. Ratio: of {given.candidates} to one.", ""]
    found = ["", f"Duplicates: {len(said)} of {COPIES} copies found. " + "; ".join(said)]
    print("\n".join([*head, *lines, *found]))
    if given.table:
        given.table.write_text("\n".join([*head, *lines, *found]) + "\n")
    return 0 if len(said) == min(COPIES, given.candidates) else 1


if __name__ == "__main__":
    sys.exit(main())
