"""Two hosts, one PostgreSQL: a session has one owner at a time, goes on elsewhere when that one dies, and a former owner that
wakes up writes nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace
from tests.hosts import DEADLINE_S, LEASE_S, Host, Process, a_server, host
from tests.memory.postgres_server import PASSWORD, Server

psycopg = pytest.importorskip("psycopg", reason="stitchcuda[postgres] is not installed")

Networks = dict[str, tuple[str, str, list[str], str]]


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Server, Networks]]:
    with a_server() as found:
        if found is None:
            pytest.skip("this machine has no PostgreSQL server (Debian: apt install postgresql)")
        yield found


@pytest.fixture
def server(place: tuple[Server, Networks]) -> Server:
    return place[0]


@pytest.fixture
def hosts(place: tuple[Server, Networks], tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    server, networks = place
    with closing(host("east", tmp_path, server, networks)) as east, closing(host("west", tmp_path, server, networks)) as west:
        yield east, west


@pytest.fixture(scope="module")
def whole(place: tuple[Server, Networks], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What an undisturbed session prints; it is called `whole`."""
    with closing(host("north", tmp_path_factory.mktemp("north"), *place)) as north:
        process = north.start("whole", "--new")
        assert process.end() == 0, process.errors
        return process.lines


@pytest.mark.more
def test_an_owner_that_is_killed_is_taken_over_from(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    owner, heir = owner_with_heir("killed", hosts)
    owner.signal(signal.SIGKILL)
    taken_over("killed", server)
    finished(heir)
    as_whole("killed", server, whole, [owner, heir])


@pytest.mark.more
@pytest.mark.parametrize("where", [pytest.param("tool", marks=pytest.mark.long), "transaction"])
def test_an_owner_that_was_paused_cannot_write(where: str, hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    """In a transaction it has its row locked as long as the server lets it."""
    name = f"paused-{where}"
    owner, heir = owner_with_heir(name, hosts, "--stop-at" if where == "tool" else "--stop-in", "12")
    go(hosts[0])
    owner.until("stops")
    taken_over(name, server)
    finished(heir)
    before = rows(server)
    owner.signal(signal.SIGCONT)
    lost(owner, hosts)
    assert rows(server) == before
    as_whole(name, server, whole, [owner, heir])


@pytest.mark.long
def test_an_owner_that_wakes_up_while_the_other_one_works(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    owner, heir = owner_with_heir("woken", hosts, "--stop-at", "12", heir=("--hold-at", "5"))
    go(hosts[0])
    owner.until("stops")
    heir.until("holds")
    owner.signal(signal.SIGCONT)
    lost(owner, hosts)
    assert heir.running
    go(hosts[1])
    finished(heir)
    as_whole("woken", server, whole, [owner, heir])


@pytest.mark.long
def test_an_owner_whose_network_is_cut(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    if hosts[0].cable is None:
        pytest.skip("hosts have no network of their own here: that is root's to make")
    owner, heir = owner_with_heir("cut", hosts)
    hosts[0].cable(False)
    try:
        taken_over("cut", server)
        finished(heir)
        before = rows(server)
        assert owner.running
    finally:
        hosts[0].cable(True)
    go(hosts[0])
    lost(owner, hosts)
    assert rows(server) == before
    as_whole("cut", server, whole, [owner, heir])


@pytest.mark.more
def test_a_server_that_is_restarted(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    east, _ = hosts
    owner = east.start("restarted", "--new", "--seconds", "0.05", STITCHCUDA_LEASE_S="20")
    for attempts in (2, 6):
        owner.until("attempt", times=attempts)
        server.stop()
        server.start()
    finished(owner)
    as_whole("restarted", server, whole, [owner])


@pytest.mark.long
def test_a_server_that_does_not_come_back_in_time(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    east, west = hosts
    owner = east.start("away", "--new")
    owner.until("attempt", times=3)
    server.stop()
    try:
        assert owner.end() == 2
    finally:
        server.start()
    sentence(owner, "the database of sessions postgresql://", "cannot be used", "start that server")
    heir = west.start("away")
    finished(heir)
    as_whole("away", server, whole, [owner, heir])


@pytest.mark.long
def test_a_server_that_is_paused_for_a_moment(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    """Heartbeats come late; time stands still for who would take over, too."""
    owner, heir = owner_with_heir("late", hosts, "--seconds", "0.05")
    go(hosts[0])
    os.kill(server.pid, signal.SIGSTOP)
    backends = children(server.pid)
    for backend in backends:
        os.kill(backend, signal.SIGSTOP)
    time.sleep(LEASE_S / 2)
    for process in (*backends, server.pid):
        os.kill(process, signal.SIGCONT)
    finished(owner)
    finished(heir)
    assert not any(line.startswith("tool") and "close" not in line for line in heir.lines), "it had nothing left to do"
    as_whole("late", server, whole, [owner, heir])


@pytest.mark.more
def test_two_that_resume_at_once(hosts: tuple[Host, Host], server: Server, whole: list[str]) -> None:
    owner = hosts[0].start("both", "--new", "--hold-at", "9")
    owner.until("holds")
    owner.close()
    time.sleep(LEASE_S)
    both = [one.start("both", "--hold-at", "2") for one in hosts]
    until(lambda: not all(process.running for process in both))
    for one in hosts:
        go(one)
    codes = sorted(process.end() for process in both)
    assert codes == [0, 2], [process.errors for process in both]
    done, refused = sorted(both, key=lambda process: process.end())
    sentence(refused, "session 'both' is being run by process", "wait for it (--wait) or stop it")
    assert not any(line.startswith("tool") for line in refused.lines)
    as_whole("both", server, whole, [owner, done])


@pytest.mark.more
@pytest.mark.parametrize("said", ["soon", "0", "inf"])
def test_a_lease_that_is_none(hosts: tuple[Host, Host], said: str, whole: list[str]) -> None:
    process = hosts[0].start("show", "whole", module="stitchcuda", STITCHCUDA_LEASE_S=said)
    assert process.end() == 2
    sentence(process, f"STITCHCUDA_LEASE_S cannot be {said!r}: give seconds from 1 to 3600")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_command_line_on_two_hosts(hosts: tuple[Host, Host], server: Server) -> None:
    """The real tools, each host with builds of its own."""
    from tests.sessions.test_kill import REFERENCE

    east, west = hosts
    (east.folder / "mlp.py").write_text(REFERENCE)
    options = ["mlp.py", "--device", "sim", "--model", "builtin", "--quiet"]
    undisturbed = east.start("optimize", *options, "--session", "mlp-whole", module="stitchcuda")
    assert wait(undisturbed) == 0, undisturbed.errors
    owner = east.start("optimize", *options, "--session", "mlp", module="stitchcuda")
    until(lambda: " correct (simulated)" in owner.errors or not owner.running, 600)
    heir = west.start("resume", "mlp", "--wait", "--quiet", module="stitchcuda")
    until(lambda: "waiting for process" in heir.errors or not heir.running, 600)
    owner.signal(signal.SIGKILL)
    assert wait(heir) == 0, heir.errors
    one, other = (session(name, server) for name in ("mlp", "mlp-whole"))
    assert one.state()["program"] == other.state()["program"]
    assert [figures(a) for a in one.attempts()] == [figures(a) for a in other.attempts()]


def owner_with_heir(name: str, hosts: tuple[Host, Host], *more: str, heir: tuple[str, ...] = ()) -> tuple[Process, Process]:
    """A new session in its ninth use of a tool, until `go`; and a process on the other host that waits for its end."""
    east, west = hosts
    owner = east.start(name, "--new", "--hold-at", "9", *more)
    owner.until("holds")
    waiting = west.start(name, "--wait", *heir)
    waiting.until("note waiting for process")
    return owner, waiting


def taken_over(name: str, server: Server) -> None:
    """Within its lease and 10 seconds it has its second owner."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = "SELECT token FROM stitchcuda_owner WHERE session = %s"
        until(lambda: connection.execute(row, (name,)).fetchone() == (2,), DEADLINE_S)


def go(host: Host) -> None:
    (host.folder / "go").touch()


def until(true: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait(process: Process) -> int:
    until(lambda: not process.running, 600)
    return process.end()


def finished(process: Process) -> None:
    assert process.end() == 0, process.errors
    assert json.loads(process.lines[-1])["status"] == "done"


def lost(process: Process, hosts: tuple[Host, Host]) -> None:
    """It has ended since the other host has taken over."""
    assert process.end() == 2, process.errors
    sentence(process, "was taken over by", f"no sign of life for {LEASE_S:g} s: nothing more is written here")
    assert hosts[1].cable is None or " on west" in process.errors or "which has ended since" in process.errors


def sentence(process: Process, *parts: str) -> None:
    assert process.errors.count("\n") == 1, process.errors
    assert process.errors.startswith("stitchcuda: ")
    assert PASSWORD not in process.errors
    for part in parts:
        assert part in process.errors, process.errors


def rows(server: Server) -> dict[str, list[str]]:
    """The whole database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
        assert {"stitchcuda_owner", "stitchcuda_line", "checkpoints"} <= {table for (table,) in tables}
        return {
            table: [row for (row,) in connection.execute(f"SELECT t::text FROM {table} AS t ORDER BY 1").fetchall()]
            for (table,) in tables
        }


def session(name: str, server: Server) -> Session:
    home = Workspace(server.folder / "reader", checkpoint=server.url)
    return Session(home, home.record(name))


def as_whole(name: str, server: Server, whole: list[str], processes: list[Process]) -> None:
    """The session ended as the undisturbed one did: its program, its attempts, and each tool used as often, except for what was
    under way when an owner was lost."""
    one, other = session(name, server), session("whole", server)
    assert one.status == other.status == "done"
    assert one.state()["program"] == other.state()["program"]
    attempts, expected = one.attempts(), other.attempts()
    assert [figures(a) for a in attempts] == [figures(a) for a in expected]
    assert [a.id for a in one.home.store.attempts(name).values()] == [a.id for a in attempts]
    assert one.state()["attempts"] == len(attempts) == len({a.id for a in attempts})
    used = Counter(line for process in processes for line in process.lines if line.startswith("tool"))
    once = Counter(line for line in whole if line.startswith("tool"))
    again = used - once
    again.pop("tool close", None)
    assert again.total() <= len(processes) - 1, again
    assert not once - used
    for found in (one, other):
        found.home.close()


def figures(attempt: Any) -> tuple[Any, ...]:
    return attempt.task, attempt.ordinal, attempt.route, attempt.program, attempt.kept


def children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(place.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found
