"""Reads one JSON object out of a model's text, also with comments and trailing commas in it.

Comments (`// …`, `/* … */`, `# …`) and commas before a closing bracket are overwritten by spaces outside of strings; strings
may hold raw newlines. Nothing else is mended: what is not an object then, gives a key twice or stands there in two versions
raises `ValueError` with a sentence for the model. It knows no field's meaning.

Where to look next: `engineers/reply.py` (plans and reviews), `engineers/draft_files.py` (a draft's program.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

STARTS = 100  # opening braces at which an object is tried
MENDED = 4    # of those, how many are tried again without comments and trailing commas
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|\#[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_OPENS_OBJECT = re.compile(r'\{\s*["}/#]')


def json_object(text: str, fields: Collection[str] = ()) -> dict[str, Any]:
    """Returns the JSON object in `text` that has any of `fields`; the first object of all where none has.

    Raises `ValueError` where there is none, where two that have fields differ, and where a field's name stands in a part of the
    text that is no valid JSON: part of the reply would be lost.
    """
    if not text.strip():
        raise ValueError("the reply is empty")
    found, rest, problem = _objects(text)
    known = [value for value in found if any(field in value for field in fields)]
    if any(value != known[0] for value in known[1:]):
        raise ValueError("the reply holds two different JSON objects with these fields: write the one that counts")
    if problem and (not known or any(f'"{field}"' in rest for field in fields)):
        raise ValueError(problem)
    if not found:
        raise ValueError("there is no JSON object in the reply")
    return (known or found)[0]


def _objects(text: str) -> tuple[list[dict[str, Any]], str, str]:
    """Returns the objects in `text` that stand in no other, the text without them, and the first error met ("" for none)."""
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=_without_repeats)
    found: list[dict[str, Any]] = []
    rest, done, problem, mended = "", 0, "", 0
    start = text.find("{")
    for _ in range(STARTS):
        if start < 0:
            break
        end = start + 1
        tries = [text]
        if mended < MENDED and _OPENS_OBJECT.match(text, start):
            tries.append("")
        for source in tries:
            try:
                if not source:
                    mended += 1
                    source = " " * start + without_comments(text[start:])
                value, end = decoder.raw_decode(source, start)
            except (ValueError, RecursionError) as error:
                failed = f"the reply is not valid JSON: {error}"
            else:
                found.append(value)
                rest, done = rest + text[done:start], end
                break
        else:
            problem = problem or failed
        start = text.find("{", end)
    return found, rest + text[done:], problem


def without_comments(text: str) -> str:
    """Returns JSON text of the same length with comments and trailing commas overwritten by spaces. It must begin outside of a
    string."""
    for pattern in (_COMMENTS, _COMMAS):
        text = pattern.sub(lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), text)
    return text


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made and made[key] != value:
            raise ValueError(f"the key {key!r} is given twice")
        made[key] = value
    return made
