"""`langgraph dev` with the project's own langgraph.json: it describes its input, draws the designed graph, and the client that
the documentation shows sees a session through on it: stopped at its plan, edited, resumed, forked."""

from __future__ import annotations

import os
import runpy
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.test_app import REFERENCE
from tests.graph.test_wiring import LABELLED, PLAIN

ROOT = Path(__file__).resolve().parents[2]
langgraph_sdk = pytest.importorskip("langgraph_sdk")
COMMAND = Path(sys.executable).with_name("langgraph")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server runs, with a workspace in it. The server keeps its state beside langgraph.json, so it runs on a copy."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(ROOT / "langgraph.json", folder)
    (folder / ".stitchcuda").mkdir()
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The server, started as the README says."""
    if not COMMAND.exists():
        pytest.skip("langgraph-cli is not installed (pip install -e .[dev])")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BROWSER": "true"}  # the command `true` is the browser that it opens
    environment.pop("STITCHCUDA_WORKSPACE", None)
    command = [str(COMMAND), "dev", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        client = langgraph_sdk.get_sync_client(url=url)
        deadline = time.monotonic() + 60
        while True:
            try:
                client.assistants.search()
                break
            except Exception:
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def client(url: str) -> Any:
    return langgraph_sdk.get_sync_client(url=url)


def test_the_server_draws_the_designed_graph(client: Any) -> None:
    (assistant,) = client.assistants.search()
    assert assistant["graph_id"] == "stitchcuda"
    edges = client.assistants.get_graph(assistant["assistant_id"])["edges"]
    assert {(edge["source"], edge["target"]) for edge in edges if not edge.get("data")} == PLAIN
    assert {(edge["source"], edge["data"], edge["target"]) for edge in edges if edge.get("data")} == LABELLED


def test_the_server_describes_what_can_be_asked_for(client: Any) -> None:
    (assistant,) = client.assistants.search()
    schemas = client.assistants.get_schemas(assistant["assistant_id"])
    asked = schemas["input_schema"]["properties"]
    assert asked["reference"]["examples"] == ["examples/transformer_block.py"]
    assert next(iter(asked)) == "reference", "what is needed comes first in a form"
    assert asked["max_attempts"]["default"] == 30
    assert (asked["approve"]["default"], asked["approve"]["items"]["enum"]) == ([], ["plan", "code"])
    assert all(key in ("reference", "session") or "default" in how for key, how in asked.items())
    assert all("description" in how for how in asked.values())
    assert "baseline" in schemas["state_schema"]["properties"]


@pytest.mark.more
def test_the_documented_client_sees_a_session_through(url: str, folder: Path, client: Any, tmp_path: Path) -> None:
    reference = tmp_path / "norm.py"
    reference.write_text(REFERENCE)
    saved = client.assistants.create("stitchcuda", name="somebody's own")
    command = [sys.executable, str(ROOT / "examples/service/client.py"), str(reference), "--url", url, "--device", "sim"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    client.assistants.delete(saved["assistant_id"])
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert "waits for your word on plan 1 (2 tasks, by builtin)" in told
    assert "note: plan 1 is followed as a person edited it, without r00" in told
    assert any(line.startswith("forked from checkpoint ") for line in told)
    assert "attempt r00 #0: correct, simulated, then next_task" in told
    ends = [line for line in told if line.startswith("session ")]
    assert ends == [f"session norm-1: kept {task} (no task left)" for task in ("host:cuda_graph", "r00")]
    assert "edge verifier -> search_docs (code / next_task)" in told
    assert {line.split()[1] for line in told if line.startswith("progress: ")} >= {"baseline", "coder", "verifier", "report"}
    assert (folder / ".stitchcuda/sessions/norm-1/program/model_new.py").is_file(), "written where the server runs"
    assert "Reloading" not in (folder / "log").read_text()


@pytest.mark.parametrize(
    ("asked", "upcoming", "stands"),
    [
        ([], (), "its session has ended"),
        ([], ("baseline",), "it was interrupted"),
        ([{"request": "mailbox/1.md"}], ("planner",), "it waits for a reply"),
        ([{"approve": "code", "waiting_for": "r00"}, {"waiting_for": "r01"}], ("check",), "it waits for r00 and r01"),
    ],
)
def test_the_documented_client_says_what_a_thread_without_a_plan_waits_for(
    asked: list[dict[str, Any]], upcoming: tuple[str, ...], stands: str
) -> None:
    state = {"next": upcoming, "tasks": [{"interrupts": [{"value": value}]} for value in asked]}
    threads = SimpleNamespace(get_state=lambda thread: state)
    found = runpy.run_path(str(ROOT / "examples/service/client.py"))
    with pytest.raises(SystemExit, match=f"^thread t asks about no plan: {stands}$"):
        found["waiting"](SimpleNamespace(threads=threads), "t")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reference": "nowhere.py"}, "there is no file nowhere.py: give a Python file with Model"),
        ({"referense": "model.py"}, "the graph's input has no key 'referense': did you mean 'reference'?"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_sentence(given: dict[str, str], said: str, client: Any) -> None:
    thread = client.threads.create()["thread_id"]
    parts = list(client.runs.stream(thread, "stitchcuda", input=given, stream_mode="custom"))
    (error,) = [part.data for part in parts if part.event == "error"]
    assert error["error"] == "BadInput"
    assert error["message"].startswith(said)
