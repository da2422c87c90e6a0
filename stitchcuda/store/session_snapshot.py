"""Reads a session's state from its newest checkpoint, without importing the graph.

Writes of the step under way that have been stored already count as part of the state. Nothing is changed.

Where to look next: `sessions/running.py` (goes on from there), `store/checkpoints.py` (the checkpoints), `state.py` (`State`).
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
    """An interrupt of LangGraph: a node waits for an answer. `value` is what the node passed to `interrupt`."""

    id: str
    value: Mapping[str, Any]


class SessionSnapshot(NamedTuple):
    """A session's state at a checkpoint; empty before the first."""

    state: State
    interrupts: tuple[Interrupted, ...] = ()
    error: str = ""                        # message of a node that failed in the step under way

    def waits_for(self, root: Path) -> str:
        """What the session waits for, in words for people; "" if it waits for nothing. `root`: the workspace's folder now."""
        values = [interrupt.value for interrupt in self.interrupts]
        waits = (value.get("waiting_for") or str(ReplyPending(str(root / value["request"]))) for value in values)
        return " and ".join(dict.fromkeys(waits))


def read_snapshot(saver: BaseCheckpointSaver[Any], session: str, checkpoint: str = "") -> SessionSnapshot:
    """The session's state at its newest checkpoint, or at the one with this id. Raises Damaged if that cannot be read."""
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
        written = {name: value for name, value in writes.items() if name in State.__annotations__}
        if written:
            if "drafts" in written:
                drafts = written["drafts"]
                written["drafts"] = merge_drafts(tuple(values.get("drafts") or ()), None if drafts is None else tuple(drafts))
            values |= written
            continue
        failed = str(writes.get(_ERROR, ""))  # of this run or an earlier one: see `Session.status`
        error = error or ("" if tells_of_interrupt(failed) else failed)
        if _INTERRUPT in writes:
            put = writes[_INTERRUPT]
            waiting = put if isinstance(put, list | tuple) else [put]
            interrupts += [Interrupted(interrupt.id, interrupt.value) for interrupt in waiting]
    return SessionSnapshot(with_tuples(values), tuple(interrupts), error)


def with_tuples(state: Any) -> State:
    """The state with the tuples and records that `State` declares. msgpack gives lists for tuples; LangGraph's server, and a
    person who edits the state in Studio, give plain objects for records."""
    return cast(State, {key: _as_declared(key, value) for key, value in state.items()})


def _as_declared(key: str, value: Any) -> Any:
    several = isinstance(value, list | tuple)
    if isinstance(value, dict) or (several and any(isinstance(item, dict) for item in value)):
        kinds = _kinds()
        return kinds[key].validate_python(value) if key in kinds else value
    return tuple(value) if several else value


@cache
def _kinds() -> dict[str, TypeAdapter[Any]]:
    return {key: TypeAdapter(kind) for key, kind in get_type_hints(State).items()}


def tells_of_interrupt(failure: str) -> bool:
    """Whether a failure was a KeyboardInterrupt: pydantic makes another error of one that comes while it calls a serializer."""
    return "KeyboardInterrupt" in failure
