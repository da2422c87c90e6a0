"""Wraps every node: provides its context, emits events, counts time and usage, and interrupts the run where it has to wait.

Runs of `sessions/session.py` carry a context; a run without one borrows it. A node that raises `Pending` is interrupted and
runs again from its start when the session is resumed.

Where to look next: `graph/borrowed_context.py` (runs without a context), `graph/approval.py` (interrupts), `graph/events.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from langgraph.runtime import Runtime
from pydantic.json_schema import SkipJsonSchema

from stitchcuda.errors import Pending, ReplyPending, StitchError
from stitchcuda.graph.approval import track_answers, wait
from stitchcuda.graph.borrowed_context import FIRST, SIDE_BY_SIDE, borrow_context, record_references, reset_for_new_reference
from stitchcuda.graph.checkpoint_mirror import mirror
from stitchcuda.graph.events import Streaming, stream_events
from stitchcuda.graph.graph_input import check_keys
from stitchcuda.nodes.context import Context
from stitchcuda.state import State, Usage
from stitchcuda.store.session_snapshot import with_tuples


class NodeFunction(Protocol):
    """The signature of a node; LangGraph looks for a parameter named `runtime`."""

    def __call__(self, state: State, runtime: Runtime[RunContext]) -> State: ...


@dataclass
class RunContext:
    """The context as LangGraph carries it through a run; None where the graph makes its own."""

    context: Annotated[Any, SkipJsonSchema()] = None


def node(name: str, act: Callable[[State, Context], State], *, build: Callable[[Any], Any]) -> NodeFunction:
    """Returns `act` as a LangGraph node. `build` makes the whole graph over a saver (`graph/checkpoint_mirror.py`)."""

    def run(state: State, runtime: Runtime[RunContext]) -> State:
        state = with_tuples(state)
        work = state.get("work")
        given = runtime.context.context if runtime.context else None
        with track_answers(), stream_events(Streaming(runtime.stream_writer, name, work.task.title if work else None)):
            if given:
                return _run_node(name, act, state, given)
            try:
                state = reset_for_new_reference(state) if name == FIRST else state
                with borrow_context(name, state) as context:
                    update = _run_node(name, act, state, context)
                    record_references(context, update)
                    mirror(context, name, state | update, build)
                    return update
            except StitchError as error:
                raise _as_runtime_error(error) from error

    run.__name__ = name
    run.__doc__ = act.__doc__ or act.__module__
    return run


def check_input(given: Any) -> Any:
    """Returns the graph's input unchanged. Raises BadInput for a key that the graph does not have."""
    try:
        check_keys(given)
    except StitchError as error:
        raise _as_runtime_error(error) from error
    return given


def _run_node(name: str, act: Callable[[State, Context], State], state: State, context: Context) -> State:
    """Runs the node with events before and after it, and adds time and calls to the usage."""
    work = state.get("work")
    facts = {"node": name, "task": work.task.title if work else None}
    context.emit("node", phase="start", **facts)
    started, context.profiled_s = time.monotonic(), 0.0
    if context.engineers.budget:
        context.engineers.budget.note(state.get("usage", Usage()))
    try:
        update = act(state, context)
    except Pending as pending:
        # On resume the node runs again from its start and finds the reply by itself.
        wait(context.workspace.store, context.name, waiting_for(pending, context.workspace.root))
    seconds = time.monotonic() - started
    gpu_s = (seconds if name in _ON_GPU else context.profiled_s) if context.settings.target == "cuda" else 0.0
    stored = name not in SIDE_BY_SIDE
    usage = context.usage_now(state.get("usage", Usage()), gpu_s, stored)
    context.emit("node", phase="end", seconds=seconds, usage=usage, **facts)
    return update | {"usage": usage} if stored else update


def _as_runtime_error(error: StitchError) -> StitchError:
    """Returns the error as a RuntimeError too: a LangGraph server shows the messages of Python's own errors only."""
    kind = type(error)
    both: type[StitchError] = type(kind.__name__, (kind, RuntimeError), {"__module__": kind.__module__})
    return both(str(error))


def waiting_for(pending: Pending, root: Path) -> dict[str, str]:
    """Returns what a parked session waits for, for its checkpoint; a path inside the workspace is made relative to it."""
    path = pending.request if isinstance(pending, ReplyPending) else ""
    inside = bool(path) and Path(path).is_relative_to(root)
    return {"waiting_for": str(pending)} if not inside else {"request": str(Path(path).relative_to(root))}


_ON_GPU = {"baseline", "check", "nsys_profile", "ncu_profile", "report"}
