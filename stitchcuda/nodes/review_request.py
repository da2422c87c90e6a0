"""Asks the engineer for the review of an attempt, unless the rules say that no review of it could matter.

If the plan or the session ends with a correct attempt, the review is of the whole program: of all that changed since the
program that the chat model started from. If nobody is asked, or the reply cannot be used, the tools' error stands in for the
review, which says why. No route is decided here.

Where to look next: `graph/routes.py` (`needless_review`), `engineers/prompts/verifier.md.j2` (the request).
"""

from __future__ import annotations

from dataclasses import replace

from stitchcuda.engineers import Draft
from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.advance import stop_after
from stitchcuda.nodes.attempt_figures import diagnosis_of, evidence_of
from stitchcuda.nodes.brief import assignment_of
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import complete_citations, search_for_review
from stitchcuda.nodes.final_check import starting_program
from stitchcuda.nodes.route_request import AttemptStanding, RouteVerdict, Rules
from stitchcuda.state import Attempt, Review, Route, State, Work


def request_review(
    rules: Rules, state: State, context: Context, work: Work, attempt: Attempt, standing: AttemptStanding, verdict: RouteVerdict
) -> tuple[Review, str | None, tuple[str, ...]]:
    """Returns the review of an attempt, why the session must end (None if it need not), and the notes. `verdict`: of the rules
    before the review."""
    halt, notes = state.get("halt"), state.get("notes", ())
    by_rule = context.engineer(state).name == "builtin"  # costs nothing, and lessons are made from it
    ends = not by_rule and _ends(rules, state, context, attempt, "next_task" if attempt.correct else verdict.route)
    needless = "" if by_rule else rules.needless_review(standing, verdict, ends=ends)
    if needless:
        return _without_engineer(attempt, verdict, needless), halt, notes
    if spent := context.out_of_attempts(state):
        return _without_engineer(attempt, verdict, f"budget: {spent}"), f"budget: {spent}", notes
    try:
        return _ask(state, context, work, whole=ends and standing.correct), halt, notes
    except OutOfBudget as unpaid:
        return _without_engineer(attempt, verdict, f"budget: {unpaid}"), f"budget: {unpaid}", notes
    except Unusable as unread:
        note = f"{unread}; the tools' word stands alone"
        return _without_engineer(attempt, verdict, str(unread)), halt, context.note({"notes": notes}, note)


def _ends(rules: Rules, state: State, context: Context, attempt: Attempt, route: Route) -> bool:
    """Whether the session, or with `next_task` the plan, ends if `route` follows this attempt."""
    after = state | {"attempts": state.get("attempts", 0) + 1}
    if attempt.kept:
        after |= {"best": attempt}
    return stop_after(rules, after, context, route, state.get("task", 0) + 1) is not None


def _ask(state: State, context: Context, work: Work, *, whole: bool) -> Review:
    """Raises OutOfBudget and Unusable."""
    assert work.program is not None
    engineer, evidence = context.engineer(state), evidence_of(work)
    draft = Draft(files=context.files(work.program), note=work.note, engineer=work.engineer)
    bound = next((found.bottleneck for found in (work.kernels, work.system) if found and found.bottleneck), "")
    error = diagnosis_of(evidence).replace(f"{context.program_folder(work.program)}/", "")
    docs = search_for_review(state, context, work.id, error, bound)
    assignment = replace(assignment_of(state, context, work), docs=docs.text)
    if whole:
        kept = [attempt for attempt in context.history(state) if attempt.kept]
        assignment = replace(assignment, started_from=context.files(starting_program(kept) or state["first"]))
    review = complete_citations(engineer.review(assignment, draft, evidence), docs)
    return review.model_copy(update={"whole": whole})


def _without_engineer(attempt: Attempt, verdict: RouteVerdict, why: str) -> Review:
    bottleneck = attempt.diagnosis or "nobody has read the evidence"
    return Review(bottleneck=bottleneck, suggestion="none", route=verdict.route, skipped=why)
