"""`stitchcuda memory`: lists lessons of earlier sessions, exports, imports and merges them.

What a lesson is and how files are merged is decided in the room `memory/`. `--json` prints one JSON object on stdout.

Where to look next: `memory/__init__.py` (`Memory`), `memory/exchange.py` (the files), `cli/console.py` (options, errors).
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, Place, print_table, report_errors
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from stitchcuda.memory import Experience, Memory

app = typer.Typer(**FORM, help="Lists, exports, imports and merges what earlier sessions have taught.")


@app.command("list")
@report_errors()
def list_(workspace: Place = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Shows what was learnt, the weightiest first."""
    with memory_of(workspace, reading=True) as memory:
        experiences = memory.lessons()
        if as_json:
            print(json.dumps({"memory": memory.where, "lessons": [_facts(experience) for experience in experiences]}))
        elif not experiences:
            print(f"no lessons yet in {memory.where}")
        else:
            print_table(_table(experiences))


@app.command("export")
@report_errors()
def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A new file. Default: standard output.")] = None,
    workspace: Place = None, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes all lessons as JSON lines."""
    with memory_of(workspace, reading=True) as memory:
        if file is None:
            sys.stdout.write(memory.export_text())
            return
        if file.exists():
            raise BadInput(f"{file} exists already: name a new file, or put two together with `stitchcuda memory merge`")
        print(f"{counted(memory.export(file), 'lesson')} of {memory.where} written to {file}")


@app.command("import")
@report_errors()
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `stitchcuda memory export` wrote.")],
    workspace: Place = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Adds the lessons of an export file to the workspace's memory."""
    with memory_of(workspace) as memory:
        done = memory.import_(file)
        if as_json:
            print(json.dumps({"memory": memory.where, **done.model_dump()}))
        else:
            print(f"{counted(done.added, 'lesson')} added to {memory.where}; {done.known} of {file} were there already")


@app.command("merge")
@report_errors()
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `stitchcuda memory export` wrote.")],
    out: Annotated[Path, typer.Option("--out", help="A new file, or one of those that are merged.")],
    debug: Debug = False,
) -> None:  # fmt: skip
    """Puts export files together: all lessons of all of them, each once."""
    from stitchcuda.memory import exchange
    from stitchcuda.memory.lesson import unique_lessons

    if out.exists() and out.resolve() not in [file.resolve() for file in files]:
        raise BadInput(f"{out} exists already: name a new file, or merge it too")
    lessons = unique_lessons(lesson for file in files for lesson in exchange.read(file))
    exchange.write(out, exchange.text(lessons))
    print(f"{counted(len(lessons), 'lesson')} written to {out}")


def memory_of(workspace: Path | None, *, reading: bool = False) -> AbstractContextManager[Memory]:
    """Opens the workspace's memory. Raises BadInput if it is only read and the workspace that was named does not exist."""
    from stitchcuda.memory import location, open_memory
    from stitchcuda.store import Workspace

    folder = workspace.expanduser().resolve() if workspace else Workspace.default()
    if reading and workspace and isinstance(location(folder), Path) and not folder.is_dir():
        raise BadInput(f"there is no workspace at {folder}: name another with --workspace")
    return open_memory(folder)


def _table(experiences: tuple[Experience, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from stitchcuda.memory import lesson_text

    made = Table("situation", "what was done", "weight", "predicted", "measured", "lessons", box=None)
    for experience in experiences:
        cells = (
            lesson_text.situation_text(experience), lesson_text.strategy_text(experience), f"{experience.weight:.2f}",
            lesson_text.milliseconds(experience.predicted_ms), lesson_text.measured_text(experience),
            lesson_text.outcome_text(experience),
        )  # fmt: skip
        made.add_row(*map(Text, cells))    # plain text: what models wrote may look like rich's markup
    return made


def _facts(experience: Experience) -> dict[str, Any]:
    """The JSON object of an experience: its figures, and all its lessons."""
    low_ms, high_ms = experience.interval_ms or (None, None)
    return {
        "key": experience.key, "weight": experience.weight, "tried": len(experience.lessons), "accepted": experience.accepted,
        "predicted_ms": experience.predicted_ms, "saving_ms": experience.saving_ms, "saving_low_ms": low_ms,
        "saving_high_ms": high_ms,
        "lessons": [{"id": lesson.id, **lesson.model_dump(mode="json")} for lesson in experience.lessons],
    }  # fmt: skip
