"""The verifier node: has the engineer review the evidence, lets the rules decide the route, and writes the attempt to the
ledger.

The ledger is written before the checkpoint, so that this node, when it runs again after a crash, finds its attempt and uses the
recorded verdict. A step's other candidates are written first, without a review. A defect that a review names in a correct
program is recorded with the attempt. A kept program of another graph takes that graph along. No tool runs here.

Where to look next: `graph/routes.py` (the rules), `nodes/review_request.py` (asks for the review), `nodes/advance.py` (takes
the route), `nodes/attempt_figures.py` (tier).
"""

from __future__ import annotations

from collections.abc import Callable

from stitchcuda.compiler.regions.partition import partition
from stitchcuda.compiler.templates.rewriting import rewrite
from stitchcuda.nodes.advance import take_route
from stitchcuda.nodes.attempt_figures import diagnosis_of, evidence_of, first_line
from stitchcuda.nodes.brief import attempts_at
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.error_fingerprint import fingerprint
from stitchcuda.nodes.review_request import request_review
from stitchcuda.nodes.route_request import AttemptStanding, RouteVerdict, Rules
from stitchcuda.state import Attempt, Baseline, Evidence, Review, State, Work

RECENT = 4  # attempts that the state holds as `recent`
NOTE = 300  # the most characters of a coder's note in the ledger
NO_PRICE = (
    "the model's price is not known: --budget-usd cannot end this session; --max-attempts, --max-tokens and --max-minutes can, "
    "or name its price in a file (STITCHCUDA_PRICES, docs/models.md)"
)


def verifier_by(rules: Rules) -> Callable[[State, Context], State]:
    """Returns the verifier node that decides by `rules`."""

    def verifier(state: State, context: Context) -> State:
        work = state.get("work")
        if work is None:
            return take_route(rules, state, context, "next_task", {})
        if work.program is None:
            return _nothing_written(rules, state, context, work)
        return _record_attempts(rules, state, context, work)

    return verifier


def _nothing_written(rules: Rules, state: State, context: Context, work: Work) -> State:
    """Handles a step without any draft: the session ends (budget), tries the task again, or goes on with the next one."""
    who = work.engineer or context.engineer(state).name
    what = f"{work.task.id} ({work.task.title})"
    if work.unpaid:
        return take_route(rules, state, context, "next_task", {"halt": f"budget: {work.unpaid}"})
    if work.unusable:
        count = state.get("unusable", 0) + 1
        again = count < rules.UNUSABLE
        text = f"{what}: {work.unusable}" + ("" if again else f"; the task is dropped after {count} such steps")
        update: State = {"unusable": count if again else 0, "notes": context.note(state, text)}
        return take_route(rules, state, context, "code" if again else "next_task", update)
    by_itself = context.engineers.agent is not None and state.get("stage") != "start"
    text = f"{what}: {work.exhausted if by_itself else f'{who} has nothing new to offer: {work.exhausted}'}"
    return take_route(rules, state, context, "next_task", {"notes": context.note(state, text)})


def _record_attempts(rules: Rules, state: State, context: Context, work: Work) -> State:
    for other in sorted(state.get("beside", ()), key=lambda draft: draft.candidate):
        beside = context.workspace.store.append(context.name, _record_beside(state, context, other))
        state = state | {"head": beside.id, "attempts": state.get("attempts", 0) + 1}
        context.emit("attempt", attempt=beside, title=other.task.title)
    known = context.workspace.store.attempts(context.name).get(work.id)
    attempt, missed, halt, notes = _make_attempt(rules, state, context, work, known)
    attempt = context.workspace.store.append(context.name, attempt)
    context.emit("attempt", attempt=attempt, title=work.task.title)
    update: State = {
        "head": attempt.id,
        "attempts": state.get("attempts", 0) + 1,
        "recent": (*state.get("recent", ()), attempt)[-RECENT:],
        "missed": missed,
        "unusable": 0,
        "halt": halt,
        "beside": (),
        "notes": notes,
    }
    transcript = context.engineers.transcript
    if transcript and state.get("stage") != "start" and transcript.usage().usd is None:
        update["notes"] = context.note(update, NO_PRICE)
    if attempt.kept:
        kept = tuple(dict.fromkeys((*state.get("tasks_kept", ()), attempt.task)))
        read = context.engineer(state).reads_profiles
        update |= {
            "program": attempt.program, "best": attempt, "tasks_kept": kept, "system": work.system if read else None,
            "counters": work.kernels if read else None,
        }  # fmt: skip
        if work.task.kind == "graph":
            update["baseline"] = _with_rewritten_graph(state, context, work.task.id)
        context.emit("best", attempt=attempt, title=work.task.title)
    return take_route(rules, state, context, attempt.route, update)


def _with_rewritten_graph(state: State, context: Context, template: str) -> Baseline:
    """Returns the baseline with the graph and the regions of the program that is kept now; times and floors stay."""
    baseline = state["baseline"]
    assert baseline is not None
    graph = rewrite(context.graph(baseline.capture), template, baseline.device)
    return baseline.model_copy(update={"capture": context.save(graph), "regions": context.save_regions(partition(graph))})


