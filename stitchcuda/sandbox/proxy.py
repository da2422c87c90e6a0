"""Lets a command in the sandbox speak with a few named endpoints of the network, and with nobody else.

The command has a network of its own with nothing in it but sockets that this process accepts from. At the first of them an HTTP
proxy answers: CONNECT for what is encrypted, and requests for plain http:// addresses. At the others, connections are passed on
to endpoints on this machine's own loopback, which clients do not ask a proxy for. Anything else gets status 403 and is noted.
Names are resolved here. It reads no request beyond its first lines, and opens no encrypted one.
Where to look next: `sandbox/background.py` (whose command it is), `engineers/agents/command_agent.py` (who uses both).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from stitchcuda.errors import BadInput

PORT = 3128
"""Of the proxy, in the command's network."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_CONNECTIONS = 200
_HEAD_S = 30.0                             # for a request's first lines, and for a connection to an endpoint
_CLOSE_S = 5.0
_CHUNK = 1 << 16
_MOST_NOTES = 200

_Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class NetworkEndpoint(NamedTuple):
    """A host's name or address, in lower case, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return self.host in _LOOPBACK


def read_endpoint(text: str) -> NetworkEndpoint:
    """Reads HOST:PORT. Raises `BadInput` for anything else."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or not port or text != parts.netloc or "@" in text or not all("!" <= letter <= "~" for letter in text):
        raise BadInput(f"{text[:100]!r} is no endpoint: write it as HOST:PORT, like api.example.com:443")
    return NetworkEndpoint(host.lower().rstrip("."), port)


def local_ports(endpoints: Sequence[NetworkEndpoint]) -> list[int]:
    """Returns the ports of those endpoints that are on this machine. Raises `BadInput` for the proxy's own."""
    ports = sorted({endpoint.port for endpoint in endpoints if endpoint.is_local})
    if PORT in ports:
        raise BadInput(f"port {PORT} cannot be an endpoint on this machine: the sandbox uses it itself; choose another port")
    return ports


class Proxy:
    """Serves in a thread of its own until `close`. `note` is called from there with a sentence on each endpoint that is
    refused."""

    def __init__(self, listeners: Sequence[socket.socket], endpoints: Sequence[NetworkEndpoint], note: Callable[[str], None]):
        self.refused: dict[str, int] = {}  # what was asked for → how often
        self._listeners, self._allowed, self._note = list(listeners), frozenset(endpoints), note
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="sandbox-proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections. May be called twice."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSE_S)        # longer only while a name is being resolved

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._accept())

    async def _accept(self) -> None:
        local = {endpoint.port: endpoint for endpoint in sorted(self._allowed) if endpoint.is_local}
        answers = [self._proxy, *(self._pass_on(local[port]) for port in sorted(local))]
        servers = [
            await asyncio.start_server(self._bounded(answer), sock=listener, limit=_CHUNK)
            for listener, answer in zip(self._listeners, answers, strict=False)
        ]
        await self._closing.wait()
        for server in servers:
            server.close()                 # the runner ends the connections that are still open

    def _bounded(self, answer: _Answer) -> _Answer:
        async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            try:
                if self._connections <= _MOST_CONNECTIONS:
                    await answer(reader, writer)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass                       # one side is gone, or sends what is no request: both connections are closed
            finally:
                self._connections -= 1
                writer.close()

        return answer_one

    def _pass_on(self, endpoint: NetworkEndpoint) -> _Answer:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(*endpoint), _HEAD_S)
            await _join((reader, writer), (far_reader, far_writer))

        return answer

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        endpoint = _asked_for(method, target)
        if endpoint is None or endpoint not in self._allowed:
            self._refuse(str(endpoint or "what a request without an endpoint wanted"))
            return await _say(writer, "403 Forbidden", "This endpoint is not among those that the agent was given.")
        try:
            far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(*endpoint), _HEAD_S)
        except (OSError, TimeoutError) as error:
            return await _say(writer, "502 Bad Gateway", f"{endpoint} cannot be reached: {error or 'no answer'}")
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            far_writer.write(_as_origin(method, target, version, head))
        await _join((reader, writer), (far_reader, far_writer))

    def _refuse(self, what: str) -> None:
        if what in self.refused or len(self.refused) < _MOST_NOTES:
            if what not in self.refused:
                self._note(f"refused a connection to {what}")
            self.refused[what] = self.refused.get(what, 0) + 1


def _asked_for(method: str, target: str) -> NetworkEndpoint | None:
    """Returns the endpoint of a request to a proxy; None if it names none."""
    try:
        if method == "CONNECT":
            return read_endpoint(target)
        url = urlsplit(target)
        return NetworkEndpoint((url.hostname or "").rstrip("."), url.port or 80) if url.scheme == "http" else None
    except (BadInput, ValueError):
        return None


def _as_origin(method: str, target: str, version: str, head: bytes) -> bytes:
    """Returns a request's first lines as a server wants them, for one request: the next one comes to the proxy again."""
    url = urlsplit(target)
    where = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [
        line for line in head.split(b"\r\n")[1:]
        if not line.lower().startswith((b"connection:", b"proxy-", b"keep-alive:"))
    ]  # fmt: skip
    return b"\r\n".join([f"{method} {where} {version}".encode("latin-1"), b"Connection: close", *kept])


async def _say(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


async def _join(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter], far: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Copies between two connections in both directions until both have ended."""
    try:
        await asyncio.gather(_copy(near[0], far[1]), _copy(far[0], near[1]))
    finally:
        far[1].close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(_CHUNK):
        target.write(piece)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
