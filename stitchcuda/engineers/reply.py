"""Defines the replies of a chat model (plan, draft, review) and parses them from its text.

A plan and a review are one JSON object, which is searched for in the text where the server does not enforce the schema. A draft
is free text with one fenced block per file, whole or as edits, since models write code in JSON strings badly; a block named
`look` asks to see something first. Thinking text is removed first. Anything else raises `Malformed`.

Where to look next: `engineers/chat_engineer.py` (uses replies, asks for repairs), `engineers/prompts/` (asks for these forms).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from stitchcuda.state import Route

THINKING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.DOTALL)
THINKING_TAIL = re.compile(r"\A(?!\s*[{`]).*?</(?:think|thinking|reasoning|thought)>", re.DOTALL)
FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)[ \t]*$", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"[\w./-]+\.(?:py|cu|cuh|cc|cpp|h|hpp|json)\b")
EDIT = re.compile(r"^<<<<<<< SEARCH\n(.*?)^=======\n(.*?)^>>>>>>> REPLACE[ \t]*$\n?", re.DOTALL | re.MULTILINE)
EXHAUSTED = re.compile(r"^[ \t*`]*exhausted:(?P<why>.*)$", re.MULTILINE | re.IGNORECASE)
AFRESH = re.compile(r"^[ \t*`]*base:[ \t]*program[ \t*`.]*$", re.MULTILINE | re.IGNORECASE)
OPEN = re.compile(r"^`{3,}", re.MULTILINE)
LOOK = "look"
BRACES = 100  # opening braces at which a JSON object is tried


class Malformed(ValueError):
    """The text is not a reply of the required form. The message is shown to the model, which may repair its reply."""


class Reply(BaseModel):
    """Base of the JSON replies. All fields are required and no others allowed, as OpenAI's strict schemas demand."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses a reply; raises `Malformed` with the message of pydantic or json."""
        try:
            return cls.model_validate(json_object(without_thinking(text), cls.model_fields))
        except ValueError as error:  # includes pydantic's ValidationError
            raise Malformed(str(error)) from error

    @classmethod
    def instructions(cls) -> str:
        """Returns the sentence that asks for this form where the server does not enforce the schema."""
        schema = json.dumps(cls.model_json_schema())
        return f"Reply with one JSON object and nothing else, following this JSON schema:\n{schema}"


class PlannedTask(Reply):
    name: str
    regions: list[str]  # ids of the regions that it replaces together; none for a host-side change
    title: str
    predicted_ms: float
    why: str
    strategy: str


class PlanReply(Reply):
    summary: str
    host: str  # how the host side should look in the end
    tasks: list[PlannedTask]


@dataclass(frozen=True)
class LookReply:
    """One thing that a coder wants to look up before it writes: a tool and its argument."""

    tool: str
    argument: str


