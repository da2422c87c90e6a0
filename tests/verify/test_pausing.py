"""Processes of workers, as the system tells of them: counted with their threads, and stopped while another one is timed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.verify.processes.pausing import ProgramProcesses, count_threads, threads_by_process

COUNTING = """
import os, sys, threading, time
def count():
    with open(sys.argv[1], "wb", buffering=0) as file:
        while True:
            file.write(b".")
            time.sleep(0.001)
if os.fork() == 0:                         # the worker; this one is its supervisor
    threading.Thread(target=count).start()
    threading.Event().wait()
os.wait()
"""


class Counting:
    """A supervisor and a process below it, whose second thread writes a byte a millisecond."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.process = subprocess.Popen([sys.executable, "-c", COUNTING, str(file)], start_new_session=True)
        self.pid = self.process.pid

    def written(self, seconds: float) -> int:
        """In so many seconds from now."""
        before = self.file.stat().st_size
        time.sleep(seconds)
        return self.file.stat().st_size - before

    def ready(self) -> None:
        until = time.monotonic() + 10
        while not (self.file.exists() and self.file.stat().st_size) and time.monotonic() < until:
            time.sleep(0.01)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Counting, Counting]]:
    both = Counting(tmp_path / "one"), Counting(tmp_path / "other")
    try:
        for one in both:
            one.ready()
        yield both
    finally:
        for one in both:
            one.end()


def test_threads_are_counted_from_outside() -> None:
    before = count_threads(os.getpid())
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert count_threads(os.getpid()) == before + 1
    finally:
        stop.set()
        thread.join()


def test_the_others_stand_still(two: tuple[Counting, Counting]) -> None:
    previous, program = two
    assert sorted(threads_by_process(program.pid).values()) == [1, 2]
    others = ProgramProcesses({"previous": previous.pid, "program": program.pid})
    assert not others.denied
    with others.pause_others("reference"):
        time.sleep(0.05)                   # a signal arrives when it arrives
        assert (previous.written(0.1), program.written(0.1)) == (0, 0)
    assert previous.written(0.2) > 0
    with others.pause_others("program"):
        time.sleep(0.05)
        assert previous.written(0.1) == 0
        assert program.written(0.2) > 0
    with pytest.raises(KeyError), others.pause_others("reference"):
        raise KeyError
    assert program.written(0.2) > 0


def test_a_program_that_is_the_previous_one_as_well_is_not_stopped_for_itself(two: tuple[Counting, Counting]) -> None:
    program, other = two
    both = ProgramProcesses({"previous": program.pid, "program": program.pid})
    with both.pause_others("program"):
        assert program.written(0.2) > 0
    other.end()
    with ProgramProcesses({"program": other.pid}).pause_others("reference"):
        pass                               # it is gone


def test_a_process_may_be_called_anything() -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe) 1 2'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        try:
            assert threads_by_process(odd.pid) == {odd.pid: 1}
        finally:
            odd.kill()


def test_who_shows_no_processes_is_denied(two: tuple[Counting, Counting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stitchcuda.verify.processes.pausing.threads_by_process", lambda pid: {pid: 0})
    assert ProgramProcesses({"program": two[0].pid}).denied


def test_what_the_system_denies_is_said(two: tuple[Counting, Counting], monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int, what: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", denied)
    others = ProgramProcesses({"program": two[0].pid})
    assert others.denied
    with others.pause_others("reference"):
        assert two[0].written(0.2) > 0
