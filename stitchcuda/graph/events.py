"""Writes a session's events to LangGraph's custom stream as plain JSON: what `stream_mode="custom"` shows.

Every event has `kind` and `session`. `progress` has `node`, `task` and `phase`: start, step (`text`), reply (`role`, `chunks`
so far) or end (`seconds`, `usage`); `plan` has `version`, `tasks`, `summary` and `engineer`; `attempt` and `best` have
`attempt` and `title`; `call` has `call`; `note` has `text`. docs/service.md describes them.

Where to look next: `nodes/context.py` (the nodes' own events, from which these are made), `graph/opening.py` (publishes them).
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
    """The stream that a node's events are written to, with the names of node and task."""

    write: Callable[[Any], None]
    node: str
    task: str | None


_streaming: ContextVar[Streaming | None] = ContextVar("stitchcuda_streaming", default=None)
PROGRESS = {"node": None, "step": "step", "tokens": "reply"}
NOTES = ("note", "twin", "stage", "estimate")


@contextmanager
def stream_events(to: Streaming) -> Iterator[None]:
    """Sends what is published during one run of a node to that run's stream, also while other nodes run in other threads."""
    before = _streaming.set(to)
    try:
        yield
    finally:
        _streaming.reset(before)


def publish(event: Event) -> None:
    """Writes an event to the stream of the running node; does nothing outside of nodes."""
    to = _streaming.get()
    if to is not None:
        to.write(to_stream_json(event, to))


def to_stream_json(event: Event, to: Streaming) -> dict[str, Any]:
    """Returns a node's event in the form of the stream."""
    kind, session = event["kind"], event["session"]
    rest = {key: value for key, value in event.items() if key not in ("kind", "session", "node", "task")}
    if kind in PROGRESS:
        rest = {"node": to.node, "task": to.task, "phase": PROGRESS[kind]} | rest
        kind = "progress"
    elif kind in NOTES:
        kind = "note"
    plain: dict[str, Any] = json.loads(to_json({"kind": kind, "session": session} | rest, inf_nan_mode="strings"))
    return plain
