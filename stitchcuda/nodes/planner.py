"""The planner node: asks the engineer for a plan from the whole record. It picks no task and writes no code.

Tasks that are finished stay finished: whatever a new plan says of them is left out, so that replans come to an end. Before a
chat model plans, it is looked once where the program's time goes.
"""

from __future__ import annotations

from dataclasses import replace

from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.brief import brief_of
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import for_plan
from stitchcuda.state import ProfileResult, Record, State, Task


def planner(state: State, context: Context) -> State:
    if spent := context.out_of_attempts(state):
        return {"halt": f"budget: {spent}", "work": None}
    seen = _profiled(state, context)
    state = state | seen
    engineer = context.engineer(state)
    brief = replace(brief_of(state, context), docs=for_plan(state, context).text)
    if context.engineers.estimate and state.get("stage") == "model" and state.get("attempts", 0) == state.get("started", 0):
        context.emit("estimate", text=context.engineers.estimate(brief))
    try:
        proposed = engineer.plan(brief)
    except OutOfBudget as error:
        return seen | {"halt": f"budget: {error}", "work": None}
    except Unusable as error:
        return seen | {"halt": f"there is no plan: {error}", "work": None, "notes": context.note(state, str(error))}
    finished = state.get("tasks_done", ())
    tasks: dict[str, Task] = {task.id: task for task in reversed(proposed.tasks) if task.id not in finished}
    version = state.get("plan_version", 0) + 1
    plan = proposed.model_copy(update={"version": version, "tasks": tuple(reversed(tasks.values()))})
    context.emit("plan", version=version, tasks=plan.tasks, summary=plan.summary, engineer=engineer.name)
    digest = context.save(plan)
    return seen | {
        "plan": digest,
        "plans": (*state.get("plans", ()), digest),
        "plan_version": version,
        "tasks_total": len(finished) + len(plan.tasks),
        "task": 0,
        "missed": 0,
        "work": None,
    }


class Profiles(Record):
    """Where the time of a program goes, as it was found once."""

    system: ProfileResult
    counters: ProfileResult


def _profiled(state: State, context: Context) -> State:
    """Where the time of the program goes, if the engineer reads profiles and nobody has looked yet. Looked at once: a node that
    runs again must ask the same."""
    program = state["program"]
    if state.get("system") or not state.get("best") or not context.engineer(state).reads_profiles:
        return {}
    assert program is not None

    def look() -> str:
        folder = context.program_folder(program)
        context.hands.build(folder)        # from the cache, unless the session has moved
        system, seen = context.hands.profile_system(folder)
        counters, counted = context.hands.profile_kernels(folder, seen)
        return Profiles(system=context.keep(system, seen), counters=context.keep(counters, counted)).model_dump_json()

    found = Profiles.model_validate_json(context.once(f"profile-{program[:16]}", look))
    return {"system": found.system, "counters": found.counters}
