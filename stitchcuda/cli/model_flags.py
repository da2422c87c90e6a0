"""Parses `--model` and `--model-option`, and chooses the model if none is named.

Without `--model` a chat model is chosen only if OPENAI_API_KEY or `--base-url` is set. It calls no model and imports no
provider.

Where to look next: `engineers/selection.py` (what is made of the names), `cli/app.py` (the options).
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
    """Splits the values of `--model` into NAME for all roles, and ROLE=NAME for single ones; a role may have several.

    Raises BadInput for two names without a role, and for roles without such a name.
    """
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
    """Parses KEY=VALUE options; a value is read as JSON if it is a boolean, number or string of JSON, else as text."""
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
    """The model to use, and a text that says which and why. Raises BadInput for `base_url` without any model's name."""
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
