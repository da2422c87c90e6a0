"""The planner node: has the engineer make a plan from the whole record, and a person approve or edit it if the settings say so.

Finished tasks are removed from a new plan, so that replanning comes to an end. Before a chat model plans, the program is
profiled once. If a person answers with a comment, another plan is made with it. No task is started here.

Where to look next: `engineers/__init__.py` (Engineer.plan), `nodes/approval.py` (a person's answer), `nodes/search_docs.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from stitchcuda.engineers import Brief, Engineer
from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.approval import ask_about_plan
from stitchcuda.nodes.brief import brief_of, named
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import search_for_plan
from stitchcuda.state import Plan, ProfileResult, Record, State, Task


def planner(state: State, context: Context) -> State:
    if spent := context.out_of_attempts(state):
        return {"halt": f"budget: {spent}", "work": None}
    profiles = _profile_once(state, context)
    state = state | profiles
    engineer = context.engineer(state)
    brief = replace(brief_of(state, context), docs=search_for_plan(state, context).text)
    if context.engineers.estimate and state.get("stage") == "model" and state.get("attempts", 0) == state.get("started", 0):
        context.emit("estimate", text=context.engineers.estimate(brief))
    try:
        plan, notes = _make_plan(state, context, brief)
    except OutOfBudget as error:
        return profiles | {"halt": f"budget: {error}", "work": None}
    except Unusable as error:
        return profiles | {"halt": f"there is no plan: {error}", "work": None, "notes": context.note(state, str(error))}
    context.emit("plan", version=plan.version, tasks=plan.tasks, summary=plan.summary, engineer=engineer.name)
    digest = context.save(plan)
    return profiles | {
        "plan": digest,
        "plans": (*state.get("plans", ()), digest),
        "plan_version": plan.version,
        "tasks_total": len(state.get("tasks_done", ())) + len(plan.tasks),
        "task": 0,
        "missed": 0,
        "work": None,
        "notes": notes,
    }


def _make_plan(state: State, context: Context, brief: Brief) -> tuple[Plan, tuple[str, ...]]:
    """Returns the plan to follow, by the engineer or as a person has edited it, and the notes."""
    engineer, notes = context.engineer(state), state.get("notes", ())
    listens = engineer.name != "builtin"   # the built-in engineer reads no strategies and comments
    if "plan" not in context.settings.approve:
        return _number(engineer.plan(brief), state, engineer.name), notes
    while True:
        proposal = context.record_proposal(brief.about, partial(_proposal, engineer, brief))
        plan = _number(Plan.model_validate_json(proposal), state, engineer.name)
        answer = ask_about_plan(plan, context, engineer=engineer.name, listens=listens) if plan.tasks else plan
        if isinstance(answer, Plan):
            return _mark_edited(plan, answer, state, context, notes)
        names = ", ".join(task.id for task in plan.tasks)
        notes = context.note({"notes": notes}, f"a person was shown the plan {names} and asked for another one: {answer}")
        brief = replace(brief, notes=notes, about=named(brief.about, answer))


def _proposal(engineer: Engineer, brief: Brief) -> str:
    return engineer.plan(brief).model_dump_json()


def _number(proposed: Plan, state: State, engineer: str) -> Plan:
    """Returns the plan with this session's next version number, without finished and repeated tasks."""
    finished = state.get("tasks_done", ())
    tasks: dict[str, Task] = {task.id: task for task in reversed(proposed.tasks) if task.id not in finished}
    version = state.get("plan_version", 0) + 1
    return proposed.model_copy(update={"version": version, "tasks": tuple(reversed(tasks.values())), "engineer": engineer})


def _mark_edited(
    plan: Plan, settled: Plan, state: State, context: Context, notes: tuple[str, ...]
) -> tuple[Plan, tuple[str, ...]]:
    """Returns the plan as a person left it, marked by a hash of the changes (`Plan.word`) if there are any, and the notes."""
    if settled.tasks != plan.tasks:
        dropped = [task.id for task in plan.tasks if task.id not in {other.id for other in settled.tasks}]
        left = f", without {', '.join(dropped)}" if dropped else ""
        notes = context.note({"notes": notes}, f"plan {plan.version} is followed as a person edited it{left}")
    if settled.tasks == plan.tasks and notes == state.get("notes", ()):
        return plan, notes
    return settled.model_copy(update={"word": named(*notes, *(task.model_dump_json() for task in settled.tasks))}), notes


class Profiles(Record):
    """Profiles of a program, as recorded in the transcript."""

    system: ProfileResult
    counters: ProfileResult
    seconds: float = 0.0                   # that it took to make them


def _profile_once(state: State, context: Context) -> State:
    """Profiles the best program if the engineer reads profiles and there is none yet; {} else. The result is recorded, so that
    a node that runs again makes the same prompt."""
    program = state["program"]
    if state.get("system") or not state.get("best") or not context.engineer(state).reads_profiles:
        return {}
    assert program is not None

    def look() -> str:
        folder = context.program_folder(program)
        context.tools.build(folder)        # a cache hit, unless the session was moved to another machine
        started = time.monotonic()
        system, whole = context.tools.profile_system(folder)
        counters, counted = context.tools.profile_kernels(folder, whole)
        seconds = time.monotonic() - started
        return Profiles(
            system=context.store_profile(system, whole), counters=context.store_profile(counters, counted), seconds=seconds
        ).model_dump_json()

    found = Profiles.model_validate_json(context.record_once(f"profile-{program[:16]}", look))
    context.profiled_s = found.seconds     # recorded, since a session that waits for a reply runs this node again
    return {"system": found.system, "counters": found.counters}
