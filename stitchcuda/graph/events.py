"""A session's events on LangGraph's custom stream, as plain JSON: what `stream_mode="custom"` shows, here and on a server.

Every event has `kind` and `session`. `progress` has `node`, `task` and `phase`: start, step (`text`), reply (`role`, `chunks`
so far) or end (`seconds`, `usage`); `plan` has `version`, `tasks`, `summary` and `engineer`; `attempt` and `best` have
`attempt` and `title`; `call` has `call`; `note` has `text`. docs/service.md says what is in them. It only tells: what happens
is decided in `nodes/`, whose own events (`nodes/context.py`) these are made from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from pydantic_core import to_json

from stitchcuda.nodes.context import Event


class Streaming(NamedTuple):
    """Where a node's events go, and which node it is."""

    write: Callable[[Any], None]
    node: str
    task: str | None


_streaming: ContextVar[Streaming | None] = ContextVar("stitchcuda_streaming", default=None)
PROGRESS = {"node": None, "step": "step", "tokens": "reply"}
NOTES = ("note", "twin", "stage", "estimate")


@contextmanager
def stream_events(to: Streaming) -> Iterator[None]:
    """For one run of a node: what it publishes goes to this run's stream, also while others run in other threads."""
    before = _streaming.set(to)
    try:
        yield
    finally:
        _streaming.reset(before)


def publish(event: Event) -> None:
    """Writes an event to the stream of the node at work; outside of nodes there is none."""
    to = _streaming.get()
    if to is not None:
        to.write(to_stream_json(event, to))


def to_stream_json(event: Event, to: Streaming) -> dict[str, Any]:
    """The event as the stream has it."""
    kind, session = event["kind"], event["session"]
    rest = {key: value for key, value in event.items() if key not in ("kind", "session", "node", "task")}
    if kind in PROGRESS:
        rest = {"node": to.node, "task": to.task, "phase": PROGRESS[kind]} | rest
        kind = "progress"
    elif kind in NOTES:
        kind = "note"
    plain: dict[str, Any] = json.loads(to_json({"kind": kind, "session": session} | rest, inf_nan_mode="strings"))
    return plain
