"""The planner node: asks the engineer for a plan from the whole record. It picks no task and writes no code.

Tasks that are finished stay finished: whatever a new plan says of them is left out, so that replans come to an end.
"""

from __future__ import annotations

from stitchcuda.nodes.brief import brief_of
from stitchcuda.nodes.context import Context
from stitchcuda.state import State, Task


def planner(state: State, context: Context) -> State:
    proposed = context.engineer.plan(brief_of(state, context))
    finished = state.get("tasks_done", ())
    tasks: dict[str, Task] = {task.id: task for task in reversed(proposed.tasks) if task.id not in finished}
    version = state.get("plan_version", 0) + 1
    plan = proposed.model_copy(update={"version": version, "tasks": tuple(reversed(tasks.values()))})
    context.emit("plan", version=version, tasks=plan.tasks, summary=plan.summary)
    digest = context.save(plan)
    return {
        "plan": digest,
        "plans": (*state.get("plans", ()), digest),
        "plan_version": version,
        "tasks_total": len(finished) + len(plan.tasks),
        "task": 0,
        "missed": 0,
        "work": None,
    }
