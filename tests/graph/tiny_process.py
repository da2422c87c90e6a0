"""A process that runs a tiny session as the command line does: `python -m tests.graph.tiny_process SESSION [OPTIONS]`.

The session is in the database that STITCHCUDA_CHECKPOINT names. Tools are the scripted ones of `tests/graph/tiny.py`; each call
of one and each event is a line on stdout. With --hold-at N the process waits in the N-th call of a tool until there is a file
`go` in its folder; with --stop-at N it stops itself (SIGSTOP) in that call, with --stop-in N in the middle of the first
transaction in or after that call, when that has checked that the session is still its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from stitchcuda.graph import opening

opening.open_tools = lambda home, record, device=None: _tools()  # before anybody takes it from there

from stitchcuda.cli import app, console  # noqa: E402
from stitchcuda.sessions.session import resume  # noqa: E402
from stitchcuda.store import Workspace  # noqa: E402
from stitchcuda.store.postgres_store import PostgresStore  # noqa: E402
from tests.graph.tiny import REFERENCE, ScriptedEngineer, TinyHands  # noqa: E402

SCRIPT = {f"t{number}": ["build error", "wrong", "saves 0.01"] for number in range(5)}
HANDS = TinyHands()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("session")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--hold-at", type=int, default=0)
    parser.add_argument("--stop-at", type=int, default=0)
    parser.add_argument("--stop-in", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.02, help="that a tool takes")
    asked = parser.parse_args()
    called: list[str] = []

    def before(tool: str) -> None:
        called.append(tool)
        print("tool", tool, flush=True)
        if len(called) == asked.hold_at:
            print("holds", flush=True)
            while not Path("go").exists():
                time.sleep(0.02)
        if len(called) == asked.stop_at:
            stop()
        time.sleep(asked.seconds)

    def work() -> int:
        home = Workspace()
        if asked.new:
            reference = Path("reference.py")
            reference.write_text(REFERENCE)
            opening.open_record(home, reference, None, name=asked.session, device="sim", settings={})
        done = resume(asked.session, wait=asked.wait, workspace=home, engineer=ScriptedEngineer(SCRIPT), on_event=told)
        return app.finish(done, as_json=True)

    HANDS.before = before
    if asked.stop_in:
        _stopping(lambda: len(called) >= asked.stop_in)
    try:
        console.report_errors()(work)()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def _tools() -> TinyHands:
    return HANDS


def told(event: dict[str, Any]) -> None:
    attempt = event.get("attempt")
    print(event["kind"], attempt.id if attempt else event.get("text", ""), flush=True)


def stop() -> None:
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def _stopping(now: Callable[[], bool]) -> None:
    check = PostgresStore.check
    stopped: list[str] = []

    def checked(self: PostgresStore, cursor: Any, session: str) -> None:
        check(self, cursor, session)
        if not stopped and now():
            stopped.append(session)
            stop()

    PostgresStore.check = checked  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
