"""Provides contexts for runs started without one: `build_graph().invoke({"reference": …})`, or a LangGraph server.

The first node makes a session from the input; later nodes find it by the name in the state, even in another process. There is
one context per session and process, used by one node at a time; only a step's candidates use it side by side. It is closed, and
the session's lock released, when no node uses it any more after a report, an interrupt or an error, and at exit.

Where to look next: `graph/opening.py` (makes sessions and contexts), `graph/runtime.py` (uses this around every node).
"""

from __future__ import annotations

import atexit
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import to_json

from stitchcuda.errors import BadInput, StitchError
from stitchcuda.graph.graph_input import GraphInput, RequestedSettings
from stitchcuda.graph.opening import open_context, open_record, open_tools
from stitchcuda.memory import open_memory
from stitchcuda.nodes.context import Context, SessionTools
from stitchcuda.state import State
from stitchcuda.store import SessionRecord, Workspace

FIRST, LAST = "baseline", "report"
SIDE_BY_SIDE = {"coder"}
_SETTINGS = tuple(key for key in RequestedSettings.__annotations__ if key != "device")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass
class BorrowedContext:
    """A context that this process holds, with the session's lock. `turn` is held by the node that uses it."""

    context: Context
    resources: ExitStack
    users: int = 0
    over: bool = False                     # to be closed when the last node has finished
    turn: threading.Lock = field(default_factory=threading.Lock)


_guard = threading.Lock()
_open: dict[str, BorrowedContext] = {}


@contextmanager
def borrow_context(node: str, state: State) -> Iterator[Context]:
    """Yields the context of the state's session for one run of a node. A session that fails before its baseline is deleted, so
    that its name is free again."""
    found = _borrow(state)
    over, deleted = node == LAST, False
    try:
        with nullcontext() if node in SIDE_BY_SIDE else found.turn:
            yield found.context
    except BaseException as error:
        over, deleted = True, node == FIRST and not state.get("baseline") and isinstance(error, StitchError)
        raise
    finally:
        with _guard:
            found.users -= 1
            found.over = found.over or over
            if found.over and not found.users and _open.get(found.context.name) is found:
                del _open[found.context.name]
                found.resources.close()
        if deleted:
            with closing(found.context.workspace) as home:
                home.discard(found.context.name)


def record_references(context: Context, update: State) -> None:
    """Records in the session's transcript which stored artefacts an update refers to. A server keeps its checkpoints elsewhere,
    so this is how the workspace's clean-up knows that they are in use."""
    from stitchcuda.engineers.metered_chat import Transcript  # slow to import, and needed on servers only

    digests = "\n".join(sorted(set(_DIGEST.findall(to_json(update).decode()))))
    if digests:
        name = f"refers-{hashlib.sha256(digests.encode()).hexdigest()[:16]}"
        Transcript(context.workspace.store, context.name).record_once(name, lambda: digests)


def reset_for_new_reference(state: State) -> State:
    """Returns the first node's state, reduced to its input if it asks for a new session in a thread that has had one. It does
    if `reference` is the path of a file: after the baseline the state holds a digest there."""
    reference = state.get("reference")
    if not state.get("baseline") or not reference or _DIGEST.fullmatch(reference):
        return state
    fresh = {key: value for key, value in state.items() if key in GraphInput.__annotations__}
    with closing(Workspace()) as home:
        if state.get("session") in home.store.names():
            del fresh["session"]           # left by the earlier session
    return cast(State, fresh)


def _borrow(state: State) -> BorrowedContext:
    with _guard:
        name = state.get("session")
        found = _open.get(name) if name and state.get("baseline") else None
        if found is None:
            found = _open_session(state)
            _open[found.context.name] = found
        found.users += 1
        return found


def _open_session(state: State) -> BorrowedContext:
    known = bool(state.get("baseline"))
    with ExitStack() as stack:
        home = stack.enter_context(closing(Workspace()))
        record = _find_record(home, state["session"]) if known else _new_record(home, dict(state))
        try:
            stack.enter_context(home.store.owning(record.name))
            tools = stack.enter_context(closing(open_tools(home, record)))
            if known:
                _check_device(record.name, state, tools)
            memory = stack.enter_context(open_memory(home.root))
            context = open_context(home, record, tools, memory=memory)
        except StitchError:
            if not known:
                stack.close()              # releases the session before it is deleted
                home.discard(record.name)
            raise
        return BorrowedContext(context, stack.pop_all())


def _new_record(home: Workspace, asked: dict[str, Any]) -> SessionRecord:
    if not asked.get("reference"):
        raise BadInput('there is nothing to speed up: give the graph an input such as {"reference": "model.py"}')
    settings = {key: asked[key] for key in _SETTINGS if key in asked}
    device = asked.get("device", "auto")
    return open_record(home, asked["reference"], None, name=asked.get("session"), device=device, settings=settings)


def _find_record(home: Workspace, name: str) -> SessionRecord:
    if name not in home.store.names():
        raise BadInput(
            f"this thread goes on with session {name!r}, which is not in {home.where}: start the server with the "
            "STITCHCUDA_WORKSPACE or STITCHCUDA_CHECKPOINT that it was started with, or start another thread"
        )
    return home.record(name)


def _check_device(name: str, state: State, tools: SessionTools) -> None:
    baseline = state["baseline"]
    if baseline is not None and baseline.device.key != tools.device().key:
        raise BadInput(
            f"session {name!r} was begun on {baseline.device.key}, and {tools.device().key} is here: figures of two devices "
            "are not compared, so go on where it was begun, or give the thread its reference again for another session"
        )


@atexit.register
def _close_all() -> None:
    with _guard:
        while _open:
            _open.popitem()[1].resources.close()
