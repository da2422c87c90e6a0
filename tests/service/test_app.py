"""The example service on a real PostgreSQL server: a session is started, watched, asked about, and outlives the service."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stitchcuda.store import Workspace
from tests.cli.test_app import REFERENCE
from tests.memory.postgres_server import Server, programs

ROOT = Path(__file__).resolve().parents[2]
for package in ("starlette", "uvicorn", "psycopg_pool", "langgraph.checkpoint.postgres"):
    pytest.importorskip(package, reason="stitchcuda[service] is not installed")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    found = programs()
    if found is None:
        pytest.skip("this machine has no PostgreSQL server (Debian: apt install postgresql)")
    with Server(found) as server:
        yield server.url


class Service:
    """The running example, spoken to over HTTP."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self.process = url, process

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the object that came back; a body makes it a POST."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        request = urllib.request.Request(self.url + path, data, kind | named)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text.startswith("{") else text

    def start(self, **asked: Any) -> str:
        status, started = self.ask("/sessions", {"source": REFERENCE, "device": "sim"} | asked)
        assert status == 202, started
        return str(started["id"])

    def events(self, session: str, after: str = "") -> list[dict[str, Any]]:
        """All events until the run ends, without their ids and without gaps; the last says how."""
        return [told for _, kind, told in self.stream(session, after) if kind != "gap"]

    def stream(self, session: str, after: str = "") -> list[tuple[str, str, dict[str, Any]]]:
        """Id, event and data of all that is sent until the run ends."""
        headers = {"Last-Event-ID": after} if after else {}
        request = urllib.request.Request(f"{self.url}/sessions/{session}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            return parts(reply.read().decode())


def parts(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    fields = [dict(line.split(": ", 1) for line in part.split("\n")) for part in text.split("\n\n") if part]
    return [(part.get("id", ""), part.get("event", "message"), json.loads(part["data"])) for part in fields]


def gated(folder: Path) -> tuple[str, Path]:
    """A reference that is not ready before a file is there, and that file."""
    gate = folder / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\n"
    return waits + REFERENCE, gate


@contextmanager
def serving(folder: Path, database: str) -> Iterator[Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "STITCHCUDA_WORKSPACE": str(folder / "workspace"), "STITCHCUDA_CHECKPOINT": database, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "examples/service/app.py"), "--port", str(port)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    service = Service(f"http://127.0.0.1:{port}", process)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                assert service.ask("/sessions/none")[0] == 404
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        yield service
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


@pytest.mark.more
def test_a_session_is_watched_asked_about_and_survives_the_service(tmp_path: Path, database: str) -> None:
    with serving(tmp_path, database) as service:
        session = service.start(approve=["plan"])
        told = service.events(session)
        assert [event["node"] for event in told if event.get("phase") == "start"] == ["baseline", "planner"], told
        assert told[-1]["status"] == "parked"
        status, shown = service.ask(f"/sessions/{session}")
        assert (status, shown["status"], shown["attempts"]) == (200, "parked", 0)
        assert shown["why"] == "your word on plan 1 (2 tasks, by builtin)"
        (question,) = shown["waiting"]
        assert [task["id"] for task in question["tasks"]] == ["host:cuda_graph", "r00"]
        assert service.ask(f"/sessions/{session}/resume", {"answer": {"tasks": ["r99"]}})[0] == 202
        assert "the last answer was refused: there is no task 'r99'" in service.events(session)[-1]["why"]
        service.process.kill()             # nothing is said to it

    with serving(tmp_path, database) as service:
        status, shown = service.ask(f"/sessions/{session}")
        assert (status, shown["status"]) == (200, "parked")
        assert service.ask(f"/sessions/{session}/resume", {"answer": {"tasks": ["r00"]}})[0] == 202
        assert service.ask(f"/sessions/{session}/resume", {})[0] == 409, "it runs"
        told = service.events(session)
        (attempt,) = [event["attempt"] for event in told if event.get("kind") == "attempt"]
        assert (attempt["task"], attempt["correct"], attempt["tier"]) == ("r00", True, "simulated")
        assert told[-1] == {"status": "done", "why": "no task left"}
        sent = service.stream(session)
        assert [kind for _, kind, _ in sent] == ["gap", *["message"] * (len(sent) - 2), "end"], "the first part was told before"
        assert service.stream(session, after=sent[-3][0]) == sent[-2:]
        status, shown = service.ask(f"/sessions/{session}")
        assert (shown["status"], shown["tasks_kept"], shown["best"]["task"]) == ("done", ["r00"], "r00")
        with urllib.request.urlopen(f"{service.url}/drawing") as drawing:
            assert "verifier -. &nbsp;replan&nbsp; .-> planner;" in drawing.read().decode()


@pytest.mark.more
def test_what_cannot_be_meant_is_refused_in_one_sentence(tmp_path: Path, database: str) -> None:
    with serving(tmp_path, database) as service:
        assert service.ask("/sessions/nobody/events")[0] == 404
        status, told = service.ask("/sessions", {"goal": 2})
        assert told == {"error": 'give what to speed up: {"reference": PATH} or {"source": TEXT}'}
        status, told = service.ask("/sessions", {"source": REFERENCE, "gaol": 2})
        assert (status, told["error"].partition(":")[0]) == (400, "a session has no gaol")
        assert service.ask("/sessions", b"{")[0] == 400
        assert service.ask("/sessions", b"[]")[1] == {"error": "the body is no object: send one such as {}"}
        assert service.ask("/sessions", {"source": REFERENCE}, Content_Type="text/plain")[0] == 415, "any web page may"
        assert service.ask("/sessions/nobody", Host="example.org")[0] == 400
        session = service.start(source="x = 1")
        assert service.events(session)[-1]["status"] == "failed"
        status, told = service.ask(f"/sessions/{session}/resume", {"anser": "accept"})
        assert (status, told) == (400, {"error": 'an answer has no anser: give {"answer": …}, or {} to go on'})
        status, told = service.ask(f"/sessions/{session}/resume", {"answer": "accept"})
        assert (status, told["error"].partition(":")[0]) == (400, "nothing waits for a word of yours here")


@pytest.mark.more
@pytest.mark.parametrize("case", ["asked", "body"])
def test_what_cannot_be_kept_or_meant_is_refused_when_it_is_sent(tmp_path: Path, database: str, case: str) -> None:
    asked: list[tuple[Any, str]] = [
        ({"source": REFERENCE, "candidates": 99}, "--candidates 99 cannot be: give 1 to 16"),
        ({"source": REFERENCE, "model": "nobody"}, "--model 'nobody' is not known"),
        ({"source": REFERENCE, "device": ["sim"]}, "--device ['sim'] is not one of"),
        ({"source": REFERENCE, "session": "../up"}, "'../up' cannot name a session"),
        ({"source": REFERENCE, "approve": ["all"]}, "approve.0: "),
        ({"source": 7}, "give what to speed up"),
        ({"source": None, "reference": "model.py"}, "give what to speed up"),
        ({"source": REFERENCE, "reference": "model.py"}, "give what to speed up"),
        ({"reference": "nowhere.py"}, "there is no file nowhere.py that can be read"),
        ({"reference": "n" * 5000}, "there is no file nnn"),
    ]
    body: list[tuple[Any, str]] = [
        ({"source": "\ud800"}, "the body holds half a surrogate pair"),
        ({"source": REFERENCE, "\udfff": 1}, "the body holds half a surrogate pair"),
        ({"reference": "a\0b"}, "the body holds a NUL"),
        ({"source": REFERENCE, "options": {"a\0": 1}}, "the body holds a NUL"),
        ({"source": REFERENCE, "goal": float("nan")}, "the body holds the number nan"),
        (b'{"goal": 1e999}', "the body holds the number inf"),
        ({"source": REFERENCE, "max_tokens": 10**400}, "the body holds a number of more than 64 bits"),
        (b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", "the body holds lists or objects 20 deep"),
        (b"[" * 30_000, "the body is no JSON"),
        (b"\xff{}", "the body is no JSON"),
    ]
    with serving(tmp_path, database) as service:
        for sent, why in asked if case == "asked" else body:
            status, told = service.ask("/sessions", sent)
            assert (status, told["error"][: len(why)]) == (400, why)
            assert "\n" not in told["error"]
        for path in ("/sessions/%00", "/sessions/%00/events", "/sessions/a%0Ab", "/sessions/%ED%A0%80"):
            assert service.ask(path)[0] == 404
        assert service.ask("/sessions/%00/resume", {})[0] == 404
    assert not list((tmp_path / "workspace").rglob("uploads/*")), "what is refused is not stored"
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.more
def test_one_process_at_a_time_runs_a_session_and_every_other_knows(tmp_path: Path, database: str) -> None:
    source, gate = gated(tmp_path)
    with serving(tmp_path, database) as one, serving(tmp_path, database) as other:
        session = one.start(source=source, approve=["plan"])
        assert other.ask(f"/sessions/{session}")[1]["status"] == "running"
        for service in (one, other):
            status, told = service.ask(f"/sessions/{session}/resume", {})
            assert (status, told) == (409, {"error": "the session is running: wait until it is done or parked"})
        gate.touch()
        kinds = [(kind, told.get("status", told.get("why"))) for _, kind, told in other.stream(session)]
        assert kinds == [
            ("gap", "events before this are gone"), ("gap", "another process runs the session, and tells its events"),
            ("end", "parked"),
        ]  # fmt: skip
        with closing(Workspace(tmp_path / "workspace", checkpoint=database)) as home:
            assert home.store.names().count(f"{session[:8]}-1") == 1
            assert f"{session[:8]}-2" not in home.store.names(), "it was begun once"

        gate.unlink()
        assert other.ask(f"/sessions/{session}/resume", {"answer": {"tasks": ["r00"]}})[0] == 202
        assert one.ask(f"/sessions/{session}")[1]["status"] == "running"
        assert one.ask(f"/sessions/{session}/resume", {"answer": "accept"})[0] == 409

        session = other.start(source=source, approve=["plan"])
        with urllib.request.urlopen(f"{other.url}/sessions/{session}/events", timeout=60) as told:
            assert told.readline().startswith(b"id: "), "its first node is under way"
        other.process.terminate()
        other.process.wait(60)
        while (shown := one.ask(f"/sessions/{session}")[1])["status"] == "running":
            time.sleep(0.05)               # the server hears of it
        assert (shown["status"], shown["why"]) == ("parked", "interrupted: resume it")
        gate.touch()
        assert one.ask(f"/sessions/{session}/resume", {})[0] == 202
        assert one.events(session)[-1]["status"] == "parked"


@pytest.mark.long
def test_an_answer_waits_for_the_lease_of_a_process_that_died_a_moment_ago(tmp_path: Path, database: str) -> None:
    import psycopg

    with serving(tmp_path, database) as service:
        session = service.start(approve=["plan"])
        assert service.events(session)[-1]["status"] == "parked"
        name = service.ask(f"/sessions/{session}")[1]["session"]
        with psycopg.connect(database, autocommit=True) as connection:
            alive = "UPDATE stitchcuda_owner SET beat = clock_timestamp(), lease_s = 3, token = token + 1 WHERE session = %s"
            assert connection.execute(alive, (name,)).rowcount == 1
        assert service.ask(f"/sessions/{session}/resume", {"answer": {"tasks": ["r00"]}})[0] == 202
        assert service.events(session)[-1] == {"status": "done", "why": "no task left"}
        assert service.ask(f"/sessions/{session}")[1]["tasks_kept"] == ["r00"]


def test_who_comes_too_late_for_an_event_is_told_of_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.requests import Request

    app = example()
    monkeypatch.setattr(app, "KEPT", 3)
    live = app.Live(next=0)

    async def seen(session: str) -> tuple[None, str, str]:
        return None, "done", "no task left"

    monkeypatch.setattr(app, "service_of", lambda request: SimpleNamespace(live={"one": live}, seen=seen))

    async def stream(after: str) -> list[tuple[str, str, dict[str, Any]]]:
        headers = [(b"last-event-id", after.encode())] if after else []
        response = await app.events(Request({"type": "http", "headers": headers, "path_params": {"session": "one"}}))
        return parts("".join([part async for part in response.body_iterator]))

    async def told() -> None:
        gap, end = ("", "gap", {"why": "events before this are gone"}), ("", "end", {"status": "done", "why": "no task left"})
        for number in range(3):
            await live.tell({"n": number})
        sent = [(f"{app.LIFE}-{number}", "message", {"n": number}) for number in range(5)]
        assert await stream("") == [*sent[:3], end]
        for number in range(3, 5):
            await live.tell({"n": number})
        assert await stream("") == [gap, *sent[2:], end], "0 and 1 were dropped"
        assert await stream(f"{app.LIFE}-0") == [gap, *sent[2:], end]
        assert await stream(f"{app.LIFE}-1") == [*sent[2:], end]
        assert await stream(f"{app.LIFE}-4") == [end]
        for strange in ("0123abcd-4", "4", "nonsense", f"{app.LIFE}-5", f"{app.LIFE}-" + "9" * 5000):
            assert await stream(strange) == [gap, *sent[2:], end], strange

    asyncio.run(told())


def test_a_turn_ends_with_its_connection_and_is_taken_again(database: str) -> None:
    app = example()

    async def told() -> None:
        one, other = app.Turn(database, "a"), app.Turn(database, "a")
        assert await one.take()
        assert await one.take()
        assert not await other.take()
        third = app.Turn(database, "b")
        assert await third.take(), "of another thread"
        await third.leave()
        await one.connection.close()
        while not await other.take():      # the server hears of it
            await asyncio.sleep(0.05)
        assert not await one.take(), "on a new connection, and too late"
        await other.leave()
        assert await one.take()
        await one.leave()

    asyncio.run(told())


def test_a_turn_is_kept_while_the_database_drops_connections(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    app = example()
    monkeypatch.setattr(app, "POLL_S", 0.01)

    async def told() -> None:
        async def dropped(turn: Any) -> None:
            await asyncio.to_thread(dba.execute, "SELECT pg_terminate_backend(%s, 10000)", (turn.connection.info.backend_pid,))

        turn, other = app.Turn(database, "kept"), app.Turn(database, "kept")
        assert await turn.take()
        first = turn.connection
        keeper = asyncio.create_task(turn.keep())
        await dropped(turn)
        while turn.connection is first or await other.take():
            await other.leave()
            await asyncio.sleep(0.05)
        assert not turn.lost, "it was taken again"
        keeper.cancel()
        await dropped(turn)
        assert await other.take()
        keeper = asyncio.create_task(turn.keep())
        while not turn.lost:
            await asyncio.sleep(0.01)
        keeper.cancel()
        await other.leave()
        await turn.leave()

    with psycopg.connect(database, autocommit=True) as dba:
        asyncio.run(told())


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("service_app", ROOT / "examples/service/app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["service_app"] = module
    spec.loader.exec_module(module)
    return module
