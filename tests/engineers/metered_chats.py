"""A chat engineer at a local server, as a session has it, and what a model answers that does everything right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stitchcuda.engineers.selection import Engineers, engineers_for
from stitchcuda.errors import StitchError
from stitchcuda.state import Call, Role, Settings
from stitchcuda.store import FolderStore
from tests.engineers.protocol_server import Answer, Failure, Request, Server
from tests.engineers.protocols import Reply

TASK = {
    "name": "gelu-norm", "regions": ["r01"], "title": "gelu + norm", "predicted_ms": 0.004, "why": "two launches",
    "strategy": "one block a row",
}  # fmt: skip
PLAN = {"summary": "Fuse the one region.", "host": "one graph", "tasks": [TASK]}
REVIEW = {"bottleneck": "launches", "suggestion": "none", "expected_gain": "", "route": "next_task", "citations": []}
KEYS = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_VERSION", "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT", "ANTHROPIC_API_KEY", "ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL", "GOOGLE_API_KEY",
    "STITCHCUDA_PRICES",
)  # fmt: skip
"""Variables that would change whom a test asks."""


def hired(
    folder: Path,
    server: Server | None,
    *,
    model: str = "openai:local",
    progress: Callable[[Role, int], None] | None = None,
    heard: Callable[[Call], None] = lambda call: None,
    **settings: Any,
) -> Engineers:
    """Engineers that ask the server; another pair over the same folder goes on with the same session."""
    asked = Settings(model=model, **({"base_url": server.url} if server else {}) | settings)
    return engineers_for(asked, store=FolderStore(folder), session="s", root=folder, progress=progress, on_call=heard)


def by_role(request: Request) -> str:
    """Plans, reviews, and writes code that depends on which failure the prompt tells of."""
    if request.role == "planner":
        return json.dumps(PLAN)
    if request.role == "verifier":
        return json.dumps(REVIEW)
    if "worst error 0.5 (allowed 1e-05" in request.prompt and "// built now" in request.prompt:
        return block("// right now")
    if 'identifier "xs" is undefined' in request.prompt:
        return block("// built now")
    return block("// does not build")


def block(text: str, path: str = "kernels/r01.cu", note: str = "One block a row.") -> str:
    """A coder's reply: a sentence, and one file."""
    return f"{note}\n```{path}\n{text}\n```\n"


def once(first: str | Reply | Failure, then: str) -> Answer:
    """Answers the first request so, all others so."""
    seen: list[Request] = []

    def answer(request: Request) -> str | Reply | Failure:
        seen.append(request)
        return first if len(seen) == 1 else then

    return answer


def paid_once(engineers: Engineers, server: Server) -> None:
    """The session counts what the server charged for: neither more nor less."""
    assert engineers.transcript is not None
    usage = engineers.transcript.usage()
    assert (usage.input_tokens, usage.output_tokens) == (server.read, server.written)


def assert_one_sentence(error: StitchError) -> None:
    text = str(error)
    assert "\n" not in text
    assert 20 < len(text) < 500
    assert not text.endswith(".")
    assert "Traceback" not in text

