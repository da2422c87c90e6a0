"""The MCP server over a session that scripted tools judge, and the SDK's client in each form in which it connects."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from stitchcuda.agents.mcp_server import McpTools, make_server
from stitchcuda.agents.mcp_serving import http_app
from stitchcuda.agents.openings import Openings

TOKEN = "a-token"
FORMS = ("memory", "memory legacy", "http", "http legacy")  # legacy: the protocol before 2026, with a handshake and sessions


def server_of(root: Path) -> MCPServer:
    """The server for workbenches below `root`, with the sessions of its folder `workspace`."""
    return make_server(McpTools(root, Openings(workspace=root / "workspace", device="sim", settings={})))


@contextmanager
def over_http(server: MCPServer) -> Iterator[str]:
    """Serves HTTP in a thread, and gives the address."""
    config = uvicorn.Config(http_app(server, TOKEN), log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not running.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join()


@asynccontextmanager
async def client_of(url: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client over HTTP, with the token."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def connected(root: Path, form: str) -> AsyncIterator[Client]:
    """A client of a new server, in one of FORMS."""
    server, mode = server_of(root), "legacy" if form.endswith("legacy") else "auto"
    if form.startswith("memory"):
        async with Client(server, mode=mode) as client:
            yield client
    else:
        with over_http(server) as url:
            async with client_of(url, mode) as client:
                yield client


def said(result: CallToolResult) -> tuple[int, str]:
    """The code and the text of a result, which it must have in both of its places."""
    outcome = result.structured_content
    assert outcome is not None
    assert result.is_error == (outcome["code"] == 2)
    assert [getattr(part, "text", None) for part in result.content] == [outcome["text"]]
    return outcome["code"], outcome["text"]
