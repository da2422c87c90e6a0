"""What an engineer is shown: the brief of a session, and the assignment of one draft.

Reads the state and the workspace, writes nothing. Digests are resolved here, so an engineer never sees a store.
"""

from __future__ import annotations

import hashlib

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.nodes.context import Context
from stitchcuda.state import Attempt, Digest, Evidence, Plan, Review, State, Task, Work


def brief_of(state: State, context: Context) -> Brief:
    baseline = state["baseline"]
    assert baseline is not None
    history = context.history(state)
    return Brief(
        settings=state["settings"],
        reference=context.source(),
        graph=context.graph(baseline.capture),
        regions=context.regions(baseline.regions),
        baseline=baseline,
        history=history,
        plans=tuple(context.load(Plan, digest) for digest in state.get("plans", ())),
        kept=state.get("tasks_kept", ()),
        notes=state.get("notes", ()),
    )


def assignment_of(state: State, context: Context, work: Work) -> Assignment:
    """The assignment of the draft under way: the verified program it starts from, and the last draft of the same task."""
    plan = context.plan(state)
    program = state["program"]
    assert plan is not None
    assert program is not None
    brief = brief_of(state, context)
    last = next((attempt for attempt in reversed(brief.history) if attempt.task == work.task.id), None)
    return Assignment(
        brief=brief,
        plan=plan,
        task=work.task,
        ordinal=work.ordinal,
        program=context.files(program),
        kept=state.get("tasks_kept", ()),
        last=Draft(files=context.files(last.program)) if last else None,
        evidence=context.load(Evidence, last.evidence) if last else None,
        review=context.load(Review, last.review) if last else None,
        docs=context.workspace.store.get(work.docs).decode() if work.docs else "",
    )


def current_task(state: State, context: Context) -> Task | None:
    """The plan's task at the state's position; None when the plan has come to its end."""
    plan = context.plan(state)
    position = state.get("task", 0)
    return plan.tasks[position] if plan and position < len(plan.tasks) else None


def open_work(state: State, context: Context, task: Task, docs: Digest | None = None) -> Work:
    """The next attempt at a task. Its id is always the same for the same (parent attempt, task, ordinal).

    A session's first attempt has the session for a parent; through it, so do all that follow.
    """
    parent = state.get("head")
    ordinal = len(at_task(context.history(state), task))
    name = hashlib.sha256(f"{parent or context.name}\n{task.id}\n{ordinal}".encode()).hexdigest()[:16]
    return Work(id=name, task=task, ordinal=ordinal, docs=docs)


def at_task(history: tuple[Attempt, ...], task: Task, plan_version: int | None = None) -> tuple[Attempt, ...]:
    """Earlier attempts at a task, of one plan or of all."""
    return tuple(a for a in history if a.task == task.id and plan_version in (None, a.plan_version))
