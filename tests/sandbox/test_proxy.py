"""The proxy between a command in the sandbox and its endpoints, asked by clients that behave and by others."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from stitchcuda.sandbox import proxy as module
from stitchcuda.sandbox.proxy import NetworkEndpoint, Proxy


@pytest.fixture
def server() -> Iterator[NetworkEndpoint]:
    class Echo(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = f"{self.path} {self.headers['Host']} {self.headers['Connection']} {len(body)}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST

        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield NetworkEndpoint("127.0.0.1", made.server_address[1])
        made.shutdown()


class Asked:
    def __init__(self, *endpoints: NetworkEndpoint) -> None:
        self.notes: list[str] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.proxy = Proxy([listener], endpoints, self.notes.append)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, request: bytes) -> bytes:
        with self.connect() as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.fixture
def asked(server: NetworkEndpoint) -> Iterator[Asked]:
    made = Asked(server, NetworkEndpoint("127.0.0.1", 1), NetworkEndpoint("no-such-host.invalid", 80))
    yield made
    made.proxy.close()
    made.proxy.close()


def test_a_plain_request_is_passed_on_alone(asked: Asked, server: NetworkEndpoint) -> None:
    body = b"x" * 100_000
    lines = [
        f"POST http://{server}/v1/a?b=c HTTP/1.1", f"Host: {server}", "Proxy-Connection: keep-alive", "Connection: keep-alive",
        "Content-Length: 100000",
    ]  # fmt: skip
    got = asked.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    assert got.startswith(b"HTTP/1.1 200")
    assert got.endswith(f"/v1/a?b=c {server} close 100000".encode())
    assert asked.notes == []


def test_only_the_endpoints_are_reached(asked: Asked, server: NetworkEndpoint) -> None:
    refused = [
        f"CONNECT localhost:{server.port} HTTP/1.1", "CONNECT 127.0.0.1:22 HTTP/1.1", f"GET http://{server}@evil.example/ x",
        f"GET http://user@evil.example:{server.port}/ x", "GET file:///etc/passwd HTTP/1.1", "GET / HTTP/1.1", "CONNECT",
        "\x00\x01",
    ]  # fmt: skip
    for line in refused:
        assert asked.ask(f"{line}\r\nHost: {server}\r\n\r\n".encode("latin-1")).startswith(b"HTTP/1.1 403 "), line
    assert len(asked.notes) == len(asked.proxy.refused) == 5
    assert "refused a connection to 127.0.0.1:22" in asked.notes


@pytest.mark.parametrize("name", ["127.0.0.1:1", "no-such-host.invalid:80"])
def test_an_endpoint_that_does_not_answer(asked: Asked, name: str) -> None:
    assert asked.ask(f"CONNECT {name} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 502 ")


def test_garbage_closes_one_connection_only(asked: Asked, server: NetworkEndpoint) -> None:
    with asked.connect() as open_one:
        open_one.sendall(f"CONNECT {server} HTTP/1.1\r\n\r\n".encode())
        assert b"200" in open_one.recv(100)
        with asked.connect() as long:
            long.sendall(b"GET " + b"x" * (3 * module._CHUNK))
            with contextlib.suppress(ConnectionResetError):
                assert long.recv(10) == b""
        with asked.connect() as half:
            half.sendall(b"CONNECT ")
            half.shutdown(socket.SHUT_WR)
            assert half.recv(10) == b""
        open_one.sendall(b"GET /still HTTP/1.0\r\n\r\n")
        assert b"200 OK" in open_one.recv(100)


def test_connections_are_bounded(server: NetworkEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 3)
    asked = Asked(server)
    held = [asked.connect() for _ in range(3)]
    for connection in held:
        connection.sendall(f"CONNECT {server} HTTP/1.1\r\n\r\n".encode())
        assert b"200" in connection.recv(100)
    with asked.connect() as more:
        assert more.recv(10) == b""
    for connection in held:
        connection.close()
    asked.proxy.close()


def test_a_request_without_end_is_given_up(server: NetworkEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEAD_S", 0.2)
    asked = Asked(server)
    with asked.connect() as slow:
        slow.sendall(b"CONNECT ")
        assert slow.recv(10) == b""
    asked.proxy.close()
