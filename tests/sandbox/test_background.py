"""Commands that go on in the sandbox while their caller does something else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox.background import BackgroundCommand
from stitchcuda.sandbox.command import CommandEnd
from stitchcuda.sandbox.limits import Limits, clean_environment
from stitchcuda.sandbox.protections import WITHOUT
from tests.sandbox.prison import gone


def start(folder: Path, *command: str, **given: Any) -> BackgroundCommand:
    (folder / "work").mkdir(exist_ok=True)
    options = {"seconds": 30, "limits": Limits(memory_gib=2), "transcript_bytes": 10_000, "needs": ("network",), **given}
    return BackgroundCommand(
        command, cwd=folder / "work", env=clean_environment(), read=(), write=[folder / "work"],
        transcript=folder / "transcript", **options,
    )  # fmt: skip


def wait(command: BackgroundCommand) -> CommandEnd:
    until = time.monotonic() + 20
    while (end := command.ended()) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    return end


def test_output_is_there_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "transcript").touch()
    command = start(tmp_path, "sh", "-c", "echo working; sleep 60")
    until = time.monotonic() + 10
    while (tmp_path / "transcript").read_text() != "working\n":
        assert time.monotonic() < until
        time.sleep(0.01)
    assert command.ended() is None
    command.stop()
    assert wait(command).reason == "asked"


def test_a_thread_that_starts_it_may_end(tmp_path: Path) -> None:
    made: list[BackgroundCommand] = []
    thread = threading.Thread(target=lambda: made.append(start(tmp_path, "sh", "-c", "sleep 0.5; echo done")))
    thread.start()
    thread.join()
    assert wait(made[0])[:3] == (0, "", b"done\n")


@pytest.mark.parametrize("left_out", ["network", "processes,proc", "mounts"])
def test_it_is_not_run_without_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    monkeypatch.setenv(WITHOUT, left_out)
    command = start(tmp_path, "touch", "ran", needs=("network", "mounts", "processes"), ports=[3128])
    end = wait(command)
    assert end.code == 126
    assert b"this machine denies" in end.output
    assert not (tmp_path / "work" / "ran").exists()


def test_unconfined_it_is_the_user_s_own_and_still_ends(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    command = start(tmp_path, "sh", "-c", f"touch {outside}; setsid sleep 61.7 & sleep 60", confined=False, ports=[3128])
    until = time.monotonic() + 10
    while not outside.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert command.listeners == ()
    command.stop()
    assert wait(command).reason == "asked"
    assert not any(b"61.7" in _command_of(name) for name in os.listdir("/proc") if name.isdigit())


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = f"""if True:
        import time
        from pathlib import Path
        from stitchcuda.sandbox.background import BackgroundCommand
        from stitchcuda.sandbox.limits import Limits
        work = Path({str(tmp_path)!r})
        BackgroundCommand(
            ["sh", "-c", "trap '' TERM HUP; setsid sleep 62.7 & echo > ready; sleep 62.7"], seconds=60, cwd=work, env={{}},
            read=[], write=[work], limits=Limits(), transcript=work / "transcript", transcript_bytes=1000, ports=[3128],
        )
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        until = time.monotonic() + 20
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        there = {int(name) for name in os.listdir("/proc") if name.isdigit() and b"62.7" in _command_of(name)} - {process.pid}
        assert len(there) >= 3
        process.kill()
    assert gone(there)


def test_a_command_that_does_not_exist_ends(tmp_path: Path) -> None:
    assert wait(start(tmp_path, "does-not-exist")).code == 127


def test_a_launcher_that_fails_is_an_end(tmp_path: Path) -> None:
    (tmp_path / "transcript").mkdir()
    end = wait(start(tmp_path, "true", ports=[3128]))
    assert (end.code, end.reason) == (-1, "launcher")
    assert b"transcript" in end.output


def test_its_ports_are_its_own(tmp_path: Path) -> None:
    """Two commands have the same port, and each its own network."""
    connect = "import socket; print(socket.create_connection(('127.0.0.1', 4000), 10).recv(10).decode())"
    commands = [start(tmp_path, sys.executable, "-c", connect, ports=[4000]) for _ in range(2)]
    for index, command in enumerate(commands):
        (listener,) = command.listeners
        with listener, listener.accept()[0] as connection:
            connection.sendall(str(index).encode())
    assert [wait(command).output for command in commands] == [b"0\n", b"1\n"]


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
