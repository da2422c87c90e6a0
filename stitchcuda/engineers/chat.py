"""What is asked of a chat model and what it answers, whoever carries it: an endpoint or a mailbox.

Plain records and one protocol. Wording is in `prompts/`, how text becomes a plan or a draft in `engineers/reply.py`, keeping
and paying in `engineers/metered_chat.py`. Nothing here talks to anybody.
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
    """The model's context window does not hold the request; the message says what the server said."""


class AnswerInterrupted(Exception):
    """The answer broke off on its way: worth asking once more. `heard` is the part that came, thinking included."""

    def __init__(self, message: str, heard: str = "") -> None:
        super().__init__(message)
        self.heard = heard


class NoAnswer(Unavailable):
    """The request was sent `times` times and no answer came. Whether that is charged for nobody is told."""

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
    """One call. `id` names it in the transcript and the mailbox: the same in each run that comes to it again."""

    role: Role
    about: str                             # the attempt or plan, 16 hexadecimal digits
    ordinal: int                           # 0, 1, ... of this role about this
    messages: tuple[Message, ...]
    schema: type[Reply] | None = None      # None: free text, such as a coder's fenced files

    @property
    def content(self) -> dict[str, Any]:
        """What makes it this request and no other: messages and the form of the answer."""
        spoken = [{"role": message.speaker, "content": message.text} for message in self.messages]
        return {"messages": spoken} | ({"response_format": response_format(self.schema)} if self.schema else {})

    @property
    def digest(self) -> Digest:
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    @property
    def place(self) -> str:
        """Where in a session it is asked: one place has one answer, even when a newer version words the request differently."""
        return f"{self.role}-{self.about}-{self.ordinal}"

    @property
    def id(self) -> str:
        return f"{self.place}-{self.digest[:12]}"


class ChatAnswer(Record):
    """What came back. Token counts are the server's; None where it told none."""

    text: str
    thinking: str = ""
    refusal: str = ""                      # in a field of its own, or a filter's; "" when it answered
    finish: str = "stop"                   # "length": cut at the output limit; "long": broken off here, beyond what is read
    model: str = ""                        # as the server names it
    input_tokens: int | None = None
    cached_tokens: int = 0
    written_tokens: int | None = None      # of the input, written to the provider's cache, which some charge for
    output_tokens: int | None = None


class Chat(Protocol):
    """A chat model. Answers one request at a time per thread; several threads may ask."""

    name: str                              # such as "openai:NAME"
    notes: list[str]                       # what it fell back from, as sentences

    def answer(self, ask: ChatRequest, *, limit: int | None) -> ChatAnswer:
        """`limit`: most tokens to write, thinking included. Raises `Unavailable`, `ReplyPending`,
        `ContextWindowExceeded` or `AnswerInterrupted`."""
        ...


def response_format(schema: type[Reply]) -> dict[str, Any]:
    """OpenAI's strict form of a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.__name__, "strict": True, "schema": schema.model_json_schema()},
    }
