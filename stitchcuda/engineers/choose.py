"""Chooses the engineer that `Settings.model` names. It never falls back: what cannot be had is an error."""

from __future__ import annotations

from collections.abc import Callable

from stitchcuda.engineers import Engineer
from stitchcuda.errors import BadInput
from stitchcuda.state import Settings

POSSIBLE = "builtin (no key, no network) or openai:NAME (any OpenAI-compatible endpoint, with --base-url for your own)"


def engineer_for(settings: Settings, *, progress: Callable[[str, int], None] | None = None) -> Engineer:
    """Raises `BadInput` for a model this version does not know and `Unavailable` for a missing key.

    `progress` is called with a role and a count of chunks while a chat model's reply streams in.
    """
    kind, _, name = settings.model.partition(":")
    if settings.model == "builtin":
        from stitchcuda.engineers.builtin import BuiltinEngineer

        return BuiltinEngineer()
    if kind == "openai" and name:
        from stitchcuda.engineers.llm import ChatEngineer

        return ChatEngineer(settings, progress=progress)
    if kind == "mailbox":
        raise BadInput(f"--model {settings.model} is not possible in this version: give {POSSIBLE}.")
    raise BadInput(f"--model {settings.model!r} is not known: give {POSSIBLE}.")
