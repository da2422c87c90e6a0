"""What all commands share: options, how one is run and ends, how an error is told, how a table is shown.

`--json` prints exactly one JSON object on stdout; all else goes to stderr. An error for people is one sentence; `--debug` adds
the traceback. The commands are in `cli.py` and `memory_commands.py`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchcuda.errors import StitchError

if TYPE_CHECKING:
    from stitchcuda.workspace import Workspace

FORM: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""How every group of commands presents itself."""

Place = Annotated[Path | None, typer.Option("--workspace", help="Default: STITCHCUDA_WORKSPACE, else .stitchcuda here.")]
Kept = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="URL", help="Sessions are in postgresql://…, not in the folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, and more log lines.")]


def run(work: Callable[[], int | None], debug: bool, as_json: bool = False, *, interrupted: str = "interrupted") -> None:
    """Runs a command and exits with its code; errors become one sentence on stderr, and `error` in the object of --json."""
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "httpcore", "openai", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if not debug:
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # what ends with a lost connection is told once
        warnings.simplefilter("ignore")  # other libraries' advice to programmers
    try:
        code = work() or 0
        sys.stdout.flush()
    except StitchError as error:
        if debug:
            raise
        complain(str(error), as_json)
        code = error.exit_code
    except KeyboardInterrupt as error:
        if debug:
            raise
        complain(str(error) or interrupted, as_json)
        code = 130
    except BrokenPipeError:  # the reader of our output went away, as with `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        code = 0
    except Exception as error:  # a defect of ours: said as one, with the way to see where
        if debug:
            raise
        complain(f"a defect in stitchcuda, please report it: {type(error).__name__}: {error}; --debug shows where", as_json)
        code = StitchError.exit_code
    raise typer.Exit(code)


def place(workspace: Path | None, checkpoint: str | None, *, create: bool = False) -> Workspace:
    """The workspace that a command was given."""
    from stitchcuda.workspace import Workspace

    return Workspace(workspace, create=create, checkpoint=checkpoint)


def complain(text: str, as_json: bool) -> None:
    """One line on stderr, however the sentence was written."""
    line = " ".join(text.split()).rstrip(".")
    print(f"stitchcuda: {line}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": line}))


def print_table(table: Any) -> None:
    """A rich table, as wide as the terminal, or wide enough for everything when nobody looks."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
