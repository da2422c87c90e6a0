"""A local HTTP server that speaks OpenAI's chat completions, so that the real client runs in tests.

It answers from the request's *content* through the `answer` function it is given: a prompt that lacks something gets
another answer. It streams as server-sent events with a final usage chunk, checks the key when one is set, enforces that
a `json_schema` request is one, and fails on demand (`Failure`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Failure:
    """What to answer instead of a completion. `status` 0 drops the connection in the middle of the stream."""

    status: int
    message: str = "on demand"
    retry_after: str = "0"


@dataclass(frozen=True)
class Request:
    """One request as the server saw it."""

    body: dict[str, Any]
    key: str

    @property
    def prompt(self) -> str:
        return "\n".join(str(message["content"]) for message in self.body["messages"])

    @property
    def schema(self) -> str:
        """Name of the JSON schema asked for, "" in plain text."""
        return str(self.body.get("response_format", {}).get("json_schema", {}).get("name", ""))

    @property
    def role(self) -> str:
        words = str(self.body["messages"][0]["content"]).split()
        return words[3] if words[:3] == ["You", "are", "the"] else ""


Answer = Callable[[Request], str | Failure]


@dataclass
class Server:
    """A running server: its address and what it was asked."""

    url: str
    requests: list[Request] = field(default_factory=list)

    def roles(self) -> list[str]:
        return [request.role for request in self.requests]


@contextmanager
def serve(
    answer: Answer, *, structured: bool = True, usage: bool = True, key: str = "", delay_s: float = 0.0
) -> Iterator[Server]:
    """`structured=False` refuses json_schema as older servers do; `delay_s` is the pause between chunks."""
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            request = Request(body, given)
            server.requests.append(request)
            self._respond(request)

        def _respond(self, request: Request) -> None:
            if self.path != "/v1/chat/completions":
                return self._fail(Failure(404, f"no such path {self.path}"))
            if key and request.key != key:
                return self._fail(Failure(401, "Incorrect API key provided"))
            form = request.body.get("response_format")
            if form is not None and not structured:
                return self._fail(Failure(400, "This response_format type is unavailable now"))
            if form is not None and problem(form):
                return self._fail(Failure(400, f"Invalid schema for response_format: {problem(form)}"))
            result = answer(request)
            if isinstance(result, Failure) and result.status:
                return self._fail(result)
            self._stream(request, result)

        def _fail(self, failure: Failure) -> None:
            text = json.dumps({"error": {"message": failure.message, "type": "on_demand", "code": None}}).encode()
            self.send_response(failure.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Retry-After", failure.retry_after)
            self.end_headers()
            self.wfile.write(text)

        def _stream(self, request: Request, result: str | Failure) -> None:
            assert request.body["stream"] is True, "the client is asked to stream"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            text = result if isinstance(result, str) else "cut "
            pieces = [text[at : at + 200] for at in range(0, len(text), 200)] or [""]
            for piece in pieces:
                self._event(request, [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}])
                time.sleep(delay_s)
            if isinstance(result, Failure):
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(2)
                return
            self._event(request, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
            if usage and request.body.get("stream_options", {}).get("include_usage"):
                prompt, reply = len(request.prompt) // 4, len(text) // 4
                counts = {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
                self._event(request, [], usage=counts)
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _event(self, request: Request, choices: list[dict[str, Any]], **more: Any) -> None:
            model = request.body["model"]
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": choices}
            self.wfile.write(b"data: " + json.dumps(chunk | more).encode() + b"\n\n")
            self.wfile.flush()

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_port}/v1"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
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
