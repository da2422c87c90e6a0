"""`langgraph dev` with the project's own langgraph.json: it starts, describes its input, and draws the designed graph."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .test_wiring import LABELLED, PLAIN

ROOT = Path(__file__).resolve().parents[2]
langgraph_sdk = pytest.importorskip("langgraph_sdk")
COMMAND = Path(sys.executable).with_name("langgraph")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not COMMAND.exists():
        pytest.skip("langgraph-cli is not installed (pip install -e .[dev])")
    folder = tmp_path_factory.mktemp("server")
    # The server keeps its state beside langgraph.json, so it runs on a copy.
    shutil.copy(ROOT / "langgraph.json", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"STITCHCUDA_WORKSPACE": str(folder / "workspace"), "PYTHONPATH": str(ROOT)}
    command = [str(COMMAND), "dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        client = langgraph_sdk.get_sync_client(url=f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + 60
        while True:
            try:
                client.assistants.search()
                break
            except Exception:
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        yield client
    finally:
        server.terminate()
        server.wait()


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
    assert asked["max_attempts"]["default"] == 30
    assert "baseline" in schemas["state_schema"]["properties"]
