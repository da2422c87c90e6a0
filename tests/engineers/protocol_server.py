"""A local HTTP server that speaks the chat protocols, so that the real clients run in tests.

It answers from the request's *content* through the `answer` function it is given: a prompt that lacks something gets
another answer. It speaks OpenAI's chat completions and responses, Azure's address of the former and Anthropic's messages
(`tests/engineers/protocols.py`), streamed or whole as it is asked, keeps to the limit that a request sets, checks the key when
one is set, enforces that a `json_schema` request is one, fails on demand (`Failure`), and keeps a count of the tokens that it
charged for.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.engineers.protocols import FORMS, Counts, Form, Reply

PIECES = 50  # most of a streamed reply
AZURE = "/openai/deployments/"


@dataclass(frozen=True)
class Failure:
    """What to answer instead of a reply. `status` 0 drops the connection in the middle of the stream."""

    status: int
    message: str = "on demand"
    code: str | None = None
    retry_after: str = "0.01"              # seconds; "": the server does not say


@dataclass(frozen=True)
class Request:
    """One request as the server saw it."""

    body: dict[str, Any]
    key: str = ""
    path: str = "/v1/chat/completions"

    @property
    def turns(self) -> list[str]:
        return [str(turn["content"]) for turn in self.body.get("messages") or self.body["input"]]

    @property
    def prompt(self) -> str:
        return "\n".join(self.turns)

    @property
    def form(self) -> dict[str, Any] | None:
        """The form that is asked for, as chat completions write it."""
        flat = self.body.get("text", {}).get("format")
        if flat is not None:
            return {"type": flat["type"], "json_schema": {name: value for name, value in flat.items() if name != "type"}}
        form: dict[str, Any] | None = self.body.get("response_format")
        return form

    @property
    def schema(self) -> str:
        """Name of the JSON schema asked for, "" in plain text."""
        return str((self.form or {}).get("json_schema", {}).get("name", ""))

    @property
    def role(self) -> str:
        words = self.turns[0].split()
        return words[3] if words[:3] == ["You", "are", "the"] else ""

    @property
    def limit(self) -> int | None:
        """Most tokens of the reply."""
        names = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        return next((self.body[name] for name in names if name in self.body), None)


Answer = Callable[[Request], str | Reply | Failure]


@dataclass
class Server:
    """A running server: its address, what it was asked, and what it charged for."""

    root: str
    bytes_per_token: float
    requests: list[Request] = field(default_factory=list)
    read: int = 0
    written: int = 0
    lost: int = 0                          # replies that broke off, charged for as far as they came

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def roles(self) -> list[str]:
        return [request.role for request in self.requests]

    def count(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8", "replace")) / self.bytes_per_token)

    def counts(self, request: Request, reply: Reply) -> Counts:
        """The prompt with its schema and what stands around a message; the reply with its thinking."""
        form = json.dumps(request.form) if request.form else ""
        asked = sum(self.count(turn) + 4 for turn in request.turns) + self.count(form)
        return Counts(asked, self.count(reply.text) + self.count(reply.thinking), reply.cached)


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that have gone."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(
    answer: Answer,
    *,
    structured: bool = True,
    usage: bool = True,
    key: str = "",
    delay_s: float = 0.0,
    bytes_per_token: float = 4.0,
) -> Iterator[Server]:
    """`structured=False` refuses json_schema as older servers do, `usage=False` tells no tokens; `delay_s` is the pause between
    chunks."""
    server = Server("", bytes_per_token)
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            request = Request(body, given or self.headers.get("api-key") or self.headers.get("x-api-key") or "", self.path)
            with guard:
                server.requests.append(request)
            try:
                self._respond(request)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # whoever asked has heard enough

        def _respond(self, request: Request) -> None:
            form = _form(request.path)
            if form is None:
                return self._fail(Failure(404, f"no such path {request.path}"))
            if key and request.key != key:
                return self._fail(Failure(401, "Incorrect API key provided"))
            if request.form is not None and not structured:
                return self._fail(Failure(400, "This response_format type is unavailable now"))
            if request.form is not None and problem(request.form):
                return self._fail(Failure(400, f"Invalid schema for response_format: {problem(request.form)}"))
            result = answer(request)
            if isinstance(result, Failure) and result.status:
                return self._fail(result)
            if isinstance(result, Failure):
                result = Reply("cut ", lost=True)
            self._send(form, request, _within(Reply(result) if isinstance(result, str) else result, request, server))

        def _send(self, form: Form, request: Request, reply: Reply) -> None:
            counts = server.counts(request, reply)
            with guard:
                server.read += counts.read
                server.written += counts.written
                server.lost += reply.lost
            time.sleep(reply.silence_s)
            told = counts if usage else None
            model = request.body["model"]
            if not request.body.get("stream"):
                return self._whole(form.whole(model, reply, told), lost=reply.lost)
            if "/chat/" in request.path and not request.body.get("stream_options", {}).get("include_usage"):
                told = None
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for number, event in enumerate(form.events(model, reply, _pieces(reply.text), told)):
                name = f"event: {event['type']}\n" if "type" in event else ""
                numbered = event | {"sequence_number": number} if "/responses" in request.path else event
                self.wfile.write(f"{name}data: {json.dumps(numbered)}\n\n".encode())
                self.wfile.flush()
                time.sleep(delay_s)
            if reply.lost:
                self.connection.shutdown(2)
            elif form.last:
                self.wfile.write(f"data: {form.last}\n\n".encode())

        def _whole(self, body: dict[str, Any], *, lost: bool) -> None:
            text = json.dumps(body).encode()
            self._head(200, len(text))
            self.wfile.write(text[: len(text) // 2] if lost else text)
            if lost:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(2)

        def _fail(self, failure: Failure) -> None:
            error = {"message": failure.message, "type": "on_demand", "code": failure.code}
            text = json.dumps({"type": "error", "error": error}).encode()
            self._head(failure.status, len(text), failure.retry_after)
            self.wfile.write(text)

        def _head(self, status: int, length: int, retry_after: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(length))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()

    listener = _Quiet(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.root = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def problem(form: dict[str, Any]) -> str:
    """What OpenAI's strict mode would refuse in a response_format: every object closed, every property required."""
    if form.get("type") != "json_schema" or not form["json_schema"].get("strict"):
        return "not a strict json_schema"
    schema = form["json_schema"]["schema"]
    for part in [schema, *schema.get("$defs", {}).values()]:
        if part.get("type") != "object":
            continue
        if part.get("additionalProperties") is not False:
            return f"{part.get('title')}: additionalProperties must be false"
        if set(part.get("required", ())) != set(part["properties"]):
            return f"{part.get('title')}: every property must be required"
    return ""


def _form(path: str) -> Form | None:
    place = urlsplit(path).path
    if place.startswith(AZURE):
        return FORMS["/chat/completions"] if place.endswith("/chat/completions") and "api-version=" in path else None
    return FORMS.get(place.removeprefix("/v1")) if place.startswith("/v1/") else None


def _within(reply: Reply, request: Request, server: Server) -> Reply:
    """The reply, cut where the request's limit is."""
    if request.limit is None or server.counts(request, reply).written <= request.limit:
        return reply
    room = max(request.limit - server.count(reply.thinking), 0)
    return replace(reply, text=reply.text[: int(room * server.bytes_per_token)], finish="length")


def _pieces(text: str) -> list[str]:
    size = max(200, -(-len(text) // PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
