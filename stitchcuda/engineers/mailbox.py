"""A chat model behind two folders: a request is a file, and so is its reply. No network; nobody has to answer soon.

    DIR/requests/ID.jsonl   one line of OpenAI's Batch input:  cat DIR/requests/*.jsonl > batch.jsonl
    DIR/requests/ID.md      the same for people and other programs: the text to answer, and in which form
    DIR/replies/ID.md       the answer as text (or ID.txt)
    DIR/replies/ID.json     the answer as a chat completion, or as one line of Batch output
    DIR/replies/*.jsonl     Batch output as it is downloaded, of any number of requests

Several sessions may share one folder: an ID names its session. A reply that is not there yet raises `ReplyPending`, and the
session is parked. Nothing is ever deleted here. Write a reply under another name first and rename it: what can be seen is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stitchcuda.engineers.chat import Answer, Ask, Options
from stitchcuda.errors import ReplyPending, Unavailable
from stitchcuda.workspace import write_atomically

BATCH_MODEL = "gpt-5"
"""What a Batch line asks for unless `--model-option model=NAME` says otherwise; who answers by hand may ignore it."""
MOST_BYTES = 4_000_000


class Mailbox:
    """`mailbox:DIR` for one session. `folder` is made on the first request."""

    def __init__(self, folder: Path, session: str, options: Options | None = None, *, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.folder = folder
        self._session = re.sub(r"[^A-Za-z0-9_-]", "_", session)[:20]
        self._options = dict(options or {})

    def answer(self, ask: Ask, *, limit: int | None) -> Answer:
        name = f"{self._session}-{ask.id}"
        found = self._reply(name)
        if found is not None:
            return found
        body = {"model": BATCH_MODEL} | self._options | ask.content
        if limit is not None:
            body["max_completion_tokens"] = limit
        line = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
        request = self.folder / "requests" / f"{name}.jsonl"
        if not request.exists():           # as it was asked first, also where less may be written now
            write_atomically(self.folder / "requests" / f"{name}.md", readable(ask).encode())
            write_atomically(request, json.dumps(line).encode() + b"\n")
        raise ReplyPending(str(self.folder / "requests" / f"{name}.md"))

    def _reply(self, name: str) -> Answer | None:
        replies = self.folder / "replies"
        for suffix in (".md", ".txt"):
            path = replies / f"{name}{suffix}"
            if path.is_file() and path.stat().st_size:
                return Answer(text=_read(path))
        path = replies / f"{name}.json"
        if path.is_file() and path.stat().st_size:
            return completion(_parsed(_read(path), path), path)
        for path in sorted(replies.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if name in line and (entry := _parsed(line, path)).get("custom_id") == name:
                    return completion(entry, path)
        return None


def readable(ask: Ask) -> str:
    """The request as one text: turn by turn where there are several, and at the end the form of the answer."""
    if len(ask.messages) == 1:
        text = ask.messages[0].text
    else:
        heads = {"user": "# Asked", "assistant": "# Answered"}
        text = "\n\n".join(f"{heads[message.speaker]}\n\n{message.text.strip()}" for message in ask.messages)
    return text.strip() + "\n" + (f"\n{ask.schema.instructions()}\n" if ask.schema else "")


def completion(entry: Mapping[str, Any], path: Path) -> Answer:
    """A chat completion, bare or inside a line of Batch output. Raises Unavailable for one that failed, or is none."""
    response = entry.get("response")
    error = entry.get("error") or (response.get("body", {}).get("error") if isinstance(response, dict) else None)
    body = response.get("body") if isinstance(response, dict) else entry
    if error:
        words = error.get("message") if isinstance(error, dict) else error
        raise Unavailable(f"{path} holds an error instead of an answer ({words}): remove it and answer again")
    try:
        assert isinstance(body, dict)
        choice = body["choices"][0]
        message, used = choice["message"], body.get("usage") or {}
        return Answer(
            text=message.get("content") or "",
            thinking=message.get("reasoning_content") or "",
            refusal=message.get("refusal") or "",
            finish=choice.get("finish_reason") or "stop",
            model=body.get("model") or "",
            input_tokens=used.get("prompt_tokens"),
            cached_tokens=(used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            output_tokens=used.get("completion_tokens"),
        )
    except (AssertionError, KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Unavailable(f"{path} is no chat completion: answer as text in a file that ends in .md instead") from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unavailable(f"{path} is not valid JSON ({error}): write it whole, or answer as text in a .md file") from error
    if not isinstance(found, dict):
        raise Unavailable(f"{path} is no chat completion: answer as text in a file that ends in .md instead")
    return found


def _read(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise Unavailable(f"{path} is longer than {MOST_BYTES // 1_000_000} MB: that is no reply")
    return path.read_text(encoding="utf-8", errors="replace")
