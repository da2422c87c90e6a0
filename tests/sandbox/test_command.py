"""Compilers and other tools: they read the system and what they are given, write where they may, and end when they must."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stitchcuda.sandbox import command
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import NAMES, WITHOUT


def test_a_compiler_works(tmp_path: Path) -> None:
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    (given / "one.cpp").write_text('#include <vector>\nextern "C" int f() { return std::vector<int>(3).size(); }\n')
    order = ["g++", "-shared", "-fPIC", str(given / "one.cpp"), "-o", str(made / "one.so")]
    done = command.run(order, seconds=60, read=[given], write=[made])
    assert (done.code, done.output) == (0, "")
    assert (made / "one.so").stat().st_size > 1000


@pytest.mark.parametrize("left_out", ["", "mounts", "landlock", "user"])
def test_what_is_not_given_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    monkeypatch.setenv(WITHOUT, left_out)
    (tmp_path / "secret.h").write_text("int secret;")
    made = tmp_path / "made"
    made.mkdir()
    (made / "one.cpp").write_text(f'#include "{tmp_path}/secret.h"\n')
    done = command.run(["g++", "-E", "one.cpp"], seconds=60, write=[made])
    assert done.code != 0
    assert "secret.h" in done.output
    done = command.run(["sh", "-c", f"echo x > {tmp_path}/new; echo x > made"], seconds=60, write=[made])
    assert (made / "made").exists()
    assert not (tmp_path / "new").exists()


def test_output_environment_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-compilers")
    done = command.run(["sh", "-c", "env; echo to stderr >&2; exit 3"], seconds=10)
    assert done.code == 3
    assert "to stderr" in done.output
    assert "sk-not" not in done.output
    assert command.run(["does-not-exist"], seconds=10).code == 127
    assert command.run(["sh", "-c", "kill -SEGV $$"], seconds=10).code == -11
    given = {"ONLY": "this", "PATH": "/usr/bin:/bin"}
    assert sorted(command.run(["env"], seconds=10, env=given).output.split()) == ["ONLY=this", "PATH=/usr/bin:/bin"]


def test_only_what_uses_the_gpu_has_the_priority_of_a_program() -> None:
    own = os.nice(0)
    assert [int(command.run(("nice",), seconds=10, gpu=gpu).output) - own for gpu in (False, True)] == [10, 0]


def test_a_flood_of_errors_is_cut(tmp_path: Path) -> None:
    done = command.run(["sh", "-c", "echo first; head -c 100000000 /dev/zero; echo last"], seconds=60)
    assert done.output.startswith("first\n")
    assert done.output.endswith("last\n")
    assert "bytes of output dropped" in done.output
    assert len(done.output) < 5_000_000


@pytest.mark.parametrize("left_out", ["", "processes,proc,user"])
def test_a_command_is_killed_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    monkeypatch.setenv(WITHOUT, left_out)
    started = time.monotonic()
    script = "(setsid sh -c 'sleep 2; touch mark') & echo going; wait"
    done = command.run(["sh", "-c", script], seconds=0.5, write=[tmp_path])
    assert (done.timed_out, done.output) == (True, "going\n")
    assert time.monotonic() - started < 2
    time.sleep(2)
    assert not (tmp_path / "mark").exists()


def test_a_command_ends_with_who_asked(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom stitchcuda.sandbox import command\n"
        f"command.run(['sh', '-c', 'touch started; sleep 2; touch mark'], seconds=60, write=[Path({str(tmp_path)!r})])"
    )
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    asker = subprocess.Popen([sys.executable, "-c", script], env=environment)
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asker.kill()
    asker.wait()
    time.sleep(2.5)
    assert not (tmp_path / "mark").exists()


def test_a_command_is_bounded(tmp_path: Path) -> None:
    done = command.run(
        ["sh", "-c", "i=0; while :; do i=$((i+1)); head -c 10000000 /dev/zero > $i; done"],
        seconds=60, write=[tmp_path], limits=Limits(disk_gib=0.1),
    )  # fmt: skip
    assert done.code == -9
    assert "stopped: more disk" in done.output
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 << 30


def test_what_this_machine_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = command.available()
    assert set(found.on) | {name for name, _ in found.denied} == set(NAMES.values())
    monkeypatch.setenv(WITHOUT, "landlock, seccomp")
    found = command.available()
    assert dict(found.denied) == {NAMES[name]: f"left out by {WITHOUT}" for name in ("landlock", "seccomp")}


TALK = """
import socket, subprocess, sys
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
ask = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(9))"
with subprocess.Popen([sys.executable, "-c", ask]) as child:
    server.accept()[0].send(b"its parent")
"""


def test_processes_of_one_sandbox_speak_with_each_other_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        done = command.run([sys.executable, "-c", TALK], seconds=30, loopback=True)
        assert (done.code, done.output) == (0, "b'its paren'\n")
        reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        done = command.run([sys.executable, "-c", reach], seconds=30, loopback=True)
        assert done.output.splitlines()[-1] == "ConnectionRefusedError: [Errno 111] Connection refused"
        done = command.run([sys.executable, "-c", TALK], seconds=30)
        assert done.output.splitlines()[-1] == "PermissionError: [Errno 13] Permission denied"


def test_no_loopback_without_a_network_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "network")
    done = command.run([sys.executable, "-c", TALK], seconds=30, loopback=True)
    assert done.output.splitlines()[-1] == "PermissionError: [Errno 13] Permission denied"


NAMING = """
import subprocess, sys
child = "open('/proc/self/comm', 'w').write('named'); print(open('/proc/self/comm').read().strip())"
subprocess.run([sys.executable, "-c", child])
open("/proc/self/comm", "w").write("the first")
for place in ("sys/kernel/printk", "sys/kernel/hostname", "sys/kernel/core_pattern"):
    try:
        open(f"/proc/{place}", "w")
    except OSError as error:
        print(error.strerror)
"""


def test_what_a_gpus_tool_starts_names_its_threads_and_sets_nothing() -> None:
    done = command.run([sys.executable, "-c", NAMING], seconds=30, gpu=True)
    named, *refused = done.output.splitlines()
    assert (done.code, named) == (0, "named")
    assert len(refused) == 3
    assert set(refused) <= {"Read-only file system", "Permission denied"}
    alone = command.run([sys.executable, "-c", NAMING], seconds=30)
    assert "comm" in alone.output.splitlines()[-1]
