"""Serves the MCP server over stdin and stdout, or over HTTP on this machine. Needs the extra `agents`.

In the first form stdout belongs to the protocol: the SDK keeps a copy of it for itself and sends whatever else is printed to
stderr. In the second a client has to send a token, and a request for another host name is refused (DNS rebinding). HTTP is
served on 127.0.0.1 alone: nothing here is made for a network.
Where to look next: `agents/mcp_server.py` (the tools), `cli/agent.py` (the command).
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stitchcuda import remedies
from stitchcuda.agents.openings import Openings
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.store.token_file import check_token, read_token

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN = "STITCHCUDA_MCP_TOKEN"
_HERE = "127.0.0.1"
_ENDING_S = 3                              # for clients that wait, when the server is stopped


def serve(
    root: Path, openings: Openings, *, port: int | None, token_file: Path | None = None, tell: Callable[[str], None]
) -> None:
    """Serves workbenches below `root` until stdin ends or a signal comes. `port`: of HTTP, 0 for a free one; None for stdin and
    stdout. `tell` gets the address and a generated token. Raises `BadInput`, `Unavailable`."""
    try:
        from stitchcuda.agents.mcp_server import McpTools, make_server
    except ImportError as error:
        raise Unavailable(f"the MCP server needs the package mcp: {remedies.extra('agents')}") from error
    if not root.is_dir():
        raise BadInput(f"there is no folder {root}: give one that holds the references and the workbenches")
    server = make_server(McpTools(root.resolve(), openings))
    if port is None:
        if token_file is not None:
            raise BadInput("a token is for HTTP: give --http too, or leave --token-file out")
        try:
            server.run("stdio")
        except* (BrokenPipeError, ConnectionResetError):
            tell("the client is gone")
        return
    _serve_http(server, port, token_file, tell)


def http_app(server: MCPServer, token: str) -> ASGIApp:
    """Returns the application: MCP at /mcp, for who sends the token and asks for this machine by a local name."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = (_HERE, "localhost")
    security = TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names], allowed_origins=[f"http://{name}:*" for name in names]
    )
    app = server.streamable_http_app(transport_security=security)
    app.add_middleware(TokenRequired, token=token)
    return app


class TokenRequired:
    """Answers 401 to each HTTP request that does not have the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import PlainTextResponse

        header = dict(scope["headers"]).get(b"authorization", b"") if scope["type"] == "http" else b"Bearer " + self._wanted
        scheme, _, given = header.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._wanted):
            await self._app(scope, receive, send)
            return
        sentence = "send the server's token: Authorization: Bearer TOKEN\n"
        await PlainTextResponse(sentence, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def _serve_http(server: MCPServer, port: int, token_file: Path | None, tell: Callable[[str], None]) -> None:
    import uvicorn

    token, made = _token(token_file)
    try:
        listening = socket.create_server((_HERE, port))
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot listen on port {port} of {_HERE} ({error}): give another --http") from error
    with listening:
        tell(f"http://{_HERE}:{listening.getsockname()[1]}/mcp")
        if made:
            tell(f"token: {token}")
        config = uvicorn.Config(http_app(server, token), log_level="warning", timeout_graceful_shutdown=_ENDING_S)
        uvicorn.Server(config).run(sockets=[listening])


def _token(file: Path | None) -> tuple[str, bool]:
    """Returns the token, and whether it was made here."""
    if file is not None:
        return read_token(file), False
    if (given := os.environ.get(TOKEN)) is not None:
        return check_token(given, TOKEN), False
    return secrets.token_urlsafe(32), True
