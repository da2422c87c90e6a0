"""Defines the request of an agent's turn: a conversation with calls of tools, and the tools that may be called.

It is paid for, limited and stored like every request; the recorded body has messages and tools in OpenAI's form. The reply's
whole message, with its calls, is in `ChatAnswer.message`. Only engineers that speak to a provider can take such a request, no
mailbox.

Where to look next: `engineers/agents/metered_model.py` (makes these), `engineers/endpoint.py` (sends them).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages

from stitchcuda.engineers.chat import ChatRequest, Message
from stitchcuda.state import Role


@dataclass(frozen=True)
class ToolRequest(ChatRequest):
    """`messages` are texts whose tokens can be counted; `conversation` and `tools` (OpenAI's form) are what is sent."""

    conversation: tuple[BaseMessage, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()

    @classmethod
    def from_conversation(
        cls, role: Role, about: str, ordinal: int, conversation: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]
    ) -> ToolRequest:
        """Returns the request with the texts that a server counts: each message with its calls, and the tools."""
        spoken = _spoken(conversation)
        texts = [Message(str(turn["role"]), json.dumps(turn, ensure_ascii=False)) for turn in spoken]
        texts.append(Message("tools", json.dumps(list(tools), ensure_ascii=False)))
        return cls(role, about, ordinal, tuple(texts), None, tuple(conversation), tuple(tools))

    @property
    def content(self) -> dict[str, Any]:
        return {"messages": _spoken(self.conversation), "tools": list(self.tools)}


def _spoken(conversation: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    found = convert_to_openai_messages(list(conversation))
    assert isinstance(found, list)
    return found
