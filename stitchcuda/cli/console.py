"""Provides what all commands share: common options, errors and exit codes, signals, printing of tables.

`--json` prints exactly one JSON object on stdout; all else goes to stderr. An error for people is one sentence; `--debug` adds
the traceback and changes nothing else. SIGTERM and SIGHUP stop a command as Ctrl-C does, with exit codes of their own (143 and
129; Ctrl-C has 130).

Where to look next: `cli/app.py` (the main commands), `errors.py` (exit codes), `__main__.py` (signals during loading).
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
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TextIO, cast

import typer

from stitchcuda.errors import StitchError

if TYPE_CHECKING:
    from stitchcuda.store import Workspace

P = ParamSpec("P")
FORM: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Arguments of every group of commands."""
AGAIN_S = 1.0                              # a second signal within this time belongs to the first and is ignored

Place = Annotated[Path | None, typer.Option("--workspace", help="Default: STITCHCUDA_WORKSPACE, else .stitchcuda here.")]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="URL", help="Sessions are in postgresql://…, not in the folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, and more log lines.")]


def report_errors(*, interrupted: str = "interrupted") -> Callable[[Callable[P, int | None]], Callable[P, None]]:
    """Decorates a command with the options `debug` and perhaps `as_json`; it exits with the code that it returns (None: 0).

    An error becomes one sentence on stderr, and with `as_json` also {"error": …} on stdout. `interrupted` is the sentence after
    Ctrl-C, unless the KeyboardInterrupt has one.
    """
    def decorate(act: Callable[P, int | None]) -> Callable[P, None]:
        @wraps(act)
        def perform(*args: P.args, **options: P.kwargs) -> None:
            debug, as_json = bool(options.get("debug")), bool(options.get("as_json"))
            _run(lambda: act(*args, **options), debug, as_json, interrupted)

        return perform

    return decorate


def _run(work: Callable[[], int | None], debug: bool, as_json: bool, interrupted: str) -> None:
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "httpcore", "openai", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if not debug:
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # a lost connection is reported once, by us
        warnings.simplefilter("ignore")  # other libraries' advice to programmers
    with _catch_signals() as stops, _checked_output():
        try:
            code = work() or 0
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, _Unwritable):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            if debug:
                with suppress(OSError):
                    traceback.print_exc()
            code, sentence = _explain(error, stops, interrupted)
            if sentence:
                complain(sentence, as_json)
    raise typer.Exit(code)


def _explain(error: BaseException, stops: list[int], interrupted: str) -> tuple[int, str]:
    """The exit code and the sentence for an error; "" if nobody reads it any more. `stops`: signals that came."""
    sentence = str(error) if isinstance(error, StitchError | KeyboardInterrupt) else ""
    if stops or isinstance(error, KeyboardInterrupt):  # an error during a stop follows from it
        return 128 + (stops[0] if stops else signal.SIGINT), sentence or interrupted
    if isinstance(error, StitchError):
        return error.exit_code, sentence
    if isinstance(error, _Unwritable):
        no_reader = isinstance(error.why, BrokenPipeError)  # as with `| head`
        return (0, "") if no_reader else (2, f"the output cannot be written ({error.why.strerror}): send it to another place")
    defect = f"a defect in stitchcuda, please report it: {type(error).__name__}: {error}"
    return StitchError.exit_code, f"{defect}; --debug shows where"


@contextmanager
def _catch_signals() -> Iterator[list[int]]:
    """Inside, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, and their numbers are appended to the list that this gives:
    a library may make another error of a KeyboardInterrupt.

    A signal that is ignored stays so, as `nohup` demands. `timeout` and a closed terminal send theirs twice, which counts once.
    """
    stops: list[int] = []
    last = 0.0

    def stop(number: int, frame: object) -> None:
        nonlocal last
        again, last = bool(stops) and time.monotonic() - last < AGAIN_S, time.monotonic()
        stops.append(number)
        if not again:
            raise KeyboardInterrupt

    def interrupt(number: int, frame: object) -> None:
        stops.append(number)
        raise KeyboardInterrupt

    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, stop)
    try:
        yield stops
    finally:
        signal.signal(signal.SIGINT, on_interrupt)
        for number in caught:              # after a stop further signals are ignored, so that it can finish
            signal.signal(number, signal.SIG_IGN if stops else before[number])


class _Unwritable(Exception):
    """stdout cannot be written to; `why` is the system's error."""

    def __init__(self, why: OSError) -> None:
        super().__init__(str(why))
        self.why = why


class _Output:
    """Wraps stdout so that its own errors are `_Unwritable`, and not taken for errors of the work."""

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
def _checked_output() -> Iterator[None]:
    """Inside, stdout is wrapped in `_Output`."""
    before = sys.stdout
    sys.stdout = cast(TextIO, _Output(before))
    try:
        yield
    finally:
        sys.stdout = before


def place(workspace: Path | None, checkpoint: str | None, *, create: bool = False) -> Workspace:
    """The workspace that --workspace and --checkpoint mean."""
    from stitchcuda.store import Workspace

    return Workspace(workspace, create=create, checkpoint=checkpoint)


def complain(text: str, as_json: bool) -> None:
    """Prints a sentence as one line on stderr; with `as_json` also as {"error": …} on stdout."""
    line = " ".join(text.split()).rstrip(".")
    with suppress(OSError):                # the terminal may be closed
        print(f"stitchcuda: {line}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": line}))


def tell(line: str) -> None:
    """Prints a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def print_table(table: Any) -> None:
    """Prints a rich table, as wide as the terminal, or 160 columns if stdout is none. Wider content is not cut."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table, crop=False)
