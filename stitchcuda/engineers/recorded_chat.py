"""Stands in for a chat model in a replay: every reply has to be in the transcript, so any call is an error.

Where to look next: `engineers/metered_chat.py` (finds recorded replies first), `sessions/replay.py` (replays sessions).
"""

from __future__ import annotations

from stitchcuda.engineers.chat import ChatAnswer, ChatRequest
from stitchcuda.errors import Unavailable


class Unrecorded(Unavailable):
    """The transcript has no reply to a request, or no answer to a question."""


class RecordedChat:
    """Implements `Chat` (`engineers/chat.py`) under the name of the model that was recorded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        """Always raises `Unrecorded`: a recorded reply would have been found before this call."""
        where = f"{request.role} at {request.about}, question {request.ordinal + 1}"
        raise Unrecorded(f"the record has no reply of {self.name} as {where}")
