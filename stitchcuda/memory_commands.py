"""`stitchcuda memory`: what earlier sessions have taught, listed, and carried between workspaces as export files.

Parses, calls, prints; what a memory is and how files are merged is decided in `memory/`. `--json` prints one JSON object on
stdout; an error is one sentence on stderr, exit code 2. `cli.py` mounts `app`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchcuda.errors import BadInput, StitchError

if TYPE_CHECKING:
    from rich.table import Table

    from stitchcuda.memory import Experience, Memory

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Lists, exports, imports and merges what earlier sessions have taught.",
)

Place = Annotated[Path | None, typer.Option("--workspace", help="Default: STITCHCUDA_WORKSPACE, else .stitchcuda here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command("list")
def list_(workspace: Place = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Shows what was learnt, the weightiest first."""

    def work() -> None:
        with memory_of(workspace, reading=True) as memory:
            experiences = memory.lessons()
            if as_json:
                print(json.dumps({"memory": memory.where, "lessons": [facts(experience) for experience in experiences]}))
            elif not experiences:
                print(f"no lessons yet in {memory.where}")
            else:
                show(table(experiences))

    run(work, debug, as_json)


@app.command("export")
def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A new file. Default: standard output.")] = None,
    workspace: Place = None,
    debug: Debug = False,
) -> None:
    """Writes all lessons as JSON lines."""

    def work() -> None:
        with memory_of(workspace, reading=True) as memory:
            if file is None:
                sys.stdout.write(memory.exported())
                return
            if file.exists():
                raise BadInput(f"{file} exists already: name a new file, or put two together with `stitchcuda memory merge`")
            print(f"{counted(memory.export(file))} of {memory.where} written to {file}")

    run(work, debug)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `stitchcuda memory export` wrote.")],
    workspace: Place = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Adds the lessons of an export file to the workspace's memory."""

    def work() -> None:
        with memory_of(workspace) as memory:
            done = memory.import_(file)
            if as_json:
                print(json.dumps({"memory": memory.where, **done.model_dump()}))
            else:
                print(f"{counted(done.added)} added to {memory.where}; {done.known} of {file} were there already")

    run(work, debug, as_json)


@app.command("merge")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `stitchcuda memory export` wrote.")],
    out: Annotated[Path, typer.Option("--out", help="A new file, or one of those that are merged.")],
    debug: Debug = False,
) -> None:
    """Puts export files together: all lessons of all of them, each once."""

    def work() -> None:
        from stitchcuda.memory import exchange
        from stitchcuda.memory.lesson import each_once

        if out.exists() and out.resolve() not in [file.resolve() for file in files]:
            raise BadInput(f"{out} exists already: name a new file, or merge it too")
        lessons = each_once(lesson for file in files for lesson in exchange.read(file))
        exchange.write(out, exchange.text(lessons))
        print(f"{counted(len(lessons))} written to {out}")

    run(work, debug)


def memory_of(workspace: Path | None, *, reading: bool = False) -> AbstractContextManager[Memory]:
    """The workspace's memory. Who only reads and names a workspace means a folder that is there."""
    from stitchcuda.memory import location, open_memory
    from stitchcuda.workspace import Workspace

    folder = workspace.expanduser().resolve() if workspace else Workspace.default()
    if reading and workspace and isinstance(location(folder), Path) and not folder.is_dir():
        raise BadInput(f"there is no workspace at {folder}: name another with --workspace")
    return open_memory(folder)


def table(experiences: tuple[Experience, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from stitchcuda.memory import telling

    made = Table("situation", "what was done", "weight", "predicted", "measured", "lessons", box=None)
    for experience in experiences:
        cells = (
            telling.place(experience),
            telling.way(experience),
            f"{experience.weight:.2f}",
            telling.milliseconds(experience.predicted_ms),
            telling.measured(experience),
            telling.record(experience),
        )
        made.add_row(*map(Text, cells))    # plain text: what models wrote may look like rich's markup
    return made


def facts(experience: Experience) -> dict[str, Any]:
    """An experience for `--json`: its figures, and all its lessons."""
    interval = experience.interval_ms
    return {
        "key": experience.key,
        "weight": experience.weight,
        "tried": len(experience.lessons),
        "accepted": experience.accepted,
        "predicted_ms": experience.predicted_ms,
        "saving_ms": experience.saving_ms,
        "saving_low_ms": interval[0] if interval else None,
        "saving_high_ms": interval[1] if interval else None,
        "lessons": [{"id": lesson.id, **lesson.model_dump(mode="json")} for lesson in experience.lessons],
    }


def counted(number: int) -> str:
    return f"{number} lesson{'' if number == 1 else 's'}"


def show(table: Table) -> None:
    """As wide as the terminal, or wide enough for most when nobody looks."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)


def run(work: Callable[[], None], debug: bool, as_json: bool = False) -> None:
    """Runs a command and exits with its code: an error for people is one sentence, and `error` in the object of --json."""
    code, line = 0, ""
    try:
        work()
        sys.stdout.flush()
    except BrokenPipeError:                # the reader of our output went away, as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    except StitchError as error:
        if debug:
            raise
        code, line = error.exit_code, " ".join(str(error).split()).rstrip(".")
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    except Exception as error:             # a defect of ours: said as one, with the way to see where
        if debug:
            raise
        told = " ".join(f"{type(error).__name__}: {error}".split())
        code, line = StitchError.exit_code, f"a defect in stitchcuda, please report it: {told}; --debug shows where"
    if line:
        print(f"stitchcuda: {line}", file=sys.stderr)
        if as_json:
            print(json.dumps({"error": line}))
    raise typer.Exit(code)
