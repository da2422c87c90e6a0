"""Builds what an engineer is given (brief, assignment) and the ids of attempts, from the state and the workspace.

An attempt's id is a hash of its parent attempt, task and ordinal, so a node that runs again makes the same id. Digests are
resolved here: an engineer never sees a store. Nothing is written.

Where to look next: `engineers/__init__.py` (Brief, Assignment), `nodes/coder_look.py` (what a coder may look up), `state.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.engineers.operator_significand import ANY
from stitchcuda.engineers.review_findings import open_defects, open_suggestions
from stitchcuda.nodes.coder_look import ProgramLook
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.prediction import Predictor, kept_attempts
from stitchcuda.rag.targets import skeletons_for
from stitchcuda.state import Attempt, Baseline, CheckResult, Digest, Evidence, Plan, Review, State, Task, Work
from stitchcuda.tools.device.toolkit import find_toolkit

GIVEN_UP = 2  # failures of a structure after which the next one is tried


def brief_of(state: State, context: Context, going_on: str = "") -> Brief:
    """Returns what a planner is given. The baseline must have run. `going_on`: the task whose next draft is written."""
    baseline = state["baseline"]
    program = state["program"]
    assert baseline is not None
    assert program is not None
    history = context.history(state)
    reviewed = [(attempt, context.load(Review, attempt.review)) for attempt in history]
    best = state.get("best")
    plans = state.get("plans", ())
    profiles = [found for found in (state.get("system"), state.get("counters")) if found and not found.skipped]
    kept = kept_attempts(state, history)
    checked = context.load(Evidence, kept[-1].evidence).check if kept else None
    graph, regions = context.graph(baseline.capture), context.regions(baseline.regions)
    predictor = Predictor(context.workspace.store, state, baseline, graph, regions)
    return Brief(
        settings=state["settings"],
        reference=context.source(),
        graph=graph,
        regions=regions,
        baseline=baseline,
        history=history,
        plans=tuple(context.load(Plan, digest) for digest in plans),
        kept=state.get("tasks_kept", ()),
        finished=state.get("tasks_done", ()),
        notes=state.get("notes", ()),
        program=context.files(program),
        program_ms=best.program_ms if best else None,
        speedup=best.speedup if best else None,
        profile=tuple(line for found in profiles for line in (found.bottleneck, *found.lines) if line),
        present=None if graph.opaque or predictor.is_open(kept) else predictor.describe(kept),
        steps=checked.steps if checked else (),
        bounds=(checked.outputs if checked else ()) or baseline.outputs,
        carried=_carried(baseline, checked),
        lessons=context.lines(state.get("lessons")),
        defects=open_defects(reviewed),
        suggestions=open_suggestions(reviewed, going_on=going_on),
        skeletons=skeletons_for(
            context.settings.target, baseline.device.arch, {name for region in regions for name in region.operators}
        ),
        cuda=kit.version if (kit := find_toolkit()) else "",
        about=named(state.get("head") or context.record.root, "plan", str(len(plans))),
    )


def _carried(baseline: Baseline, checked: CheckResult | None) -> dict[str, int]:
    """Returns the bits of the reference's convolutions: by the kernels of its profile, and what a check has measured."""
    measured = dict(checked.significands).get("convolution") if checked else None
    return dict(baseline.convolutions) | ({} if measured is None else {ANY: measured})


def assignment_of(state: State, context: Context, work: Work) -> Assignment:
    """Returns what a coder is given for `work`: the verified program to start from, and earlier drafts of the same task."""
    plan = context.plan(state)
    program = state["program"]
    assert plan is not None
    assert program is not None
    brief = replace(brief_of(state, context, work.task.id), lessons=context.lines(work.lessons))
    here = attempts_at(brief.history, work.task)
    last = last_draft(here, work.structure)
    files = context.files(program)
    draft = Draft(files=context.files(last.program), note=last.note) if last else None
    agents = [attempt for attempt in brief.history[-1:] if context.engineers.agent and attempt.engineer != "builtin"]
    return Assignment(
        brief=brief,
        plan=plan,
        task=work.task,
        ordinal=work.ordinal,
        program=files,
        kept=state.get("tasks_kept", ()),
        last=draft,
        evidence=context.load(Evidence, last.evidence) if last else None,
        review=context.load(Review, last.review) if last else None,
        evidences=_evidences(brief.history, context) if context.engineers.agent else (),
        submitted=context.files(agents[0].program) if agents else None,
        earlier=tuple((attempt, context.load(Review, attempt.review)) for attempt in here),
        docs=context.workspace.store.get(work.docs).decode() if work.docs else "",
        about=work.id,
        candidate=work.candidate,
        candidates=work.candidates,
        structure=work.structure,
        look=ProgramLook(context, state, last),
    )


