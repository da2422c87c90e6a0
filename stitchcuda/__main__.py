"""Starts the command line, as `stitchcuda` or `python -m stitchcuda`.

It handles Ctrl-C, SIGTERM and SIGHUP while modules are still being loaded, and a closed stdout or stderr.

Where to look next: `cli/app.py` (the commands), `cli/console.py` (signals while a command runs).
"""

import json
import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP)
BEFORE = "interrupted before anything was started"


def main() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:     # it was closed: what is printed there is dropped
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    stops: list[int] = []

    def stop(number: int, frame: object) -> None:
        stops.append(number)
        if len(stops) == 1 or number == signal.SIGINT:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, stop)
    try:
        try:
            from stitchcuda.cli.app import main as run

            run()
        except Exception as error:
            if stops:                      # pydantic makes an error of its own of one that a signal raises in it
                raise KeyboardInterrupt from error
            raise
    except KeyboardInterrupt:
        code = 128 + (stops[0] if stops else signal.SIGINT)
        with suppress(OSError):            # the terminal may be closed
            print(f"stitchcuda: {BEFORE}", file=sys.stderr)
            if "--json" in sys.argv:
                print(json.dumps({"error": BEFORE}))
    except SystemExit as end:
        if end.code not in INTERRUPTED:
            raise
        code = int(end.code or 0)
    except OSError as error:               # --help is printed before a command runs
        if error.errno is None or error.filename is not None:
            raise
        gone = isinstance(error, BrokenPipeError)
        code = 0 if gone else 2
        if not gone:
            print(f"stitchcuda: the output cannot be written ({error.strerror}): send it to another place", file=sys.stderr)
    else:
        return
    # If the interrupt fell into an exec() of text, as when a dataclass is made while modules are loaded, Python would ignore
    # our exit code and end itself by SIGINT. The parent process should see 130 too, as a shell does.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
