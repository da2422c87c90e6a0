"""A web site on 127.0.0.1 whose replies a test writes; it says what it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request, and ways to answer it."""

    protocol_version = "HTTP/1.0"
    server: Any

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        replies = self.server.replies.get(self.path)
        if not replies:
            return self.say(404, b"nothing here")
        # The last reply is given ever after.
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        try:
            reply(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def say(self, status: int, body: bytes, kind: str = "text/html") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


class Site:
    """A context manager; `site.replies["/path"] = [first, second]` with functions of `Asked`."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        server.replies, server.asked = self.replies, self.asked
        self._server = server
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Site:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def paths(self) -> list[str]:
        """What was asked for."""
        return [path for path, _ in self.asked]


def page(text: str, kind: str = "text/html") -> Reply:
    html = f"<html><head><title>{text[:20]}</title></head><body>{text}</body></html>"
    return lambda asked: asked.say(200, (html if kind == "text/html" else text).encode(), kind)


def status(code: int) -> Reply:
    return lambda asked: asked.say(code, b"no")
