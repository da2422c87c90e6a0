"""A chat model that is not there any more: it stands where one stood whose replies are in the transcript, and asks nobody."""

from __future__ import annotations

from stitchcuda.engineers.chat import ChatAnswer, ChatRequest
from stitchcuda.errors import Unavailable


class Unrecorded(Unavailable):
    """The transcript has no reply to what is asked."""


class RecordedChat:
    """A chat model by the name that it had; see `chat.Chat`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []

    def answer(self, ask: ChatRequest, *, limit: int | None) -> ChatAnswer:
        """Raises `Unrecorded`: whatever was answered has been found before."""
        raise Unrecorded(f"the record has no reply of {self.name} as {ask.role} at {ask.about}, question {ask.ordinal + 1}")
