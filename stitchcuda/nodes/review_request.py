"""Asks the engineer for the review of an attempt, unless the rules say that no review of it could matter.

If the plan or the session ends with a correct attempt, the review is of the whole program: of all that changed since the
program that the chat model started from. If nobody is asked, or the reply cannot be used, the tools' error stands in for the
review, which says why. No route is decided here.

Where to look next: `graph/routes.py` (`needless_review`), `engineers/prompts/verifier.md.j2` (the request).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from stitchcuda.engineers import Draft, RouteChoice
from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.advance import stop_after
from stitchcuda.nodes.attempt_figures import diagnosis_of, evidence_of
from stitchcuda.nodes.brief import assignment_of
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import complete_citations, search_for_review
from stitchcuda.nodes.final_check import starting_program
from stitchcuda.nodes.route_request import AttemptStanding, RouteVerdict, Rules
from stitchcuda.state import Attempt, Review, Route, State, Work


class Requested(NamedTuple):
    """The review of an attempt, why the session must end (None if it need not), and the notes. `unreviewed`: why the review is
    not an engineer's although one should have given it; "" if it is, or if none had to."""

    review: Review
    halt: str | None
    notes: tuple[str, ...]
    unreviewed: str = ""


def request_review(
    rules: Rules, state: State, context: Context, work: Work, attempt: Attempt, standing: AttemptStanding,
    verdict: RouteVerdict, goal_missed: str,
) -> Requested:  # fmt: skip
    """`verdict`: of the rules before the review. `goal_missed`: the goal that is not reached, "" for none."""
    halt, notes = state.get("halt"), state.get("notes", ())
    by_rule = context.engineer(state).name == "builtin"  # costs nothing, and lessons are made from it
    ends = not by_rule and _ends(rules, state, context, attempt, "next_task" if attempt.correct else verdict.route)
    needless = "" if by_rule else rules.needless_review(standing, verdict, ends=ends)
    if needless:
        return Requested(_without_engineer(attempt, verdict, needless), halt, notes)
    if spent := context.out_of_attempts(state):
        return _ended_first(attempt, verdict, spent, notes)
    choice = rules.offer_routes(
        standing, verdict, kept=attempt.kept, goal_missed=goal_missed, ends=_ends_anyway(rules, state, context, attempt)
    )
    made = context.own_attempts(state) + 1
    choice = replace(choice, made=made, left=max(0, context.settings.max_attempts - made))
    try:
        return Requested(_ask(state, context, work, choice, whole=ends and standing.correct), halt, notes)
    except OutOfBudget as unpaid:
        return _ended_first(attempt, verdict, str(unpaid), notes)
    except Unusable as unread:
        notes = context.note({"notes": notes}, f"{unread}; the tools' word stands alone")
        return Requested(_without_engineer(attempt, verdict, str(unread)), halt, notes, str(unread))


def _ended_first(attempt: Attempt, verdict: RouteVerdict, spent: str, notes: tuple[str, ...]) -> Requested:
    halt = f"budget: {spent}"
    return Requested(_without_engineer(attempt, verdict, halt), halt, notes, f"the session ended first ({halt})")


def _ends(rules: Rules, state: State, context: Context, attempt: Attempt, route: Route) -> bool:
    """Whether the session, or with `next_task` the plan, ends if `route` follows this attempt."""
    return stop_after(rules, _with(state, attempt), context, route, state.get("task", 0) + 1) is not None


def _ends_anyway(rules: Rules, state: State, context: Context, attempt: Attempt) -> str:
    """Returns why the session ends after this attempt whatever its review says; "" if it may go on."""
    stop = stop_after(rules, _with(state, attempt), context, "code", state.get("task", 0), repairs=True)
    return state.get("halt") or (stop.reason if stop else "")


def _with(state: State, attempt: Attempt) -> State:
    best: State = {"best": attempt} if attempt.kept else {}
    return state | {"attempts": state.get("attempts", 0) + 1} | best


def _ask(state: State, context: Context, work: Work, choice: RouteChoice, *, whole: bool) -> Review:
    """Raises OutOfBudget and Unusable."""
    assert work.program is not None
    engineer, evidence = context.engineer(state), evidence_of(work)
    draft = Draft(files=context.files(work.program), note=work.note, engineer=work.engineer)
    bound = next((found.bottleneck for found in (work.kernels, work.system) if found and found.bottleneck), "")
    error = diagnosis_of(evidence).replace(f"{context.program_folder(work.program)}/", "")
    docs = search_for_review(state, context, work.id, error, bound)
    assignment = replace(assignment_of(state, context, work), docs=docs.text, choice=choice)
    if whole:
        kept = [attempt for attempt in context.history(state) if attempt.kept]
        assignment = replace(assignment, started_from=context.files(starting_program(kept) or state["first"]))
    review = complete_citations(engineer.review(assignment, draft, evidence), docs)
    return review.model_copy(update={"whole": whole})


def _without_engineer(attempt: Attempt, verdict: RouteVerdict, why: str) -> Review:
    bottleneck = attempt.diagnosis or "nobody has read the evidence"
    return Review(bottleneck=bottleneck, suggestion="none", route=verdict.route, skipped=why)
