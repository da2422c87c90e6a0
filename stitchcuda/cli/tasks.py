"""`stitchcuda tasks`: composes training tasks, filters tables of references, and shows how difficult they are.

Everything is decided in the room `training/`. `--json` prints one JSON object on stdout; lines of progress go to stderr.

Where to look next: `training/tasks/synthesis.py`, `training/tasks/histogram.py` (what the commands call).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, report_errors, tell
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput

if TYPE_CHECKING:
    from stitchcuda.training.tasks.task_file import TaskManifest

app = typer.Typer(**FORM, help="Composes and filters training tasks.")

_STOPPED = "interrupted: tasks so far are kept, the same command goes on"
_GPUS = "Which GPU the tasks' sizes and estimated times are for: h200, h100, a100, l4, …"
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSONL file. The same command goes on with it.")]
HeldOut = Annotated[
    list[Path] | None,
    typer.Option("--held-out", metavar="PLACE", help="Also leave out what is like these files; again for several."),
]
Inductor = Annotated[bool, typer.Option("--inductor", help="Run torch.compile with its code generation (seconds a task).")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; by default one for each core.")]
PredictFor = Annotated[str, typer.Option("--predict-for", metavar="GPU", help=_GPUS)]


@app.command()
@report_errors(interrupted=_STOPPED)
def synthesise(
    out: Out,
    count: Annotated[int, typer.Option("--count", min=1, help="How many tasks the file shall hold.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same tasks.")] = 0,
    held_out: HeldOut = None, inductor: Inductor = False, jobs: Jobs = None, predict_for: PredictFor = "h200",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Composes tasks of 1 to 5 operators, and writes those that pass all filters."""
    from stitchcuda.training.tasks.candidate import TaskConditions
    from stitchcuda.training.tasks.synthesis import synthesise as make

    asked = TaskConditions(tuple(place.resolve() for place in held_out or ()), inductor, predict_for)
    _show(out, make(out, asked, seed=seed, count=count, jobs=jobs, tell=tell), as_json)


@app.command("filter")
@report_errors(interrupted=_STOPPED)
def filter_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines or Parquet, with references as `source` or `code`.")],
    out: Out,
    held_out: HeldOut = None, inductor: Inductor = False, jobs: Jobs = None, predict_for: PredictFor = "h200",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes those references of a table that pass all filters."""
    from stitchcuda.training.tasks.candidate import TaskConditions
    from stitchcuda.training.tasks.synthesis import filter_tasks

    if file.resolve() == out.resolve():
        raise BadInput(f"--out {out} is the table itself: name another file")
    asked = TaskConditions(tuple(place.resolve() for place in held_out or ()), inductor, predict_for)
    _show(out, filter_tasks(file, out, asked, jobs=jobs, tell=tell), as_json)


@app.command()
@report_errors()
def histogram(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of tasks, or folders of references.")],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, which loads nothing.")] = None,
    predict_for: PredictFor = "h200",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Shows how difficult tasks are: kernels, speed of light, share of library work, distance to it."""
    from stitchcuda.store.files import write_atomically
    from stitchcuda.training.tasks.histogram import as_page, as_text, read_sets

    sets = read_sets(files, predict_for)
    if html:
        write_atomically(html, as_page(sets, predict_for).encode())
        print(html, file=sys.stderr)
    if as_json:
        print(json.dumps({"sets": [found.counts() for found in sets]}))
    elif not html:
        print(as_text(sets, predict_for), end="")


def _show(out: Path, manifest: TaskManifest, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(out), **json.loads(manifest.model_dump_json())}))
        return
    print(f"{out}: {counted(manifest.tasks, 'task')} of {counted(manifest.candidates, 'candidate')}")
    for name, refused in manifest.refused.items():
        print(f"  {refused:7,} refused: {name}")
