"""Reads from the newest checkpoint where a session stands, without importing the graph.

What tasks of the step under way have handed in already counts as done. Who goes on from there is `sessions/running.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import TypeAdapter

from stitchcuda.errors import ReplyPending
from stitchcuda.state import State, merge_drafts

_ERROR, _INTERRUPT = "__error__", "__interrupt__"


class Interrupted(NamedTuple):
    """What an interrupted node waits for, as the node put it."""

    id: str
    value: Mapping[str, Any]


class SessionSnapshot(NamedTuple):
    """A session's state; empty before the first checkpoint."""

    state: State
    interrupts: tuple[Interrupted, ...] = ()
    error: str = ""                        # of a task that failed

    def waits_for(self, root: Path) -> str:
        """For people; "" where nothing is waited for."""
        return " and ".join(dict.fromkeys(told(interrupt.value, root) for interrupt in self.interrupts))


def standing(saver: BaseCheckpointSaver[Any], session: str, checkpoint: str = "") -> SessionSnapshot:
    """Where the session stands by its newest checkpoint, or stood at the one that is named."""
    place: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
    if checkpoint:
        place["configurable"]["checkpoint_id"] = checkpoint
    found = saver.get_tuple(place)
    if found is None:
        return SessionSnapshot(with_tuples({}))
    values = {name: value for name, value in found.checkpoint["channel_values"].items() if name in State.__annotations__}
    tasks: dict[str, dict[str, Any]] = {}
    for task, channel, value in found.pending_writes or ():
        tasks.setdefault(task, {})[channel] = value
    interrupts: list[Interrupted] = []
    error = ""
    for writes in tasks.values():
        handed = {name: value for name, value in writes.items() if name in State.__annotations__}
        if handed:
            if "drafts" in handed:
                drafts = handed["drafts"]
                handed["drafts"] = merge_drafts(tuple(values.get("drafts") or ()), None if drafts is None else tuple(drafts))
            values |= handed
            continue
        error = error or str(writes.get(_ERROR, ""))  # of this run or an earlier one: see `Session.status`
        if _INTERRUPT in writes:
            put = writes[_INTERRUPT]
            waiting = put if isinstance(put, list | tuple) else [put]
            interrupts += [Interrupted(interrupt.id, interrupt.value) for interrupt in waiting]
    return SessionSnapshot(with_tuples(values), tuple(interrupts), error)


def with_tuples(state: Any) -> State:
    """The state with the tuples and records that `State` names: msgpack gives lists back, and a server that reads its own types
    only, or a person who edits the state in Studio, gives objects."""
    return cast(State, {key: _named(key, value) for key, value in state.items()})


def _named(key: str, value: Any) -> Any:
    several = isinstance(value, list | tuple)
    if isinstance(value, dict) or (several and any(isinstance(item, dict) for item in value)):
        kinds = _kinds()
        return kinds[key].validate_python(value) if key in kinds else value
    return tuple(value) if several else value


@cache
def _kinds() -> dict[str, TypeAdapter[Any]]:
    return {key: TypeAdapter(kind) for key, kind in get_type_hints(State).items()}


def told(value: Mapping[str, str], root: Path) -> str:
    """What a parked session waits for, for people, wherever the workspace is now."""
    return value.get("waiting_for") or str(ReplyPending(str(root / value["request"])))
