"""Defines a chat model's replies in JSON (plan, review) and parses them from its text; thinking text is removed first.

The object is searched for in the text where the server does not enforce the schema. What cannot be read raises `Malformed`.
Drafts are no JSON, since models write code in JSON strings badly: `engineers/draft_reply.py`.

Where to look next: `engineers/loose_json.py` (finds the object), `engineers/chat_engineer.py` (uses replies, asks for repairs),
`engineers/prompts/` (asks for these forms).
"""

from __future__ import annotations

import json
import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from stitchcuda.engineers.loose_json import json_object
from stitchcuda.state import Route

THINKING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.DOTALL)
THINKING_TAIL = re.compile(r"\A(?!\s*[{`]).*?</(?:think|thinking|reasoning|thought)>", re.DOTALL)


class Malformed(ValueError):
    """The text is not a reply of the required form. The message is shown to the model, which may repair its reply; `again` says
    what it is to answer now."""

    def __init__(self, message: str, again: str = "Reply again, complete and in the required form.") -> None:
        super().__init__(message)
        self.again = again


def _require_all(schema: dict[str, Any]) -> None:
    """Makes all fields of a schema required, as OpenAI's strict schemas demand. One with a default may still be missing."""
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        field.pop("default", None)


class Reply(BaseModel):
    """Base of the JSON replies. A schema requires all fields, and no others are allowed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_require_all)

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


class PlannedStructure(Reply):
    name: str
    strategy: str
    predicted_ms: float


class PlannedTask(Reply):
    name: str
    regions: list[str]  # ids of the regions that it replaces together; none for a host-side change
    title: str
    predicted_ms: float
    why: str
    strategy: str
    structures: list[PlannedStructure] = []  # two or three that compete, or none


class PlanReply(Reply):
    summary: str
    host: str  # how the host side should look in the end
    tasks: list[PlannedTask]


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
