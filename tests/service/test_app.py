"""The example service on a real PostgreSQL server: a session is started, watched, asked about, and outlives the service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..memory.postgres_server import Server, programs
from ..test_cli import REFERENCE

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
        """All events until the run ends; the last says how."""
        headers = {"Last-Event-ID": after} if after else {}
        request = urllib.request.Request(f"{self.url}/sessions/{session}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            lines = [line.decode().rstrip("\n") for line in reply]
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


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
        assert service.events(session, after=str(len(told) - 3)) == told[-2:]
        status, shown = service.ask(f"/sessions/{session}")
        assert (shown["status"], shown["tasks_kept"], shown["best"]["task"]) == ("done", ["r00"], "r00")
        with urllib.request.urlopen(f"{service.url}/drawing") as drawing:
            assert "verifier -. &nbsp;replan&nbsp; .-> planner;" in drawing.read().decode()


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
        session = service.start(candidates=99)
        told = service.events(session)[-1]
        assert told == {"status": "failed", "why": "--candidates 99 cannot be: give 1 to 16"}
        status, told = service.ask(f"/sessions/{session}/resume", {"answer": "accept"})
        assert (status, told["error"].partition(":")[0]) == (400, "nothing waits for a word of yours here")
