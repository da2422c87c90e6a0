"""The MCP server, used by the SDK's own client: each tool, progress, cancelled calls, clients at once, tokens, garbage."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters

from stitchcuda.agents import background, mcp_server, mcp_serving, workbench_calls
from stitchcuda.agents.background import OpenWorkbench
from stitchcuda.agents.openings import Openings
from stitchcuda.errors import BadInput, Unavailable
from tests.agents.mcp_clients import FORMS, TOKEN, client_of, connected, over_http, said, server_of
from tests.engineers.agents.working_session import working
from tests.marks import more_but

SKELETON = "skeleton:tiled_product"         # is found without an index
RELU = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
"""
FEW = more_but(FORMS, "memory", "http legacy")
"""Each kind of connection, and each version of the protocol, once."""


@pytest.mark.parametrize("form", FEW)
def test_every_tool(tmp_path: Path, form: str) -> None:
    async def use() -> None:
        async with connected(tmp_path, form) as client:
            tools = (await client.list_tools()).tools
            assert all(tool.description and tool.output_schema for tool in tools)
            used = set()

            async def call(tool: str, **given: str) -> tuple[int, str]:
                used.add(tool)
                return said(await client.call_tool(tool, given))

            code, text = await call("analyse", reference="reference.py", workbench="bench")
            assert code == 0
            assert (tmp_path / "bench/TASK.md").read_text() in text
            made.write("a build error")
            assert (await call("check", workbench="bench"))[0] == 1
            made.write("a saves 0.2")
            assert (await call("check", workbench="bench"))[0] == 0
            assert (await call("bench", workbench="bench", kernel="drafts"))[0] == 0
            assert (await call("profile", workbench="bench", word="drafts"))[0] == 2
            code, text = await call("submit", workbench="bench", note="wider loads")
            assert (code, "KEPT" in text) == (0, True)
            assert "1 made" in (await call("session_status", workbench="bench"))[1]
            assert "__global__" in (await call("docs_search", query=SKELETON))[1]
            assert (await call("docs_search", query="skeleton:nope"))[0] == 1
            for name, part in (("reference", "class Model"), ("task", "1 made"), ("program", "a saves 0.2")):
                (read,) = (await client.read_resource(f"workbench://bench/{name}")).contents
                assert part in getattr(read, "text", "")
            assert (await call("finish", workbench="bench", note="enough"))[0] == 0
            assert used == {tool.name for tool in tools}

    with working(tmp_path) as made:
        anyio.run(use)
        session = made.ends()
    assert session.outcome().stop_reason == "the agent ended the session: enough"
    assert [attempt.note for attempt in session.attempts()] == ["wider loads"]


@pytest.mark.parametrize("form", FEW)
def test_a_cancelled_call_stops_waiting_and_its_verdict_is_kept(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, held, go = threading.Event(), threading.Event(), threading.Event()

    async def ask(*given: Any) -> Any:
        try:
            return await workbench_calls.ask(*given)
        except anyio.get_cancelled_exc_class():
            stopped.set()
            raise

    def hold(tool: str) -> None:
        if tool == "check":
            held.set()
            go.wait(20)

    async def use() -> None:
        async with connected(tmp_path, form) as client:
            made.write("a saves 0.2")
            made.hands.before = hold
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "submit", {"workbench": "bench"})
                assert await anyio.to_thread.run_sync(held.wait, 10)
                group.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(stopped.wait, 10), "the server still waits"
            assert not go.is_set()
            threading.Timer(0.2, go.set).start()
            code, text = said(await client.call_tool("submit", {"workbench": "bench"}))
            assert (code, "1 made" in text) == (0, True)

    monkeypatch.setattr(mcp_server, "ask", ask)
    with working(tmp_path) as made:
        try:
            anyio.run(use)
        finally:
            go.set()
    assert len(made.session.attempts()) == 1


