"""What all commands share: common options, how errors and exit codes come about, how tables are printed.

`--json` prints exactly one JSON object on stdout; all else goes to stderr. An error for people is one sentence; `--debug` adds
the traceback and changes nothing else. SIGTERM and SIGHUP stop a command as Ctrl-C does, with exit codes of their own (143 and
129 beside 130). The commands are in `cli/app.py` and `cli/memory.py`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from stitchcuda.errors import StitchError

if TYPE_CHECKING:
    from stitchcuda.store import Workspace

FORM: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""How every group of commands presents itself."""
AGAIN_S = 1.0  # a second signal within that time is the first one's echo

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
    with _stops() as stops, _own_output():
        try:
            code = work() or 0
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, _Unwritable):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes nowhere
            if debug:
                with suppress(OSError):
                    traceback.print_exc()
            code, told = _ended(error, stops, interrupted)
            if told:
                complain(told, as_json)
    raise typer.Exit(code)


def _ended(error: BaseException, stops: list[int], interrupted: str) -> tuple[int, str]:
    """The exit code, and the sentence for a person; "" where nobody is there to read it."""
    meant = str(error) if isinstance(error, StitchError | KeyboardInterrupt) else ""
    if stops or isinstance(error, KeyboardInterrupt):  # what fails during a stop, as in a closed terminal, is no news
        return 128 + (stops[0] if stops else signal.SIGINT), meant or interrupted
    if isinstance(error, StitchError):
        return error.exit_code, meant
    if isinstance(error, _Unwritable):
        gone = isinstance(error.why, BrokenPipeError)  # the reader went away, as with `| head`
        return (0, "") if gone else (2, f"the output cannot be written ({error.why.strerror}): send it to another place")
    defect = f"a defect in stitchcuda, please report it: {type(error).__name__}: {error}"
    return StitchError.exit_code, f"{defect}; --debug shows where"


@contextmanager
def _stops() -> Iterator[list[int]]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt; gives a list that has their numbers then.

    One that is ignored stays so: `nohup` means it. `timeout` and a closed terminal send theirs twice, which is one stop.
    """
    stops: list[int] = []
    last = 0.0

    def stop(number: int, frame: object) -> None:
        nonlocal last
        again, last = bool(stops) and time.monotonic() - last < AGAIN_S, time.monotonic()
        stops.append(number)
        if not again:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, stop)
    try:
        yield stops
    finally:
        for number in heard:               # a stop that is under way is not stopped
            signal.signal(number, signal.SIG_IGN if stops else before[number])


class _Unwritable(Exception):
    """Our output does not take what is printed; `why` is what the system says."""

    def __init__(self, why: OSError) -> None:
        super().__init__(str(why))
        self.why = why


class _Output:
    """stdout, with its own errors told apart from those of the work."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except OSError as error:
            raise _Unwritable(error) from error

    def flush(self) -> None:
        try:
            self._out.flush()
        except OSError as error:
            raise _Unwritable(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


@contextmanager
def _own_output() -> Iterator[None]:
    before = sys.stdout
    sys.stdout = cast(TextIO, _Output(before))
    try:
        yield
    finally:
        sys.stdout = before


def place(workspace: Path | None, checkpoint: str | None, *, create: bool = False) -> Workspace:
    """The workspace that a command was given."""
    from stitchcuda.store import Workspace

    return Workspace(workspace, create=create, checkpoint=checkpoint)


def complain(text: str, as_json: bool) -> None:
    """One line on stderr, however the sentence was written."""
    line = " ".join(text.split()).rstrip(".")
    with suppress(OSError):                # a terminal that was closed
        print(f"stitchcuda: {line}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": line}))


def print_table(table: Any) -> None:
    """A rich table, as wide as the terminal, or wide enough for everything when nobody looks. What is wider is not cut."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table, crop=False)
