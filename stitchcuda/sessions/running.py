"""Runs a session: locks it, repairs damage, and drives the graph until it ends or waits.

It imports the graph and all that nodes need, so it is imported only when something runs.

Where to look next: `sessions/session.py` (what a session is, and how it is read), `sessions/repair.py`, `graph/graph.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START
from langgraph.types import Command

from stitchcuda.engineers import Engineer
from stitchcuda.engineers.diagnosis import describe_evidence
from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import BadInput, SessionBusy, StitchError
from stitchcuda.graph.approval import Question, lay_out, questions, resume_command
from stitchcuda.graph.graph import Graph, build_graph, recursion_limit, thread
from stitchcuda.graph.graph_input import GraphInput
from stitchcuda.graph.opening import open_context, open_tools
from stitchcuda.graph.runtime import RunContext
from stitchcuda.memory import open_memory
from stitchcuda.nodes.context import Context, SessionTools
from stitchcuda.nodes.final_check import GIVEN_UP
from stitchcuda.nodes.remote_tools import ELSEWHERE, RemoteTools
from stitchcuda.sessions.outcome import is_accepted
from stitchcuda.sessions.repair import repair
from stitchcuda.state import Baseline, Plan, State, Usage
from stitchcuda.store import SessionRecord, Workspace
from stitchcuda.store.checkpoints import open_checkpoints
from stitchcuda.store.serializer import disk_trouble
from stitchcuda.store.session_snapshot import read_snapshot, tells_of_interrupt


def run(
    home: Workspace, record: SessionRecord, waiting: Sequence[Question], *, device: str | None,
    engineer: Engineer | Engineers | None, tools: SessionTools | None, on_event: Callable[[dict[str, Any]], None] | None,
    answer: Any,
) -> None:  # fmt: skip
    """Runs a session (see `Session.run`). `waiting`: the questions that `answer` may be to."""
    command = resume_command(waiting, answer) if answer is not None else None
    name = record.name
    with ExitStack() as stack:
        try:
            stack.enter_context(home.store.owning(name))
            home.store.set_failure(name, None)
            home.prepared(record)
            repairs = repair(home, record)
            saver = stack.enter_context(open_checkpoints(home, name))
            memory = stack.enter_context(open_memory(home.root))
            state = read_snapshot(saver, name).state
            tools = stack.enter_context(closing(tools or _tools(home, record, device, state.get("baseline"))))
            if on_event is not None:
                for text in repairs:
                    on_event({"kind": "note", "session": name, "text": text})
            graph = build_graph(saver)
            start = _start(graph, name, tools, command)
            if start is not None:
                context = open_context(home, record, tools, engineer, on_event, memory)
                stack.callback(_close_agent, context.engineers, graph, name)
                _drive(graph, start, context, session_facts(state, context))
                lay_out(questions(graph.get_state(thread(name)).interrupts), home.folder(name), home.store)
        except KeyboardInterrupt as error:
            raise _stopped(home, name) from error
        except sqlite3.Error as error:
            raise disk_trouble(home.folder(name), error) from error
        except SessionBusy:
            raise
        except Exception as error:         # stored here too: a checkpoint's error may be of an earlier run
            if tells_of_interrupt(str(error)):
                raise _stopped(home, name) from error
            with suppress(StitchError):
                home.store.set_failure(name, str(error))
            raise


def _stopped(home: Workspace, name: str) -> KeyboardInterrupt:
    how = f"stitchcuda resume {name}{home.option}"
    return KeyboardInterrupt(f"session {name!r} is saved in {home.where}: go on with `{how}`")


def _tools(home: Workspace, record: SessionRecord, device: str | None, baseline: Baseline | None) -> SessionTools:
    if device != ELSEWHERE:
        return open_tools(home, record, device)
    if baseline is None:
        raise BadInput(f"session {record.name!r} has no baseline yet: start it on the machine with the device first")
    return RemoteTools(baseline.device, home.cache)


class _Start(NamedTuple):
    """How to start the graph: `request` is its input, None to go on from the last checkpoint."""

    request: GraphInput | Command[Any] | None
    resumed: bool


def _start(graph: Graph, name: str, tools: SessionTools, command: Command[Any] | None) -> _Start | None:
    """How to start the graph; None if the session is done, on this device. `command` carries a person's answer.

    Results are compared only within one device key: on another the session goes back to its start, and takes the baseline
    again.
    """
    snapshot = graph.get_state(thread(name))
    baseline = snapshot.values.get("baseline")
    if not snapshot.created_at:
        return _Start({"session": name}, resumed=False)
    if baseline and baseline.device.key != tools.device().key:
        if command is not None:
            raise BadInput(f"session {name!r} is on another device now and asks anew: resume it without an answer first")
        graph.update_state(thread(name), {"session": name}, as_node=START)
        return _Start(None, resumed=True)
    # `snapshot.next` leaves out a node that has run but whose checkpoint was not written; `snapshot.tasks` has it.
    return _Start(command, resumed=True) if snapshot.tasks else None


def session_facts(state: State, context: Context) -> dict[str, Any]:
    """The fields of the event "session", which begins a run: `tasks` of the plan and those finished before it, in order; which
    of them are `done` and `kept`; the number of `attempts`, and of those that the built-in engineer `started` with; the
    `stage`; the `best` attempt and the last four (`recent`); and the `usage`."""
    done = state.get("tasks_done", ())
    plans = [context.load(Plan, digest) for digest in state.get("plans", ())]
    tasks = {task.id: task for plan in plans for task in plan.tasks if task.id in done}
    tasks |= {task.id: task for task in plans[-1].tasks} if plans else {}
    return {
        "tasks": tuple(tasks.values()), "done": done, "kept": state.get("tasks_kept", ()),
        "stage": state.get("stage") or ("start" if context.engineers.starter else "model"),
        "attempts": state.get("attempts", 0), "started": state.get("started", 0), "best": state.get("best"),
        "recent": state.get("recent", ()), "usage": state.get("usage", Usage()),
    }  # fmt: skip


def _close_agent(engineers: Engineers, graph: Graph, name: str) -> None:
    """Tells an agent, if one works, what came of the session, and stops it."""
    if engineers.agent is None:
        return
    found = graph.get_state(thread(name))
    if found.next or not found.values.get("report"):
        engineers.agent.close("The session was interrupted; what was handed in and judged is kept.", 2)
        return
    state = cast(State, found.values)
    accepted = is_accepted(state)
    engineers.agent.close(_describe_end(state, accepted), 0 if accepted else 1)


def _describe_end(state: State, accepted: bool) -> str:
    """Returns what came of a session that has ended: accepted, or why not; why it ended; and the last check's evidence."""
    final, given_up = state.get("final"), [note for note in state.get("notes", ()) if GIVEN_UP in note]
    verdict = "ACCEPTED"
    if not accepted:
        reasons = final.check.reasons if final and final.check else ()
        why = "; ".join((*given_up, *reasons)) or "no program was kept"
        verdict = f"NOT ACCEPTED: {why.rstrip('.')}"
    lines = [f"{verdict}. The session has ended: {state.get('stop_reason')}."]
    lines += given_up if accepted else []
    return "\n".join([*lines, *([describe_evidence(final, limits=False)] if final else [])])


def _drive(graph: Graph, start: _Start, context: Context, session: dict[str, Any]) -> None:
    """Runs the graph until it ends or waits. `session`: what `session_facts` returns."""
    facts = {"workspace": str(context.workspace.root), "settings": context.settings}
    context.emit("session", resumed=start.resumed, **facts, **session)
    config: RunnableConfig = {**thread(context.name), "recursion_limit": recursion_limit(context.settings)}
    steps = graph.stream(start.request, config, context=RunContext(context=context), durability="sync", stream_mode="updates")
    for _ in steps:
        pass
