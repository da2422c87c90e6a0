"""However a child ends or misbehaves, its supervisor says how, nothing of it is left, and it cost little."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox import supervisor
from stitchcuda.sandbox.protections import WITHOUT
from stitchcuda.verify.processes.forkserver import ForkServer
from tests.sandbox.prison import Prisoner, descendants, gone

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3, 100):
            try: os.close(descriptor)
            except OSError: pass
        time.sleep(100)
    os._exit(0)
os.wait()
out = True
"""


def test_the_last_output_is_kept_and_the_rest_costs_nothing(forkserver: ForkServer) -> None:
    """Half a gigabyte here; the cost does not grow with it."""
    with Prisoner(forkserver) as one:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        one.tell("import os\nfor _ in range(512): os.write(1, b'x' * (1 << 20))\nprint('the end', flush=True)\nout = 1")
        supervisor = one.child.pid
        peak = 0
        started = time.monotonic()
        while not select.select([one.child.channel], [], [], 0)[0] and time.monotonic() - started < 60:
            peak = max(peak, _private_kib(supervisor))
            time.sleep(0.05)
        assert one.child.output().endswith("the end\n")
        end = one.child.end()
        assert end.output.endswith("the end\n")
        assert len(end.output) <= 1 << 16
        assert end.dropped > 511 << 20
        assert peak < 60_000, "KiB of its own"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
        assert not any(one.scratch.iterdir())


def test_an_end_says_how(forkserver: ForkServer) -> None:
    ends = {"os._exit(7)": 7, "os.abort()": -6, "os.kill(os.getpid(), 9)": -9, "ctypes.string_at(0)": -11}
    for code, expected in ends.items():
        with Prisoner(forkserver) as one:
            one.tell("import ctypes, os; print('said before', flush=True)\n" + code)
            end = one.child.end(10)
            assert (end.code, end.reason) == (expected, "")
            assert "said before" in end.output


def test_memory_is_watched(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, memory_gib=0.5) as one:
        one.tell("import time; hog = []\nwhile True: hog.append(bytearray(1 << 24)); time.sleep(0.005)")
        assert one.child.end(20)[:2] == (-9, "memory")


def test_memory_in_nameless_files_is_watched(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, memory_gib=0.5) as one:
        one.tell("import os, time; f = os.memfd_create('x')\nwhile True: os.write(f, bytes(1 << 24)); time.sleep(0.005)")
        assert one.child.end(20)[:2] == (-9, "memory")


def test_the_address_space_is_bounded_on_the_simulator(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, target="sim", memory_gib=1.0) as one:
        assert one.does("out = len(bytearray(2 << 30))") == "MemoryError: "
        assert one.does("out = len(bytearray(1 << 20))") == 1 << 20


def test_disk_is_watched(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, disk_gib=0.1) as one:
        one.tell("import time\nfor i in range(100): open(f'{scratch}/{i}', 'wb').write(bytes(1 << 24)); time.sleep(0.02)")
        assert one.child.end(20)[:2] == (-9, "disk")


def test_one_file_is_bounded(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, file_gib=0.001) as one:
        assert "File too large" in one.does(
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen(scratch + '/x', 'wb').write(bytes(1 << 22))"
        )


def test_threads_are_watched(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, tasks=64) as one:
        one.tell(
            "import threading, time\n"
            "for _ in range(400): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\ntime.sleep(100)"
        )
        assert one.child.end(20)[1] == "processes"


@pytest.mark.more
def test_a_fork_bomb(forkserver: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the filter of system calls it may fork; it does not get far, and nothing of it survives.

    Each fork has a lot of memory mapped, as a program has: looking at memory then waits for the forks, counting does not.
    """
    monkeypatch.setenv(WITHOUT, "seccomp")
    with Prisoner(forkserver, tasks=60) as one:
        one.does("import builtins; builtins.held = [bytearray(4096) for _ in range(200_000)]")
        one.tell("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass")
        assert one.child.end(90)[:2] == (-9, "processes")
        assert gone(descendants(forkserver.pid))


@pytest.mark.parametrize("how", ["hangs", "stops itself", "sleeps in a thread"])
def test_one_that_does_not_answer_can_be_ended(forkserver: ForkServer, how: str) -> None:
    code = {
        "hangs": "while True: pass",
        "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "sleeps in a thread": "import threading, time; threading.Thread(target=time.sleep, args=(99,)).start(); time.sleep(99)",
    }[how]
    with Prisoner(forkserver) as one:
        assert one.does("out = 1") == 1
        one.tell(code)
        time.sleep(0.1)
        started = time.monotonic()
        assert one.child.end()[:2] == (-9, "")
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("left_out", ["seccomp", "seccomp,processes,proc", "seccomp,user,processes,proc,landlock,scopes"])
@pytest.mark.parametrize("killed", ["asked", "child", "supervisor"])
def test_a_daemon_does_not_survive(forkserver: ForkServer, monkeypatch: pytest.MonkeyPatch, left_out: str, killed: str) -> None:
    """A grandchild in a session of its own, that closed everything, whoever is killed, with a process namespace and without."""
    monkeypatch.setenv(WITHOUT, left_out)
    with Prisoner(forkserver) as one:
        assert one.does(DAEMON) is True
        family = descendants(one.child.pid) | {one.child.pid}
        assert len(family) >= 3
        if killed == "supervisor":
            os.kill(one.child.pid, signal.SIGKILL)
        if killed == "child":
            workers = [pid for pid in descendants(one.child.pid) if _name(pid) != "cat"]
            os.kill(min(workers), signal.SIGKILL)
        end = one.child.end(2.0 if killed == "child" else 0.0)
        assert end.code == -9
        assert gone(family)


def test_a_judge_that_is_killed_leaves_nothing() -> None:
    """The whole family of a process that is killed with SIGKILL goes with it."""
    from tests.sandbox import prison

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with prison.forkserver() as own, Prisoner(own) as first, Prisoner(own, kind="reference") as second:
                first.tell("while True: pass")
                second.does("import subprocess; subprocess.Popen(['sleep', '100'], start_new_session=True)")
                os.write(writer, f"{first.scratch} {second.scratch}".encode())
                time.sleep(100)
        finally:
            os._exit(1)
    scratches = os.read(reader, 4096).decode().split()
    family = descendants(pid)
    assert len(family) >= 6
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert gone(family), "a process survived"
    for descriptor in (reader, writer):
        os.close(descriptor)
    for scratch in scratches:
        shutil.rmtree(scratch)


def test_the_reference_is_trusted_and_cannot_be_looked_at(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, kind="reference") as one:
        assert one.does("import socket; socket.socket().close(); out = True") is True
        assert one.child.protections.on == ("limits", "memory and disk watch")


def test_nothing_is_left_of_many(forkserver: ForkServer) -> None:
    for _ in range(5):
        with Prisoner(forkserver) as one:
            assert one.does("out = 1") == 1
    assert descendants(forkserver.pid) == set()


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _private_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_Dirty",)))


def test_a_signal_that_comes_as_the_last_thing_stops_no_cleaning_up(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real, sent = signal.getsignal(signal.SIGTERM), signal.signal, list[int]()

    def late(number: int, handler: Any) -> Any:
        if not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return real(number, handler)

    real(signal.SIGTERM, supervisor._raise_orphaned)
    monkeypatch.setattr(signal, "signal", late)
    try:
        supervisor._ignore_sigterm()
        assert sent == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        real(signal.SIGTERM, before)
