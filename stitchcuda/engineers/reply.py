"""What a chat model is asked to return, and how its text becomes that.

With a server that enforces the JSON schema the text is one JSON object. Without one (or when the server ignores it) the
object is looked for in the text, and a coder may answer with one fenced block per file instead. Thinking text is removed
before anything is read. Nothing here talks to a server (`endpoint.py`) or knows what the fields are used for (`llm.py`).
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from stitchcuda.state import Route

THINKING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.DOTALL)
THINKING_TAIL = re.compile(r"\A(?!\s*[{`]).*?</(?:think|thinking|reasoning|thought)>", re.DOTALL)
FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)[ \t]*$", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"[\w./-]+\.(?:py|cu|cuh|cc|cpp|h|hpp|json)\b")


class Malformed(ValueError):
    """The text is not the reply that was asked for. The message is shown to the model in the one repair it gets."""


class Reply(BaseModel):
    """Base of the replies. Every field is required and nothing else is allowed, as OpenAI's strict schemas want it."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads a reply; raises `Malformed` with pydantic's or json's own words."""
        try:
            return cls.model_validate(json_object(without_thinking(text)))
        except ValueError as error:  # includes pydantic's ValidationError
            raise Malformed(str(error)) from error

    @classmethod
    def instructions(cls) -> str:
        """How to answer where the server does not enforce the schema."""
        schema = json.dumps(cls.model_json_schema())
        return f"Reply with one JSON object and nothing else, following this JSON schema:\n{schema}"


class PlannedTask(Reply):
    target: str  # a region's id, or "host:NAME" for a host-side change
    title: str
    predicted_ms: float
    why: str
    strategy: str


class PlanReply(Reply):
    summary: str
    tasks: list[PlannedTask]


class ProgramFile(Reply):
    path: str
    content: str


class DraftReply(Reply):
    note: str
    exhausted: str  # "" or why there is nothing new to offer
    files: list[ProgramFile]

    @classmethod
    def from_text(cls, text: str) -> Self:
        text = without_thinking(text)
        files = fenced_files(text)
        if files:
            note = FENCE.sub("", text).strip()
            return cls(note=note, exhausted="", files=[ProgramFile(path=path, content=body) for path, body in files.items()])
        return super().from_text(text)

    @classmethod
    def instructions(cls) -> str:
        return (
            "Reply with one fenced block per file that you write or change, whole, its path in the opening line:\n"
            "```kernels/NAME.cu\n…\n```\n"
            "Say in a sentence or two outside the blocks what you did. If you have nothing new to offer, reply instead with "
            'the JSON object {"note": "", "exhausted": "why", "files": []}.'
        )


class ReviewReply(Reply):
    bottleneck: str
    suggestion: str
    expected_gain: str
    route: Route
    citations: list[str]


def without_thinking(text: str) -> str:
    """Drops a leading <think>…</think> (or one whose opening tag the server kept), closed or cut off."""
    shorter = THINKING.sub("", text, count=1)
    if shorter == text:
        shorter = THINKING_TAIL.sub("", text, count=1)
    return shorter.strip()


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in `text`: the text itself, a fenced block, or the first object that parses."""
    if not text:
        raise Malformed("the reply is empty")
    decoder = json.JSONDecoder(strict=False)  # models write raw newlines inside strings
    candidates = [text, *(match["body"] for match in FENCE.finditer(text))]
    problem = "there is no JSON object in the reply"
    for candidate in candidates:
        start = candidate.find("{")
        while start >= 0:
            try:
                value, _ = decoder.raw_decode(candidate, start)
            except json.JSONDecodeError as error:
                if problem.startswith("there is no"):
                    problem = f"the reply is not valid JSON: {error}"
                start = candidate.find("{", start + 1)
                continue
            if isinstance(value, dict):
                return value
            start = candidate.find("{", start + 1)
    raise Malformed(problem)


def fenced_files(text: str) -> dict[str, str]:
    """Fenced blocks that name a file, in the opening line or in the line just above it: path → text."""
    files: dict[str, str] = {}
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
        for place in (match["info"], before if len(before) < 120 else ""):
            found = PATH.search(place)
            if found:
                files[found.group(0).removeprefix("./")] = match["body"]
                break
    return files


def program_path(path: str) -> str:
    """A path inside a program folder, normalised; raises `Malformed` for anything that would leave it."""
    pure = PurePosixPath(path.strip())
    if not path.strip() or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise Malformed(f"the path {path!r} is not inside the program's folder")
    if pure.suffix not in {".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp", ".json"}:
        raise Malformed(f"the file {path!r} is neither Python, CUDA, C++ nor JSON")
    return str(pure)