def _make_attempt(
    rules: Rules, state: State, context: Context, work: Work, known: Attempt | None
) -> tuple[Attempt, int, str | None, tuple[str, ...]]:
    """Returns the attempt's record (the ledger's if it is there), missed predictions, why the session must end, and notes."""
    evidence = evidence_of(work)
    earlier = tuple(attempt for attempt in attempts_at(context.history(state), work.task) if not attempt.beside)
    standing = _standing(state, work, evidence, earlier, fingerprint(_error(evidence, work, context)))
    verdict = rules.verdict_route(standing)
    if known:
        return known, verdict.missed, state.get("halt"), state.get("notes", ())
    timed_here = context.settings.target == "cuda"
    keep = rules.keep(evidence, timed_here=timed_here, repair_ms=_repaired_ms(context, standing.earlier))
    attempt = _attempt(state, context, work, evidence).model_copy(update={"kept": keep.kept})
    missed_goal = _goal_missed(context, attempt)
    review, halt, notes, unreviewed = request_review(
        rules, state, context, work, attempt, standing, verdict, missed_goal
    )  # fmt: skip
    defect = review.defect if standing.correct else ""
    if defect and keep.repairs:
        keep = rules.keep(evidence, timed_here=timed_here)  # it repairs nothing
    followed = rules.follow_review(standing, verdict, review, kept=keep.kept, goal_missed=missed_goal)
    reason = followed.reason if keep.kept or not standing.correct else f"{followed.reason}; not kept: {keep.reason}"
    stored = review.model_copy(update={"route": followed.route, "overruled": _overruled(review, followed)})
    attempt = attempt.model_copy(update={
        "review": context.save(stored), "kept": keep.kept, "route": followed.route, "route_reason": reason, "defect": defect,
        "unreviewed": unreviewed,
    })  # fmt: skip
    return attempt, followed.missed, halt, notes


def _standing(state: State, work: Work, evidence: Evidence, earlier: tuple[Attempt, ...], error: str) -> AttemptStanding:
    """`earlier`: the attempts at this task under any plan, oldest first. `error`: the fingerprint of this one's error."""
    version, timing = state["plan_version"], evidence.timing
    planned = tuple(attempt for attempt in earlier if attempt.plan_version == version)
    return AttemptStanding(
        built=evidence.build.ok or bool(evidence.build.skipped),
        correct=bool(evidence.check and evidence.check.ok),
        fingerprint=error,
        predicted_ms=work.task.predicted_by(work.structure),
        saving_ms=timing.saving_ms if timing else None,
        program_ms=timing.program_ms if timing else None,
        earlier=planned,
        structure=work.structure,
        replanned=any(a.route == "replan" and not a.correct for a in earlier if a.plan_version < version),
        missed=state.get("missed", 0),
        twin=work.twin,
        repaired=any(attempt.kept and attempt.defect and attempt.route == "code" for attempt in planned),
    )


def _repaired_ms(context: Context, earlier: tuple[Attempt, ...]) -> float:
    """Returns what the defective program that an attempt repairs saves at least, in ms; 0 if it repairs none."""
    kept = next((attempt for attempt in reversed(earlier) if attempt.kept), None)
    if kept is None or not kept.defect:
        return 0.0
    timing = context.load(Evidence, kept.evidence).timing
    return max(timing.saving_low_ms, 0.0) if timing else 0.0


def _goal_missed(context: Context, attempt: Attempt) -> str:
    goal = context.settings.goal
    if goal is None or (attempt.kept and attempt.speedup is not None and attempt.speedup >= goal):
        return ""
    return f"the goal of {goal:g}x is not reached"


def _overruled(proposed: Review, followed: RouteVerdict) -> str:
    """Returns the proposed route and the rule that forbade it; "" if it is followed or nobody was asked."""
    if proposed.skipped or proposed.route == followed.route:
        return ""
    return f"{proposed.route} was proposed, rule {followed.rule} forbids it: {followed.reason}"


def _record_beside(state: State, context: Context, work: Work) -> Attempt:
    evidence = evidence_of(work)
    error = first_line(_error(evidence, work, context))
    review = Review(bottleneck=error, suggestion="", route="code")
    reason = f"candidate {work.candidate + 1} of {work.candidates}: another one was better"
    return _attempt(state, context, work, evidence).model_copy(
        update={"review": context.save(review), "kept": False, "route": "code", "route_reason": reason, "beside": True}
    )


def _attempt(state: State, context: Context, work: Work, evidence: Evidence) -> Attempt:
    """Returns the attempt's record before review and route are decided."""
    assert work.program is not None
    error = _error(evidence, work, context)
    timing, check = evidence.timing, evidence.check
    return Attempt(
        id=work.id,
        parent=state.get("head"),
        base=state.get("program"),
        task=work.task.id,
        plan_version=state["plan_version"],
        ordinal=work.ordinal,
        structure=work.structure,
        program=work.program,
        evidence=context.save(evidence),
        review="",
        tier=evidence.tier,
        built=evidence.build.ok or bool(evidence.build.skipped),
        correct=bool(check and check.ok),
        kept=False,
        route="code",
        route_reason="",
        predicted_ms=work.task.predicted_by(work.structure),
        saving_ms=timing.saving_ms if timing else None,
        speedup=timing.speedup if timing else None,
        own_share=check.own_share if check else 0.0,
        fingerprint=fingerprint(error),
        diagnosis=first_line(error),
        engineer=work.engineer,
        note=work.note if len(work.note) <= NOTE else f"{work.note[: NOTE - 1]}…",
        program_ms=timing.program_ms if timing else None,
        code=evidence.build.code,
        edited=work.edited,
    )


def _error(evidence: Evidence, work: Work, context: Context) -> str:
    assert work.program is not None
    return diagnosis_of(evidence).replace(f"{context.program_folder(work.program)}/", "")