@pytest.mark.parametrize("form", FEW)
def test_progress_is_told_while_a_verdict_is_awaited(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "PROGRESS_S", 0.05)
    told: list[tuple[float, str | None]] = []
    enough = threading.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        if len(told) == 4:
            enough.set()

    async def use() -> None:
        async with connected(tmp_path, form) as client:
            made.write("a wrong")
            made.hands.before = lambda tool: (enough.wait(20), None)[1]
            result = await client.call_tool("check", {"workbench": "bench"}, progress_callback=hear)
            assert said(result)[0] == 1

    with working(tmp_path) as made:
        anyio.run(use)
    assert len(told) >= 4
    assert sorted(told) == told
    assert all(message and message.startswith("check builds the program") for _, message in told)


def test_a_client_is_answered_while_another_waits(tmp_path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    def hold(tool: str) -> None:
        held.set()
        go.wait(20)

    async def use() -> None:
        with over_http(server_of(tmp_path)) as url:
            async with client_of(url) as one, client_of(url, "legacy") as two, anyio.create_task_group() as group:
                answers: list[tuple[int, str]] = []

                async def submit() -> None:
                    answers.append(said(await one.call_tool("submit", {"workbench": "bench"})))

                made.hands.before = hold
                made.write("a wrong")
                group.start_soon(submit)
                assert await anyio.to_thread.run_sync(held.wait, 10)
                assert said(await two.call_tool("docs_search", {"query": SKELETON}))[0] == 0
                assert (await two.read_resource("workbench://bench/task")).contents
                assert "is being judged now" in said(await two.call_tool("session_status", {"workbench": "bench"}))[1]
                assert not answers
                go.set()
        assert [code for code, _ in answers] == [1]

    with working(tmp_path) as made:
        try:
            anyio.run(use)
        finally:
            go.set()


@pytest.mark.more
def test_two_clients_at_two_workbenches(tmp_path: Path) -> None:
    """Verdicts are made at once, and each client gets its own."""
    both = threading.Barrier(2)

    async def use() -> None:
        with over_http(server_of(tmp_path)) as url:
            async with client_of(url) as one, client_of(url, "legacy") as two, anyio.create_task_group() as group:
                answers: dict[str, int] = {}

                async def submit(client: Client, name: str) -> None:
                    answers[name] = said(await client.call_tool("submit", {"workbench": f"{name}/bench"}))[0]

                group.start_soon(submit, one, "first")
                group.start_soon(submit, two, "second")
        assert answers == {"first": 1, "second": 0}
        first.hands.before = second.hands.before = lambda tool: None

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with working(tmp_path / "first") as first, working(tmp_path / "second") as second:
        for made, draft in ((first, "a wrong"), (second, "a saves 0.2")):
            made.write(draft)
            made.hands.before = lambda tool: (both.wait(20), None)[1] if tool == "build" else None
        anyio.run(use)


# ---- opening

class Opener:
    """Stands for `open_workbench`: tells a line, waits, and makes TASK.md or raises."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.go, self.begun, self.calls, self._failure = threading.Event(), threading.Event(), 0, failure

    def __call__(self, reference: Path, folder: Path, **given: Any) -> OpenWorkbench:
        self.calls += 1
        given["tell"]("baseline: running and capturing the reference")
        self.begun.set()
        assert self.go.wait(20)
        if self._failure is not None:
            raise self._failure
        folder.mkdir()
        (folder / "TASK.md").write_text("# Task\n")
        return OpenWorkbench(folder, "session-1", 1, "")


def test_a_cancelled_analysis_goes_on_and_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = Opener()
    monkeypatch.setattr(background, "open_workbench", opener)
    monkeypatch.setattr(mcp_server, "PROGRESS_S", 0.05)
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def use() -> None:
        async with connected(tmp_path, "memory") as client:
            given = {"reference": "reference.py", "workbench": "new"}
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "analyse", given)
                assert await anyio.to_thread.run_sync(opener.begun.wait, 10)
                group.cancel_scope.cancel()
            code, text = said(await client.call_tool("analyse", given | {"reference": "other.py"}))
            assert (code, "is being opened for" in text) == (2, True)
            threading.Timer(0.3, opener.go.set).start()
            code, text = said(await client.call_tool("analyse", given, progress_callback=hear))
            assert (code, "# Task" in text) == (0, True)

    anyio.run(use)
    assert opener.calls == 1
    assert any("running and capturing the reference" in (message or "") for message in told)


def test_an_analysis_that_fails_says_why_and_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = Opener(BadInput("its output is constant"))
    opener.go.set()
    monkeypatch.setattr(background, "open_workbench", opener)

    async def use() -> None:
        async with connected(tmp_path, "memory") as client:
            for _ in range(2):
                result = await client.call_tool("analyse", {"reference": "reference.py", "workbench": "new"})
                assert said(result) == (2, "its output is constant")

    anyio.run(use)
    assert opener.calls == 2


# ---- what a client may not do

@pytest.mark.parametrize(("tool", "given", "text"), [
    ("check", {"workbench": "nowhere"}, "there is no workbench in"), ("session_status", {"workbench": "."}, "nobody serves"),
    ("check", {"workbench": "../elsewhere"}, "is outside of"), ("check", {"workbench": "/etc"}, "is outside of"),
    ("check", {"workbench": "a\0b"}, "is no path"), ("check", {"workbench": "link"}, "is outside of"),
    ("analyse", {"workbench": "new", "reference": "/etc/passwd"}, "is outside of"),
    ("analyse", {"workbench": "../new", "reference": "reference.py"}, "is outside of"),
    ("analyse", {"workbench": "new", "reference": "missing.py"}, "missing.py"),
])  # fmt: skip
def test_paths_that_cannot_be_used(tmp_path: Path, tool: str, given: dict[str, Any], text: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("/etc")

    async def use() -> None:
        async with connected(root, "memory") as client:
            code, sentence = said(await client.call_tool(tool, given))
            assert (code, text in sentence) == (2, True), sentence

    anyio.run(use)


def test_resources_outside_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "TASK.md").write_text("secret")
    root = tmp_path / "root"
    (root / "bench").mkdir(parents=True)
    (root / "bench/TASK.md").symlink_to(tmp_path / "TASK.md")
    (root / "up").symlink_to(tmp_path)

    async def use() -> None:
        async with connected(root, "memory") as client:
            for name in ("bench", "up", "..", "%2e%2e", "bench/../.."):
                with pytest.raises(MCPError):
                    await client.read_resource(f"workbench://{name}/task")

    anyio.run(use)


def test_long_texts_are_cut() -> None:
    assert mcp_server.cut("a line\n" * 10) == "a line\n" * 10
    shown = mcp_server.cut("a line\n" * mcp_server.SHOWN)
    assert len(shown) <= mcp_server.SHOWN + 10
    assert shown.endswith("a line\n… cut")


# ---- HTTP

@pytest.mark.parametrize(("headers", "status"), [
    ({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": TOKEN}, 401),
    ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
    ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
    ({"Authorization": f"Bearer {TOKEN}"}, 200), ({"Authorization": f"bearer  {TOKEN}"}, 200),
    ({"Authorization": f"Basic {TOKEN}"}, 401),
])  # fmt: skip
def test_who_may_ask_over_http(http_server: str, headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }}  # fmt: skip
    accepted = {"Accept": "application/json, text/event-stream"}
    answer = httpx2.post(http_server, json=body, headers=accepted | headers, timeout=20)
    assert answer.status_code == status
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)


def test_garbage_over_http_is_refused(http_server: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    for body in (b"garbage", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000):
        answer = httpx2.post(http_server, content=body, headers=headers | {"Content-Type": "application/json"}, timeout=20)
        assert 400 <= answer.status_code < 500, body[:10]
    assert httpx2.post(http_server.removesuffix("mcp"), headers=headers, timeout=20).status_code == 404


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with over_http(server_of(tmp_path_factory.mktemp("root"))) as url:
        yield url


def test_the_token_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(mcp_serving.TOKEN, raising=False)
    made = {mcp_serving._token(None) for _ in range(2)}
    assert len(made) == 2
    assert all(new and len(token) > 30 for token, new in made)
    monkeypatch.setenv(mcp_serving.TOKEN, "from-the-environment")
    assert mcp_serving._token(None) == ("from-the-environment", False)
    (tmp_path / "token").write_text("from-the-file\n")
    assert mcp_serving._token(tmp_path / "token") == ("from-the-file", False)
    monkeypatch.setenv(mcp_serving.TOKEN, "two words")
    with pytest.raises(BadInput, match="STITCHCUDA_MCP_TOKEN holds no token"):
        mcp_serving._token(None)


# ---- starting it

@pytest.mark.parametrize(("given", "text"), [
    ({"port": None, "token_file": Path("token")}, "a token is for HTTP"), ({"port": 1 << 17}, "cannot listen on port 131072"),
    ({"port": 0, "token_file": Path("nowhere")}, "cannot be read"),
    ({"port": None, "root": Path("nowhere")}, "there is no folder"),
])  # fmt: skip
def test_options_that_cannot_be_used(tmp_path: Path, given: dict[str, Any], text: str) -> None:
    openings = Openings(workspace=tmp_path, device="sim", settings={})
    with pytest.raises(BadInput, match=text):
        mcp_serving.serve(**{"root": tmp_path, "openings": openings, "tell": print, **given})


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stitchcuda.agents.mcp_server")
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(Unavailable, match=r"the MCP server needs the package mcp: .* install .*mcp>="):
        mcp_serving.serve(tmp_path, Openings(workspace=tmp_path, device="sim", settings={}), port=None, tell=print)


PRINTS = """
import subprocess, sys
from stitchcuda.agents import mcp_server
from stitchcuda.engineers import Looked
from stitchcuda.__main__ import main

def search(query):
    print("printed")
    subprocess.run(["echo", "printed too"])
    return Looked(True, "found " + query)

mcp_server._search = search
sys.argv = ["stitchcuda", "agent", "mcp"]
main()
"""


def test_stdout_belongs_to_the_protocol_and_garbage_ends_nothing(tmp_path: Path) -> None:
    """Lines that are no messages are passed over; what anything else prints goes to stderr."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "docs_search", "arguments": {"query": "it"}}
    lines = [
        b"garbage", b"[]", b'{"jsonrpc": "2.0"}', b"\xff\xfe\x00", b"[" * 100_000,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": 3}}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}).encode(),
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", PRINTS], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(3)]
        server.stdin.close()
        assert server.stdout.read() == b""
        assert b"printed\n" in server.stderr.read()
        assert server.wait(20) == 0
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id[1]["result"]["serverInfo"]["name"] == "stitchcuda"
    assert "error" in by_id[2]
    assert by_id[3]["result"]["structuredContent"]["text"] == "found it"


@pytest.mark.more
def test_a_signal_stops_it_while_stdin_is_open(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda", "agent", "mcp", "--http", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stderr.readline().startswith("http://127.0.0.1:")
        assert server.stderr.readline().startswith("token: ")
        server.terminate()
        assert server.wait(20) == 143
    with subprocess.Popen(command[:-2], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        time.sleep(5)
        server.terminate()
        assert server.wait(20) == 143
        assert server.stderr.read() == "stitchcuda: stopped: the workbenches' sessions go on\n"


@pytest.mark.more
def test_a_session_on_the_simulator_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(RELU)
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "stitchcuda", "agent", "mcp", "--device", "sim"], cwd=tmp_path
    )
    told: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def use() -> None:
        async with Client(parameters) as client:
            opened = await client.call_tool("analyse", {"reference": "model.py", "workbench": "bench"}, progress_callback=hear)
            assert said(opened)[0] == 0
            (kernel,) = (tmp_path / "bench/kernels").glob("*.cu")
            right = kernel.read_text()
            kernel.write_text(right.replace("(", "((", 1))
            assert said(await client.call_tool("check", {"workbench": "bench"}))[0] == 1
            kernel.write_text(f"{right}// changed\n")
            assert said(await client.call_tool("check", {"workbench": "bench"}))[0] == 0
            assert said(await client.call_tool("submit", {"workbench": "bench", "note": "a comment"}))[0] in (0, 1)
            assert "1 made" in said(await client.call_tool("session_status", {"workbench": "bench"}))[1]
            assert said(await client.call_tool("finish", {"workbench": "bench"}))[0] == 0

    anyio.run(use)
    assert any("capturing the reference" in (message or "") for message in told)
