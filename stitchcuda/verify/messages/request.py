"""What one process asks another, and what it answers: frozen dataclasses, whose fields travel as a JSON object.

`class CallProgram(Request[Called])` says that the record `Called` answers the record `CallProgram`. The judge makes records of
what it receives with `read`, which checks every field, since a program's worker may send anything. A program's worker makes
them without a check: it trusts the judge, and a program may have replaced what would check. Nothing here sends anything.
Where to look next: `verify/messages/wire.py` (sends them), `verify/processes/worker.py` (asks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_args

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

Answer_co = TypeVar("Answer_co", covariant=True)
_Read = TypeVar("_Read")
_Item = TypeVar("_Item")
_MOST_NAMED = 200                          # characters of a field's path, and of what is wrong with it
_MOST_KEYS = 65_536                        # of a dict that an untrusted process reports

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""A whole number that an untrusted process reports; True is none."""


# pydantic makes an error of each wrong item, and a message has room for tens of millions of them.
ReportedList = Annotated[list[_Item], Field(fail_fast=True)]
"""A list that an untrusted process reports. The first wrong item ends its reading."""


def _check_keys(value: object) -> object:
    if isinstance(value, dict) and len(value) > _MOST_KEYS:
        raise ValueError(f"{len(value)} keys where {_MOST_KEYS} are the most")
    return value


ReportedDict = Annotated[dict[str, _Item], BeforeValidator(_check_keys)]
"""Values by name that an untrusted process reports."""


FailureKind = Literal["error", "crash", "timeout", "memory", "refused", "unwatched", "bad_input", "state", "tampering"]
"""Why a request failed. "bad_input": the user's reference; "refused", "unwatched": the program cannot be judged here; "state":
it lacks some of the reference's parameters."""


class Request(Generic[Answer_co]):
    """The base of all requests. A subclass is a frozen dataclass; its type argument is the record of its answer."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


class Answer:
    """The base of all answers. A subclass is a frozen dataclass."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


@dataclass(frozen=True)
class Done(Answer):
    """The answer to a request that only has to be carried out."""


@dataclass(frozen=True)
class Failed(Answer):
    """The answer to a request that could not be carried out.

    `kind`: see `verify/processes/worker.py`. `missing`, `held`: see `WorkerFailed` there.
    """

    error: str                             # a sentence, or a traceback where it is our defect
    kind: FailureKind = "error"
    missing: ReportedList[str] | None = None
    held: Count = 0


def answer_type(request: Request[_Read]) -> type[_Read]:
    """Returns the record that answers a request: the type argument of its last base."""
    *_, base = type(request).__orig_bases__  # type: ignore[attr-defined]
    (answer,) = get_args(base)
    found: type[_Read] = answer
    return found


def read(kind: type[_Read], fields: Mapping[str, Any]) -> _Read:
    """Makes a record of received fields. Raises `pydantic.ValidationError` where one is missing, unknown or of another type."""
    made: _Read = _adapter(cast(Any, kind)).validate_python(fields)
    return made


def plain(record: Any) -> dict[str, Any]:
    """Returns a record's fields as JSON values, for a record without a `TensorBlock`. The inverse of `read`."""
    fields: dict[str, Any] = _adapter(cast(Any, type(record))).dump_python(record, mode="json")
    return fields


def explain_mismatch(error: ValidationError) -> str:
    """Returns the path of the first wrong field and what is wrong with it."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))[:_MOST_NAMED]}: {first['msg'][:_MOST_NAMED]}"


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
