"""Defines the request to a chat model, its answer, and the protocol of an endpoint or a mailbox that carries them.

A request's id is built from role, plan or attempt, ordinal and a digest of its content, so a node that runs again makes the
same id. Records and one protocol only: nothing is sent, stored or paid for here.

Where to look next: `engineers/endpoint.py`, `engineers/mailbox.py` (carry requests), `engineers/metered_chat.py` (pays),
`engineers/tool_request.py` (requests with tools).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stitchcuda.engineers.reply import Reply
from stitchcuda.errors import Unavailable
from stitchcuda.state import Digest, Record, Role

Options = Mapping[str, bool | int | float | str]


class ContextWindowExceeded(Exception):
    """The request does not fit into the model's context window; the message is the server's."""


class AnswerInterrupted(Exception):
    """The answer broke off on its way and may be requested again. `received`: the text that came, thinking included."""

    def __init__(self, message: str, received: str = "") -> None:
        super().__init__(message)
        self.received = received


class NoAnswer(Unavailable):
    """The request was sent `times` times and no answer came. The server may charge for it all the same."""

    def __init__(self, message: str, times: int) -> None:
        super().__init__(message)
        self.times = times


@dataclass(frozen=True)
class Message:
    """One turn. `speaker` is OpenAI's role: user or assistant."""

    speaker: str
    text: str


@dataclass(frozen=True)
class ChatRequest:
    """One call of a model. `id` names it in the transcript and the mailbox, and is the same whenever a node runs again."""

    role: Role
    about: str                             # id of the attempt or plan, 16 hexadecimal digits
    ordinal: int                           # 0, 1, ... among the calls of this role about that
    messages: tuple[Message, ...]
    schema: type[Reply] | None = None      # None: free text, such as a coder's fenced files

    @property
    def content(self) -> dict[str, Any]:
        """The part of the request body that identifies it: messages and the form of the answer."""
        spoken = [{"role": message.speaker, "content": message.text} for message in self.messages]
        return {"messages": spoken} | ({"response_format": response_format(self.schema)} if self.schema else {})

    @property
    def digest(self) -> Digest:
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    @property
    def place(self) -> str:
        """Role, attempt or plan, and ordinal. A place has one answer, even if a newer version words the request differently."""
        return f"{self.role}-{self.about}-{self.ordinal}"

    @property
    def id(self) -> str:
        return f"{self.place}-{self.digest[:12]}"


class ChatAnswer(Record):
    """The answer to a request. Token counts are the server's; None where it reported none."""

    text: str
    thinking: str = ""
    refusal: str = ""                      # the model's or a filter's refusal; "" when it answered
    finish: str = "stop"                   # "length": cut at the output limit; "long": cut off by us (MOST_CHARACTERS)
    model: str = ""                        # as the server names it
    input_tokens: int | None = None
    cached_tokens: int = 0
    written_tokens: int | None = None      # input tokens written to the provider's cache, which some charge for
    output_tokens: int | None = None
    message: dict[str, Any] | None = None  # the whole reply with its calls of tools, as LangChain writes it; None: no tools


class Chat(Protocol):
    """A chat model. Answers one request at a time per thread; several threads may call it."""

    name: str                              # such as "openai:NAME"
    notes: list[str]                       # a sentence for each fallback, such as plain text in place of a JSON schema

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        """Returns the answer. `limit`: most tokens that it may have, thinking included; None: the model's own limit. Raises
        `Unavailable`, `ReplyPending`, `ContextWindowExceeded` or `AnswerInterrupted`."""


def response_format(schema: type[Reply]) -> dict[str, Any]:
    """Returns the `response_format` of OpenAI's protocol that enforces a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.__name__, "strict": True, "schema": schema.model_json_schema()},
    }
