"""Takes a session from one step to the next: position in the plan, the next attempt, a new plan, or its end.

When the built-in engineer's plan is done, a chat model or an agent (if the session has one) goes on with a plan of its own.
When a chat model's plan is done and something of it was kept, it plans again; an agent does until it says that it is done. When
to stop is decided by `graph/routes.py`, passed in as `rules`.

Where to look next: `graph/routes.py` (the rules), `nodes/verifier.py` (calls this), `nodes/nothing.py` (no task was worth it).
"""

from __future__ import annotations

from stitchcuda.counts import counted
from stitchcuda.nodes.brief import open_work
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.lessons import lessons_for_plan, remember_lesson
from stitchcuda.nodes.nothing import explain_nothing_to_do
from stitchcuda.nodes.route_request import Rules, Stop
from stitchcuda.state import Route, State, Usage


def _more_to_gain(state: State, context: Context) -> bool:
    """Whether the same engineer should plan again: it is a chat model, and something of its last plan was kept; or it is an
    agent that has not said that it is done."""
    work = state.get("work")
    if context.engineers.agent is not None:
        return work is None or not work.exhausted
    version = state["plan_version"]
    kept = any(attempt.kept and attempt.plan_version == version for attempt in context.history(state))
    return kept and context.engineers.transcript is not None


def stop_after(
    rules: Rules, state: State, context: Context, route: Route, position: int, *, repairs: bool = False
) -> Stop | None:
    """Returns why the session ends on `route` at `position` of the plan, or None. `repairs`: a defect is repaired next."""
    plan, baseline, best = context.plan(state), state["baseline"], state.get("best")
    assert baseline is not None
    runtime = baseline.predicted_ms        # the rule that reads it holds on GPUs only, where the best program was timed
    if best and best.speedup and baseline.eager_ms:
        runtime = baseline.eager_ms / best.speedup
    return rules.stop(
        route=route,
        left=plan.tasks[position:] if plan else (),
        runtime_ms=runtime,
        speedup=best.speedup if best else None,
        settings=context.settings,
        attempts=context.own_attempts(state),
        usage=state.get("usage", Usage()),
        spent=context.engineers.budget.exhausted() if context.engineers.budget else None,
        repairs=repairs,
    )


def take_route(rules: Rules, state: State, context: Context, route: Route, update: State) -> State:
    """Returns `update` with the state after taking `route`, unless the rules stop the session or it passes to the chat model.
    When a task is left, its lesson is stored; for a new plan, lessons of earlier sessions are looked up."""
    after = state | update
    work = after.get("work")
    position = after.get("task", 0)
    finished = after.get("tasks_done", ())
    attempt = after["recent"][-1] if after.get("recent") and work and after["recent"][-1].id == work.id else None
    leaves = route in ("next_task", "done") or (route == "replan" and attempt is not None and attempt.correct)
    if work is not None and leaves:
        finished, position = (*finished, work.task.id), position + 1
    starting = after.get("stage") == "start"
    repairs = route == "code" and attempt is not None and bool(attempt.defect)
    stop = stop_after(rules, after, context, route, position, repairs=repairs)
    reason = after.get("halt") or (stop.reason if stop else None)
    if route == "done" and attempt is not None and not reason:
        reason = attempt.route_reason
    changed: State = {}
    plan_done = stop is not None and stop.left_over and not after.get("halt")
    if plan_done and starting:
        changed = {"stage": "model", "started": after.get("attempts", 0), "unusable": 0}
        route, reason = "replan", None
        kept = counted(len(after.get("tasks_kept", ())), "verified task")
        text = f"the built-in engineer ends with {kept}; {context.engineers.engineer.name} goes on from there"
        context.emit("stage", text=text)
    elif plan_done and _more_to_gain(after, context):
        route, reason = "replan", None     # the plan is done and gained something: the chat model may find more
    elif plan_done:
        said = work.exhausted if work is not None and context.engineers.agent is not None and not starting else ""
        reason = said or explain_nothing_to_do(after, context) or reason
    if route == "replan" and not reason:
        changed["lessons"] = lessons_for_plan(after, context)
    if work is not None and leaves:
        changed["notes"] = remember_lesson(after, context, work.task)
    again = route == "code" and work is not None and not reason
    return update | changed | {
        "route": "done" if reason else route,
        "stop_reason": reason,
        "task": position,
        "tasks_done": finished,
        "work": open_work(after, context, work.task, work.docs, work.lessons) if again and work else None,
    }  # fmt: skip
