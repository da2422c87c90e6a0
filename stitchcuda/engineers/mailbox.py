"""Implements a chat model by two folders: each request is a file, and so is its reply. No network, no deadline.

    DIR/requests/ID.jsonl   one line of OpenAI's Batch input:  cat DIR/requests/*.jsonl > batch.jsonl
    DIR/requests/ID.md      the same for people and other programs: the text to answer, and in which form
    DIR/replies/ID.md       the answer as text (or ID.txt)
    DIR/replies/ID.json     the answer as a chat completion, or as one line of Batch output
    DIR/replies/*.jsonl     Batch output as it is downloaded, of any number of requests

Several sessions may share one folder, since an ID begins with its session. A missing reply raises `ReplyPending`, and the
session is parked. A request that was written is never changed or deleted, even if a newer version would word it differently.
Write a reply under another name first and rename it: a half-written file would be read.

Where to look next: `engineers/chat.py` (requests and answers), `engineers/metered_chat.py` (records replies).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stitchcuda.engineers.chat import ChatAnswer, ChatRequest, Options
from stitchcuda.errors import BadInput, ReplyPending
from stitchcuda.store import write_atomically

BATCH_MODEL = "gpt-5"
"""The model named in a Batch line unless `--model-option model=NAME` names another; ignored by people who answer by hand."""
MOST_BYTES = 4_000_000


class Mailbox:
    """Implements `Chat` for `mailbox:DIR` in one session. `folder` is made on the first request. Raises `BadInput` for a folder
    or reply that cannot be used; the request stays open."""

    def __init__(self, folder: Path, session: str, options: Options | None = None, *, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.folder = folder
        self._session = re.sub(r"[^A-Za-z0-9_-]", "_", session)[:20]
        self._options = dict(options or {})

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        """Returns the reply; if there is none, writes the request and raises `ReplyPending` with its path."""
        for folder in (self.folder, self.folder / "requests", self.folder / "replies"):
            _make_folder(folder)
        name = self._name(request)
        found = self._reply(name)
        if found is not None:
            return found
        body = {"model": BATCH_MODEL} | self._options | request.content
        if limit is not None:
            body["max_completion_tokens"] = limit
        line = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
        path = self.folder / "requests" / f"{name}.jsonl"
        if not path.exists():              # the first request stands, even if `limit` is lower now
            write_atomically(self.folder / "requests" / f"{name}.md", request_text(request).encode())
            write_atomically(path, json.dumps(line).encode() + b"\n")
        raise ReplyPending(str(self.folder / "requests" / f"{name}.md"))

    def _name(self, request: ChatRequest) -> str:
        """Returns the request's ID; the ID of an earlier request at its place if there is one, which may be being answered."""
        name = f"{self._session}-{request.id}"
        standing = sorted((self.folder / "requests").glob(f"{self._session}-{request.place}-*.jsonl"))
        return standing[0].stem if standing and not (self.folder / "requests" / f"{name}.jsonl").exists() else name

    def _reply(self, name: str) -> ChatAnswer | None:
        """Returns a text reply, else the first valid completion: a second batch may answer what the first one failed on."""
        for suffix in (".md", ".txt"):
            if text := _read_reply(self.folder / "replies" / f"{name}{suffix}"):
                return ChatAnswer(text=text)
        wrong: BadInput | None = None
        for path, text in self._completions(name):
            try:
                entry = _parse_json(text, path)
                if entry.get("custom_id", name) == name:
                    return parse_completion(entry, path)
            except BadInput as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        return None

    def _completions(self, name: str) -> Iterator[tuple[Path, str]]:
        path = self.folder / "replies" / f"{name}.json"
        if text := _read_reply(path):
            yield path, text
        for path in sorted((self.folder / "replies").glob("[!.]*.jsonl")):
            with _explain_read_errors(path), path.open("rb") as file:
                for line in file:          # a Batch file may be large: it is read line by line
                    if name.encode() in line:
                        yield path, _decode(line, path)


def request_text(request: ChatRequest) -> str:
    """Returns the request as one text: its turns, and at the end the form of the answer."""
    if len(request.messages) == 1:
        text = request.messages[0].text
    else:
        heads = {"user": "# Asked", "assistant": "# Answered"}
        text = "\n\n".join(f"{heads[message.speaker]}\n\n{message.text.strip()}" for message in request.messages)
    return text.strip() + "\n" + (f"\n{request.schema.instructions()}\n" if request.schema else "")


def parse_completion(entry: Mapping[str, Any], path: Path) -> ChatAnswer:
    """Reads a chat completion, bare or inside a line of Batch output. Raises BadInput for an error or anything else."""
    response = entry.get("response")
    body: Any = response.get("body") if isinstance(response, dict) else entry
    error = entry.get("error") or (body.get("error") if isinstance(body, dict) else None)
    if error:
        words = (error.get("message") or error.get("code")) if isinstance(error, dict) else error
        text = " ".join(str(words or error).split())[:200]
        raise BadInput(f"{path} holds an error instead of an answer ({text}): remove it and answer again")
    try:
        choice = body["choices"][0]
        message, used = choice["message"], body.get("usage") or {}
        finish = choice.get("finish_reason") or "stop"
        return ChatAnswer(
            text=message.get("content") or "",
            thinking=message.get("reasoning_content") or message.get("reasoning") or "",
            refusal=message.get("refusal") or ("stopped by a filter" if finish == "content_filter" else ""),
            finish=finish,
            model=body.get("model") or "",
            input_tokens=used.get("prompt_tokens"),
            cached_tokens=(used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            output_tokens=used.get("completion_tokens"),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _not_a_completion(path) from error


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON ({error}): write it whole, or answer as text in a .md file") from error
    if not isinstance(found, dict):
        raise _not_a_completion(path)
    return found


def _not_a_completion(path: Path) -> BadInput:
    return BadInput(f"{path} is no chat completion: answer as text in a file that ends in .md instead")


def _read_reply(path: Path) -> str:
    """Returns a reply's text; "" if the file is missing or blank."""
    if not path.is_file():
        return ""
    with _explain_read_errors(path), path.open("rb") as file:
        text = _decode(file.read(MOST_BYTES + 1), path)
    return text if text.strip() else ""


def _decode(data: bytes, path: Path) -> str:
    if len(data) > MOST_BYTES:
        raise BadInput(f"{path} holds a reply of more than {MOST_BYTES // 1_000_000} MB: nothing is read of it, answer shorter")
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise BadInput(f"{folder} is not a folder: move it away, or name another one with --model mailbox:DIR") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot make {folder} ({reason}): name another one with --model mailbox:DIR") from error


@contextmanager
def _explain_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot read {path} ({reason}): let it be read, or answer in another file") from error