def _evidences(history: Sequence[Attempt], context: Context) -> tuple[Evidence, ...]:
    return tuple(context.load(Evidence, attempt.evidence) for attempt in history)


def current_task(state: State, context: Context) -> Task | None:
    """Returns the plan's task at the state's position; None at the end of the plan."""
    plan = context.plan(state)
    position = state.get("task", 0)
    return plan.tasks[position] if plan and position < len(plan.tasks) else None


def open_work(
    state: State, context: Context, task: Task, docs: Digest | None = None, lessons: Digest | None = None
) -> Work:
    """Returns the next attempt at a task, with an id made of (parent attempt, task, ordinal). The parent of a session's first
    attempt is the session. Two things make the id another one, so that the engineer is called again: unusable replies in the
    step before, and a plan that a person has edited (a fork of the session may be at the same task of the unedited plan)."""
    earlier = attempts_at(context.history(state), task)
    ordinal = max((attempt.ordinal for attempt in earlier), default=-1) + 1
    again = [str(state["unusable"])] if state.get("unusable") else []
    plan = context.plan(state)
    again += [plan.word] if plan and plan.word else []
    name = named(state.get("head") or context.record.root, task.id, str(ordinal), *again)
    count, version = _count(state, context), state.get("plan_version", 0)
    structures = structures_to_follow(task, [attempt for attempt in earlier if attempt.plan_version == version], count)
    return Work(
        id=name, task=task, ordinal=ordinal, candidates=count, structures=structures, docs=docs, lessons=lessons
    )  # fmt: skip


def structures_to_follow(task: Task, earlier: Sequence[Attempt], count: int) -> tuple[str, ...]:
    """Returns the structures that the first of a step's `count` candidates follow, in their order; the others choose.

    Those that were not tried yet come in turn. Before them stands the structure of the last draft where that failed, up to
    GIVEN_UP times, or where all were tried. `earlier`: attempts at the task under the same plan, oldest first.
    """
    last = next((attempt for attempt in reversed(earlier) if not attempt.beside), None)
    if last and last.kept and last.defect and last.route == "code":
        return (last.structure,) * count   # this step repairs what was kept
    untried = [structure.name for structure in task.structures if structure.name not in {each.structure for each in earlier}]
    if last is None or not task.structures:
        return tuple(untried[:count])
    failures = sum(not attempt.correct for attempt in earlier if attempt.structure == last.structure)
    goes_on = not untried or (not last.correct and failures < GIVEN_UP)
    return tuple([*([last.structure] if goes_on else []), *untried][:count])


def last_draft(attempts: Sequence[Attempt], structure: str) -> Attempt | None:
    """Returns the last attempt that followed `structure` and that its step went on with; None: start from the program."""
    return next((each for each in reversed(attempts) if not each.beside and each.structure == structure), None)


def split_candidates(work: Work) -> tuple[Work, ...]:
    """Returns the candidates of one step, each with an id, an ordinal and documentation of its own."""
    docs = (work.docs, *work.docs_beside)
    return tuple(
        work.model_copy(
            update={
                "id": work.id if number == 0 else named(work.id, str(number)),
                "ordinal": work.ordinal + number,
                "candidate": number,
                "docs": docs[number] if number < len(docs) else work.docs,
                "docs_beside": (),
            }
        )
        for number in range(work.candidates)
    )


def _count(state: State, context: Context) -> int:
    """Returns how many candidates a step has: what the settings ask for and the attempts left allow; 1 in the start stage."""
    settings = context.settings
    left = settings.max_attempts - state.get("attempts", 0) + state.get("started", 0)
    return 1 if state.get("stage") == "start" else max(1, min(settings.candidates, left))


def attempts_at(history: tuple[Attempt, ...], task: Task) -> tuple[Attempt, ...]:
    """Returns the attempts at a task under any plan, oldest first."""
    return tuple(attempt for attempt in history if attempt.task == task.id)


def named(*parts: str) -> str:
    """Returns an id of 16 hexadecimal digits, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
