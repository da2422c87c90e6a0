"""A tiny session with a workbench, run in a thread, and its commands run as an agent runs them."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stitchcuda.sessions.session import Session
from tests.graph.tiny import TinyHands, tiny_session

MODEL = "class ModelNew: ...\n"


class WorkingSession:
    """A session that runs in a thread until it ends; `bench` is its workbench."""

    def __init__(self, session: Session, bench: Path, hands: TinyHands) -> None:
        self.session, self.bench, self.hands = session, bench, hands
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        wait_for(lambda: self.failure is not None or (self.bench / ".workbench/socket").exists())

    def _run(self) -> None:
        try:
            self.session.run(tools=self.hands)
        except BaseException as error:     # looked at by the test
            self.failure = error

    def write(self, draft: str) -> None:
        """Writes a program that the tools take for `draft`, such as "a saves 0.2"."""
        (self.bench / "model_new.py").write_text(MODEL)
        (self.bench / "kernels").mkdir(exist_ok=True)
        (self.bench / "kernels/drafts.cu").write_text(draft + "\n")

    def call(self, *command: str) -> tuple[int, str]:
        """Runs a command of the workbench; returns its exit code and what it prints."""
        done = subprocess.run([str(self.bench / command[0]), *command[1:]], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def submit(self, draft: str, *options: str) -> tuple[int, str]:
        self.write(draft)
        return self.call("submit", *options)

    def ends(self) -> Session:
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return self.session


@contextmanager
def working(
    folder: Path, *, timed: bool = False, hands: TinyHands | None = None, **settings: Any
) -> Iterator[WorkingSession]:
    """Gives a session whose workbench is ready; ends it afterwards by removing the workbench."""
    bench = folder / "bench"
    session = tiny_session(folder, model=f"workbench:{bench}", from_scratch=True, **settings)
    made = WorkingSession(session, bench, hands or TinyHands(timed=timed))
    made.start()
    try:
        yield made
    finally:
        if bench.exists():
            bench.rename(folder / "removed")
        made._thread.join(30)


def wait_for(happened: object, seconds: float = 20.0) -> None:
    """Waits until the function returns something true."""
    assert callable(happened)
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
