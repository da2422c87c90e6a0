"""The verifier node: reads the evidence with the engineer, lets the rules decide, and writes the attempt into the ledger.

Ledger first, then the checkpoint: a rerun of this node after a crash finds its attempt and takes the recorded verdict. The node
runs no tool. The rules are `graph/routes.py`, handed in when the graph is wired.
"""

from __future__ import annotations

from collections.abc import Callable

from stitchcuda.engineers import Draft
from stitchcuda.nodes.brief import assignment_of, at_task, open_work
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.fingerprint import fingerprint
from stitchcuda.nodes.rules import Rules, Standing, Verdict
from stitchcuda.nodes.verdict import diagnosis_of, evidence_of, first_line, predicted_ms
from stitchcuda.state import Attempt, Review, Route, State, Usage, Work

RECENT = 4
NO_PRICE = "the model's price is not known: --budget-usd cannot end this session, --max-attempts and --max-minutes can"


def verifier_by(rules: Rules) -> Callable[[State, Context], State]:
    """The verifier that decides by `rules`."""

    def verifier(state: State, context: Context) -> State:
        work = state.get("work")
        if work is None:
            return _stopped(rules, state, context, "next_task", {})
        if work.program is None:
            text = f"{work.task.id} ({work.task.title}): {context.engineer.name} has nothing new to offer: {work.exhausted}"
            return _stopped(rules, state, context, "next_task", {"notes": context.note(state, text)})
        attempt, missed = _judge(rules, state, context, work)
        attempt = context.workspace.store.append(context.name, attempt)
        context.emit("attempt", attempt=attempt, title=work.task.title)
        update: State = {
            "head": attempt.id,
            "attempts": state.get("attempts", 0) + 1,
            "recent": (*state.get("recent", ()), attempt)[-RECENT:],
            "missed": missed,
        }
        if context.engineer.spent().usd is None:
            update["notes"] = context.note(state, NO_PRICE)
        if attempt.kept:
            kept = tuple(dict.fromkeys((*state.get("tasks_kept", ()), attempt.task)))
            update |= {"program": attempt.program, "best": attempt, "tasks_kept": kept}
            context.emit("best", attempt=attempt, title=work.task.title)
        return _stopped(rules, state, context, attempt.route, update)

    return verifier


def _judge(rules: Rules, state: State, context: Context, work: Work) -> tuple[Attempt, int]:
    """The attempt's record, and the predictions missed so far. A record that the ledger holds already is used as it is."""
    assert work.program is not None
    evidence = evidence_of(work)
    history = context.history(state)
    version = state["plan_version"]
    error = diagnosis_of(evidence).replace(f"{context.program_folder(work.program)}/", "")
    known = context.workspace.store.attempts(context.name).get(work.id)
    correct = bool(evidence.check and evidence.check.ok)
    timing = evidence.timing
    standing = Standing(
        built=evidence.build.ok or bool(evidence.build.skipped),
        correct=correct,
        fingerprint=fingerprint(error),
        predicted_ms=work.task.predicted_ms,
        saving_ms=timing.saving_ms if timing else None,
        speedup=timing.speedup if timing else None,
        earlier=at_task(history, work.task, version),
        replanned=any(a.route == "replan" and not a.correct for a in at_task(history, work.task) if a.plan_version < version),
        missed=state.get("missed", 0),
    )
    verdict: Verdict = rules.verdict_route(standing)
    if known:
        return known, verdict.missed
    keep = rules.keep(evidence, timed_here=context.settings.target == "cuda")
    draft = Draft(files=context.files(work.program), note=work.note)
    review = context.engineer.review(assignment_of(state, context, work), draft, evidence)
    disposed = review.model_copy(update={"route": verdict.route})
    return Attempt(
        id=work.id,
        parent=state.get("head"),
        base=state.get("program"),
        task=work.task.id,
        plan_version=version,
        ordinal=work.ordinal,
        program=work.program,
        evidence=context.save(evidence),
        review=context.save(_with_reason(disposed, review, verdict)),
        tier=evidence.tier,
        built=standing.built,
        correct=correct,
        kept=keep.kept,
        route=verdict.route,
        route_reason=verdict.reason if keep.kept or not correct else f"{verdict.reason}; not kept: {keep.reason}",
        predicted_ms=work.task.predicted_ms,
        saving_ms=standing.saving_ms,
        speedup=standing.speedup,
        own_share=evidence.check.own_share if evidence.check else 0.0,
        fingerprint=standing.fingerprint,
        diagnosis=first_line(error),
    ), verdict.missed


def _with_reason(disposed: Review, proposed: Review, verdict: Verdict) -> Review:
    """The engineer's review with the route that was taken, and a word where that is not the one it proposed."""
    if proposed.route == verdict.route:
        return disposed
    heard = f"proposed {proposed.route}, but: {verdict.reason}"
    return disposed.model_copy(update={"citations": (*disposed.citations, heard)})


def _stopped(rules: Rules, state: State, context: Context, route: Route, update: State) -> State:
    """Moves on by `route`, or ends the session where the rules say stop."""
    after = state | update
    plan, work = context.plan(after), after.get("work")
    position = after.get("task", 0)
    finished = after.get("tasks_done", ())
    attempt = after["recent"][-1] if after.get("recent") and work and after["recent"][-1].id == work.id else None
    leaves = route == "next_task" or (route == "replan" and attempt is not None and attempt.correct)
    if work is not None and leaves:
        finished, position = (*finished, work.task.id), position + 1
    baseline, best = after["baseline"], after.get("best")
    assert baseline is not None
    runtime = predicted_ms(baseline, context.history(after), after.get("tasks_kept", ()))
    if best and best.speedup and baseline.eager_ms:
        runtime = baseline.eager_ms / best.speedup
    reason = rules.stop(
        route=route,
        left=plan.tasks[position:] if plan else (),
        runtime_ms=runtime,
        speedup=best.speedup if best else None,
        settings=context.settings,
        attempts=after.get("attempts", 0),
        usage=after.get("usage", Usage()),
    )
    return update | {
        "route": "done" if reason else route,
        "stop_reason": reason,
        "task": position,
        "tasks_done": finished,
        "work": open_work(after, context, work.task, work.docs) if route == "code" and work and not reason else None,
    }
