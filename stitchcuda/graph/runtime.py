"""How nodes come by their context, and what happens around every node: events, money, time, and waiting for a reply.

`session.py` hands a context in. Started without one (`build_graph().invoke({"reference": …})`, the LangGraph server), the first
node makes a session from the input and later nodes find it again by name, in another process too. Holds no rule and no wiring.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

from stitchcuda.errors import BadInput, Pending, ReplyPending
from stitchcuda.graph.opening import open_context, open_hands, open_record
from stitchcuda.memory import open_memory
from stitchcuda.nodes.context import Context
from stitchcuda.state import Policy, Precision, Role, State, Usage
from stitchcuda.workspace import SessionLock, Workspace


class Asked(TypedDict, total=False):
    """What a session can be asked for beside its reference; see `state.Settings`."""

    device: Annotated[str, Field(description="auto, cuda or sim", default="auto")]
    model: Annotated[str, Field(description="builtin, openai:NAME, azure:, anthropic:, google: or mailbox:", default="builtin")]
    roles: Annotated[dict[Role, tuple[str, ...]], Field(description="other models for a role", default={})]
    options: Annotated[dict[str, bool | int | float | str], Field(description="for the chat model", default={})]
    from_scratch: Annotated[bool, Field(description="a chat model starts from nothing", default=False)]
    candidates: Annotated[int, Field(description="drafts a step", default=1)]
    base_url: Annotated[str | None, Field(description="an OpenAI-compatible endpoint", default=None)]
    goal: Annotated[float | None, Field(description="stop once this speed-up is reached", default=None)]
    policy: Annotated[Policy, Field(default="stitched")]
    precision: Annotated[Precision, Field(default="reference")]
    budget_usd: Annotated[float, Field(default=5.0)]
    max_tokens: Annotated[int | None, Field(default=None)]
    max_gpu_s: Annotated[float | None, Field(default=None)]
    max_attempts: Annotated[int, Field(default=30)]
    max_minutes: Annotated[float | None, Field(default=None)]


class Request(Asked, total=False):
    """The graph's input. Only `reference` is needed."""

    reference: Annotated[str, Field(description="path of a KernelBench-style file", examples=["examples/transformer_block.py"])]
    session: Annotated[str, Field(description="the session's name; numbered after the reference by default")]


class Opening(State, Asked, total=False):
    """What the first node reads: what was asked for, and the state where a session goes on."""


class Node(Protocol):
    """A node as LangGraph wants it; it goes by the parameter's name."""

    def __call__(self, state: State, runtime: Runtime[Given]) -> State: ...


@dataclass
class Given:
    """The run's context as LangGraph carries it; empty where the graph makes its own."""

    context: Annotated[Any, SkipJsonSchema()] = None


def node(name: str, act: Callable[[State, Context], State]) -> Node:
    """`act` as a LangGraph node."""

    def run(state: State, runtime: Runtime[Given]) -> State:
        state = with_tuples(state)
        given = runtime.context.context if runtime.context else None
        context = given or _own(state)
        try:
            update = _act(name, act, state, context)
        except BaseException:
            if not given:
                _close(context.name)
            raise
        if name == "report" and not given:
            _close(context.name)
        return update

    run.__name__ = name
    run.__doc__ = act.__doc__ or act.__module__
    return run


def _act(name: str, act: Callable[[State, Context], State], state: State, context: Context) -> State:
    """The node itself, announced, timed and paid for."""
    work = state.get("work")
    facts = {"node": name, "task": work.task.title if work else None}
    context.emit("node", phase="start", **facts)
    started = time.monotonic()
    if context.engineers.budget:
        context.engineers.budget.note(state.get("usage", Usage()))
    try:
        update = act(state, context)
    except Pending as pending:
        # The node reruns from its start on resume and asks the engineer again.
        interrupt(waiting_for(pending, context.workspace.root))
        raise
    seconds = time.monotonic() - started
    on_gpu = context.settings.target == "cuda" and name in _ON_GPU
    usage = context.spent(state.get("usage", Usage()), seconds if on_gpu else 0.0)
    context.emit("node", phase="end", seconds=seconds, usage=usage, **facts)
    return update if name in _SIDE_BY_SIDE else update | {"usage": usage}


def waiting_for(pending: Pending, root: Path) -> dict[str, str]:
    """What a parked session waits for, as its checkpoint keeps it: a path inside the workspace is relative to it."""
    path = pending.request if isinstance(pending, ReplyPending) else ""
    inside = bool(path) and Path(path).is_relative_to(root)
    return {"waiting_for": str(pending)} if not inside else {"request": str(Path(path).relative_to(root))}


def told(value: Mapping[str, str], root: Path) -> str:
    """The same for people, wherever the workspace is now."""
    return value.get("waiting_for") or str(ReplyPending(str(root / value["request"])))


def with_tuples(state: Any) -> State:
    """The state with its sequences as the tuples that `State` names: msgpack gives lists back."""
    typed = {key: tuple(value) if isinstance(value, list) else value for key, value in state.items()}
    return cast(State, typed)


_SETTINGS = tuple(key for key in Asked.__annotations__ if key != "device")
_SIDE_BY_SIDE = {"coder"}                  # several at once: what they spent is counted by the node after them
_ON_GPU = {"baseline", "check", "nsys_profile", "ncu_profile", "report"}
_guard = threading.Lock()
_open: dict[str, tuple[Context, ExitStack]] = {}


def _own(state: Any) -> Context:
    """The context of a run that was started without one. One per session and process; closed after the report or at exit."""
    with _guard:
        name = state.get("session")
        if name in _open:
            return _open[name][0]
        home = Workspace()
        if state.get("baseline"):
            record = home.record(name)
        elif state.get("reference"):
            asked = {key: state[key] for key in _SETTINGS if key in state}
            record = open_record(home, state["reference"], None, name=name, device=state.get("device", "auto"), settings=asked)
        else:
            raise BadInput('there is nothing to speed up: give the graph an input such as {"reference": "model.py"}')
        stack = ExitStack()
        with stack:
            stack.enter_context(SessionLock(home.folder(record.name)))
            hands = stack.enter_context(closing(open_hands(home, record)))
            memory = stack.enter_context(open_memory(home.root))
            context = open_context(home, record, hands, memory=memory)
            _open[record.name] = (context, stack.pop_all())
        return context


def _close(name: str) -> None:
    with _guard:
        if name in _open:
            _open.pop(name)[1].close()


@atexit.register
def _close_all() -> None:
    for name in list(_open):
        _close(name)