@dataclass(frozen=True)
class DraftReply:
    """A coder's reply. `files` are (path, whole text or edits), in the order in which they were written."""

    note: str
    exhausted: str = ""                    # why there is nothing new to offer
    afresh: bool = False                   # edits start from the verified program, not from the last draft
    files: tuple[tuple[str, str], ...] = ()
    looks: tuple[LookReply, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parses a coder's text. Raises `Malformed` for one without a file, a look or an `exhausted` line."""
        text = without_thinking(text.replace("\r\n", "\n"))
        if not text:
            raise Malformed("the reply is empty")
        fences = [_parse_fence(match, text) for match in FENCE.finditer(text)]
        looks = tuple(look for name, body in fences if name == LOOK for look in _parse_looks(body))
        files = tuple((name, body) for name, body in fences if name not in ("", LOOK))
        outside = FENCE.sub("", text)
        if OPEN.search(outside):
            raise Malformed("a fenced block is not closed, or a line in it starts with ``` and closes it: use ```` around it")
        match = EXHAUSTED.search(outside)
        note = AFRESH.sub("", EXHAUSTED.sub("", outside))
        note = " ".join(line for line in note.splitlines() if line.strip() and not PATH.fullmatch(line.strip(" *`#:")))
        exhausted = match["why"].strip(" \t*`") if match and not files and not looks else ""
        if not files and not looks and not exhausted:
            if any(match["info"].strip() != LOOK for match in FENCE.finditer(text)):
                raise Malformed("a fenced block does not say which file it is: write the path after the opening fence")
            raise Malformed("there is no fenced block with a file in the reply, and no line `exhausted: why`")
        afresh = bool(AFRESH.search(outside))
        return cls(note=" ".join(note.split()), exhausted=exhausted, afresh=afresh, files=files, looks=looks)

    def apply_to(self, base: Mapping[str, str | bytes]) -> dict[str, str | bytes]:
        """Returns the files of `base` with this draft's files and edits applied; an empty block removes its file. Raises
        `Malformed` for a path outside of the program, and for an edit whose lines are not in the file exactly once."""
        result = dict(base)
        for name, body in self.files:
            path = program_path(name)
            if path == "program.json":     # the manifest is written by us
                continue
            edits = EDIT.findall(body)
            if not body.strip():
                if path == "model_new.py":
                    raise Malformed("model_new.py cannot be removed")
                result.pop(path, None)
                continue
            if "<<<<<<< SEARCH" in EDIT.sub("", body):
                form = "SEARCH, =======, then >>>>>>> REPLACE, each on its own line"
                raise Malformed(f"an edit of {path} is not closed: {form}")
            if not edits:
                result[path] = body
                continue
            before = result.get(path)
            if not isinstance(before, str):
                raise Malformed(f"{path} cannot be edited: there is no such file; write it whole")
            for old, new in edits:
                if before.count(old) != 1:
                    found = "is not in it" if old not in before else f"is in it {before.count(old)} times"
                    raise Malformed(f"an edit of {path} does not fit: {_quoted(old)} {found}")
                before = before.replace(old, new)
            result[path] = before
        return result


class ReviewReply(Reply):
    bottleneck: str
    defect: str  # a mistake in the code that the tools did not find; "" for none
    suggestion: str
    expected_gain: str
    route: Route
    citations: list[str]

    @model_validator(mode="before")
    @classmethod
    def _without_defect(cls, reply: Any) -> Any:
        """Replies that were recorded before `defect` was asked for have none."""
        return {"defect": ""} | reply if isinstance(reply, dict) else reply


def without_thinking(text: str) -> str:
    """Removes leading <think>…</think>, also if it is cut off or the server has removed its opening tag."""
    shorter = THINKING.sub("", text, count=1)
    if shorter == text:
        shorter = THINKING_TAIL.sub("", text, count=1)
    return shorter.strip()


def json_object(text: str, fields: Collection[str] = ()) -> dict[str, Any]:
    """Returns the first JSON object in `text`, or in a fenced block of it, that parses and has one of `fields`. Where none has
    any, returns the first one if all parse (pydantic then names the missing fields). Raises `Malformed` else."""
    if not text:
        raise Malformed("the reply is empty")
    decoder = json.JSONDecoder(strict=False)  # models write raw newlines inside strings
    first: dict[str, Any] | None = None
    problem = ""
    for candidate in [text, *(match["body"] for match in FENCE.finditer(text))]:
        start = candidate.find("{")
        for _ in range(BRACES):
            if start < 0:
                break
            end = start + 1
            try:
                value, end = decoder.raw_decode(candidate, start)
            except (json.JSONDecodeError, RecursionError) as error:
                problem = problem or f"the reply is not valid JSON: {error}"
            else:
                if any(field in value for field in fields):
                    return dict(value)
                first = value if first is None else first
            start = candidate.find("{", end)
    if first is None or problem:
        raise Malformed(problem or "there is no JSON object in the reply")
    return first


def _parse_fence(match: re.Match[str], text: str) -> tuple[str, str]:
    """Returns a fenced block's path and text. The path is in its opening line or in the line above it; "" without one."""
    if match["info"].strip() == LOOK:
        return LOOK, match["body"]
    before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
    for place in (match["info"], before if len(before) < 120 else ""):
        found = PATH.search(place)
        if found:
            return found.group(0).removeprefix("./"), match["body"]
    return "", match["body"]


def _parse_looks(body: str) -> list[LookReply]:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    return [LookReply(tool=tool, argument=argument.strip()) for tool, _, argument in (line.partition(" ") for line in lines)]


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:79]}…")


def program_path(path: str) -> str:
    """Returns a path normalised; raises `Malformed` for one that a program may not have. Allowed are `model_new.py`,
    `program.json` and Python, CUDA, C++ and JSON files below `kernels/`."""
    pure = PurePosixPath(path.strip())
    if not path.strip() or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise Malformed(f"the path {path!r} is not inside the program's folder")
    if pure.suffix not in {".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp", ".json"}:
        raise Malformed(f"the file {path!r} is neither Python, CUDA, C++ nor JSON")
    if str(pure) not in ("model_new.py", "program.json") and pure.parts[0] != "kernels":
        raise Malformed(f"the file {path!r} is neither model_new.py nor below kernels/")
    return str(pure)
