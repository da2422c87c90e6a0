"""Parses `--model` and `--model-option`, and chooses the model where none is named.

It asks no model and imports no provider; what becomes of the names is in `engineers/selection.py`.
"""

from __future__ import annotations

import json
import os
from typing import cast, get_args

from stitchcuda.errors import BadInput
from stitchcuda.state import Role

DEFAULT_CHAT_MODEL = "gpt-5"
"""The chat model when OPENAI_API_KEY is set and neither --model nor STITCHCUDA_MODEL says which."""


def models_by_role(given: list[str]) -> tuple[str | None, dict[Role, list[str]]]:
    """`--model` as it was given: the one for all roles, and ROLE=MODEL for some; a coder may have several."""
    everybody: str | None = None
    roles: dict[Role, list[str]] = {}
    for text in given:
        role, separator, model = text.partition("=")
        if separator and role in get_args(Role):
            roles.setdefault(cast(Role, role), []).append(model)
        elif everybody is not None:
            raise BadInput(f"--model was given twice ({everybody} and {text}): name a role, as in --model coder={text}")
        else:
            everybody = text
    if roles and everybody is None:
        raise BadInput("--model names roles only: add --model NAME for the others")
    return everybody, roles


def model_options(given: list[str]) -> dict[str, bool | int | float | str]:
    """KEY=VALUE with the value read as JSON where it is JSON, else as text."""
    options: dict[str, bool | int | float | str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key.isidentifier():
            raise BadInput(f"--model-option {text!r} is not KEY=VALUE: write it like temperature=0.7")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        options[key] = read if isinstance(read, bool | int | float | str) else value
    return options


def choose_model(model: str | None, base_url: str | None) -> tuple[str, str]:
    """The engineer to use and the announcement of it. A chat model is chosen without being asked for only with a key."""
    key = bool(os.environ.get("OPENAI_API_KEY", "").strip())
    named = os.environ.get("STITCHCUDA_MODEL", "").strip().removeprefix("openai:")
    if model is not None:
        return model, model if model != "builtin" else "built-in (as asked)"
    if base_url is not None and not named:
        raise BadInput(f"--base-url {base_url} needs to be told which model to use there: add --model openai:NAME")
    if not key and base_url is None:
        return "builtin", "built-in (no OPENAI_API_KEY)"
    chosen = f"openai:{named or DEFAULT_CHAT_MODEL}"
    reason = "OPENAI_API_KEY is set" if base_url is None else f"at {base_url}"
    return chosen, (
        f"{chosen} ({reason}: it plans, writes and reviews, and costs money, at most --budget-usd; --model builtin is free)"
    )
