"""What a program's worker cannot do, what it can, and that each protection holds without the others."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.protections import NAMES, WITHOUT
from stitchcuda.verify.processes.forkserver import ForkServer
from tests.sandbox import prison
from tests.sandbox.attacks import ATTACKS, HONEST, NAMELESS, fill
from tests.sandbox.prison import Prisoner

COVERED_TWICE = set(ATTACKS) - {
    # one protection alone stands between a program and these
    "an internet socket", "a netlink socket", "a local socket outside", "fork", "start a program", "become a program",
    "shared memory that stays", "hide from the supervisor", "outlive the supervisor", "a higher limit", "io_uring", "bpf",
    "a perf event", "a key", "trace process 1", "a new user namespace", "mount", "kill everything", "signal process 1",
    "read another's memory",
}  # fmt: skip


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """A folder that no child may see, with a secret, and one that it may read."""
    outside, shown = tmp_path / "outside", tmp_path / "shown"
    for folder, name in ((outside, "secret"), (shown, "file")):
        folder.mkdir()
        (folder / name).write_text("text")
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as nameless:
        monkeypatch.chdir(outside)         # a socket's path may be 107 bytes long
        named.bind("socket")
        nameless.bind(NAMELESS)
        named.listen()
        nameless.listen()
        yield outside, shown


@pytest.fixture
def prisoner(forkserver: ForkServer, places: tuple[Path, Path]) -> Iterator[Prisoner]:
    with Prisoner(forkserver, read=(places[1],)) as one:
        yield one


def test_no_attack_succeeds(prisoner: Prisoner, places: tuple[Path, Path]) -> None:
    assert succeeded(prisoner, places) == []
    assert not prisoner.child.protections.denied, "this machine grants everything; else the next tests say what holds"
    assert len(prisoner.child.protections.on) == len(NAMES)


def test_honest_work_is_not_stopped(prisoner: Prisoner, places: tuple[Path, Path]) -> None:
    outside, shown = places
    for name, code in HONEST.items():
        assert prisoner.does(fill(code, outside=outside, shown=shown, supervisor=1)) is True, name


@pytest.mark.parametrize("left_out", NAMES)
def test_without_one_protection(
    forkserver: ForkServer, places: tuple[Path, Path], left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with its reason, the others stay, and what two of them cover is still impossible."""
    monkeypatch.setenv(WITHOUT, left_out)
    with Prisoner(forkserver, read=(places[1],)) as prisoner:
        denied = dict(prisoner.child.protections.denied)
        assert denied.pop(NAMES[left_out]) == f"left out by {WITHOUT}"
        assert set(denied) <= {NAMES[name] for name in DEPENDENT.get(left_out, ())}
        got = set(succeeded(prisoner, places))
    assert got & COVERED_TWICE <= ALONE.get(left_out, set())


DEPENDENT = {"processes": ("proc",), "privileges": ("landlock", "scopes", "seccomp")}
ALONE = {
    "user": {"see the supervisor"},
    "processes": {"see the supervisor"},
    "proc": {"see the supervisor"},
}
"""What one protection alone is for."""


def test_no_socket_at_all_on_the_simulator(forkserver: ForkServer) -> None:
    with Prisoner(forkserver, target="sim") as one:
        assert one.does("import socket; socket.socket(socket.AF_UNIX)") == "PermissionError: [Errno 13] Permission denied"


def test_a_protection_that_does_not_exist(forkserver: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "firewall")
    with pytest.raises(BadInput, match="names firewall; name some of user, network"):
        Prisoner(forkserver)


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests already run as an ordinary user")
@pytest.mark.parametrize("left_out", ["", "user", "mounts", "landlock"])
def test_as_an_ordinary_user(left_out: str) -> None:
    """A fork gives up root, makes its own forkserver and tries everything again."""
    reader, writer = os.pipe()
    own_path = Path(tempfile.mkdtemp(prefix="ordinary-", dir="/dev/shm"))  # pytest's own folders are root's alone
    os.chown(own_path, 12345, 12345)
    pid = os.fork()
    if pid == 0:
        answer: object = "died"
        try:
            os.close(reader)
            os.environ[WITHOUT] = left_out
            os.setgroups([])
            os.setresgid(12345, 12345, 12345)
            os.setresuid(12345, 12345, 12345)
            for folder, name in (("outside", "secret"), ("shown", "file")):
                (own_path / folder).mkdir()
                (own_path / folder / name).write_text("text")
            both = own_path / "outside", own_path / "shown"
            with prison.forkserver() as own, Prisoner(own, read=(both[1],)) as prisoner:
                denied = [name for name, _ in prisoner.child.protections.denied]
                answer = [denied, succeeded(prisoner, both)]
        except BaseException:
            answer = traceback.format_exc()
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    shutil.rmtree(own_path)
    assert isinstance(answer, list), answer
    denied, got = answer
    without_user = {"user namespace", "network", "shared memory", "files (mounts)", "processes", "own /proc"}
    assert set(denied) <= (without_user if left_out == "user" else {NAMES[left_out]} if left_out else set()), denied
    assert set(got) & COVERED_TWICE <= ALONE.get(left_out, set()), got


def succeeded(prisoner: Prisoner, places: tuple[Path, Path]) -> list[str]:
    """The attacks that got what they wanted. One that may end the child goes last or not at all."""
    outside, shown = places
    filled = {name: fill(code, outside=outside, shown=shown, supervisor=prisoner.child.pid) for name, code in ATTACKS.items()}
    if "system calls" not in prisoner.child.protections.on:
        for deadly in ("become a program", "kill everything", "signal process 1", "fork", "hide from the supervisor"):
            del filled[deadly]
    return [name for name, code in filled.items() if prisoner.does(code) is True]
