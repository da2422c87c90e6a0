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

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from stitchcuda.engineers.loose_json import json_object
from stitchcuda.state import Route

NOTHING = ("", "none", "no", "n/a", "empty")  # what models write where nothing is to be written
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
    settled: list[int] = []  # numbers of the open suggestions that are closed now
    read: list[str] = []  # files, or lines of them, that it has to see before it can answer

    @model_validator(mode="before")
    @classmethod
    def _without_defect(cls, reply: Any) -> Any:
        """Replies that were recorded before `defect` was asked for have none."""
        return {"defect": ""} | reply if isinstance(reply, dict) else reply

    @field_validator("settled", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> list[int]:
        """Takes the whole numbers in whatever was written: [1, 3], "1, 3", ["#1"], [{"number": 3}], null."""
        return [int(number) for number in re.findall(r"(?<![\d.])\d{1,4}(?![\d])", json.dumps(value))]

    @field_validator("read", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> list[str]:
        """Takes one text for a list of one, and nothing for an empty list."""
        given = value if isinstance(value, list) else [value]
        return [line for line in given if line and str(line).strip().lower() not in NOTHING]


def without_thinking(text: str) -> str:
    """Removes leading <think>…</think>, also if it is cut off or the server has removed its opening tag."""
    shorter = THINKING.sub("", text, count=1)
    if shorter == text:
        shorter = THINKING_TAIL.sub("", text, count=1)
    return shorter.strip()
