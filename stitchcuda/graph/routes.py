"""Decides which route follows a verdict, whether a program is kept, and when a session stops.

Rules, the first that applies:

1. Not built or not correct: `code`, with the diagnosis. The same error three times, or four failures, of the structure that
   it follows: `replan`; a task that has failed its way into a replan before is dropped instead (`next_task`), so no session
   turns in circles.
2. Correct, and nothing can be timed here (simulator): `next_task`.
   Correct, but doing what an earlier attempt did: `next_task`.
3. Correct and at least 70 % of the predicted saving: `next_task`.
4. Correct and below that: `code`, with the profile; two correct attempts within 5 % of each other: `next_task`.
5. Predictions missed by more than 2x, either way, on two tasks since the last plan: `replan` instead of `next_task`.
   Two steps in a row whose coders answered nothing that could be used: the task is dropped (`next_task`).
6. Goal reached, a budget spent, or what is left is together worth less than 0.5 % of the runtime: `done`, whatever the route.
   On the simulator every task is tried: a prediction that nothing checks is no reason to leave one out.
   A goal that is reached waits for the repair of a defect (rule 7).
7. Correct and kept, but its review names a defect: `code`, once for each task. The repair is kept if it still saves time
   against the program before the defective one. A defect that is named again is recorded with the attempt, which is kept.
8. Else the route that the review proposes: `replan` (not for a task that failed its way into a replan before), or `done` after
   a correct attempt, unless rule 5 applies or a goal is not reached. Rules 1 to 5 forbid every other proposal.

Pure functions of records. `tests/graph/test_routes.py` has the same rules as a table.

Where to look next: `nodes/verifier.py` and `nodes/advance.py` (call these), `nodes/route_request.py` (arguments and results).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.counts import counted
from stitchcuda.engineers import RouteChoice
from stitchcuda.nodes.route_request import AttemptStanding, KeepDecision, RouteVerdict, Stop
from stitchcuda.state import Evidence, Review, Route, Settings, State, Task, Usage

GO_ON = "code / next_task"                 # edge from the verifier to the next draft
SAME_ERROR = 3                             # attempts with the same error
FAILURES = 4                               # attempts that failed, whatever the error
PAID = 0.70                                # share of the predicted saving that counts as reached
ALIKE = 0.05                               # two attempts that differ by no more are alike
UNUSABLE = 2                               # consecutive steps without a usable reply
MISSED_BY = 2.0                            # factor by which a prediction is missed
MISSES = 2                                 # missed predictions
WORTH = 0.005                              # share of the runtime that the remaining tasks must promise together


def keep(evidence: Evidence, *, timed_here: bool, repair_ms: float = 0.0) -> KeepDecision:
    """Decides whether the attempt's program becomes the session's. `timed_here`: this target can time programs. A correct
    program is kept if the whole 95 % interval of its saving is above zero, or if nothing can be timed here. `repair_ms`: what
    the program that it repairs saves at least; a repair may cost that much."""
    if not evidence.check or not evidence.check.ok:
        return KeepDecision(False, "not correct")
    if not timed_here:
        return KeepDecision(True, "correct; its saving is a prediction until a GPU times it")
    if evidence.timing is None:
        return KeepDecision(False, "correct but not timed, so nothing shows that it pays")
    if evidence.timing.saving_low_ms <= 0 < evidence.timing.saving_low_ms + repair_ms:
        cost = max(-evidence.timing.saving_ms, 0.0)
        reason = f"repairs a defect for {cost:.4f} ms; what it repairs saved at least {repair_ms:.4f} ms"
        return KeepDecision(True, reason, repairs=True)
    if evidence.timing.saving_low_ms <= 0:
        return KeepDecision(False, f"correct but does not pay: saves {evidence.timing.saving_ms:.4f} ms, which may be none")
    return KeepDecision(True, f"saves {evidence.timing.saving_ms:.4f} ms against the program before it")


def verdict_route(standing: AttemptStanding) -> RouteVerdict:
    """Applies rules 1 to 5 to an attempt, before anybody reviews it. Never returns `done`."""
    missed = standing.missed
    if standing.twin and standing.correct:
        return RouteVerdict("next_task", f"it does the same as attempt {standing.twin}: there is nothing new", missed, rule=2)
    if not standing.correct:
        return _failed(standing)
    if standing.saving_ms is None:
        return RouteVerdict("next_task", "correct; nothing can be timed here", missed, rule=2)
    saved = standing.saving_ms + sum(attempt.saving_ms or 0.0 for attempt in standing.earlier if attempt.kept)
    rule = 3 if saved >= PAID * standing.predicted_ms else 4
    if rule == 3:
        reason = f"saves {saved:.4f} ms of {standing.predicted_ms:.4f} ms predicted"
    elif _alike(standing):
        reason = f"two correct attempts within {ALIKE:.0%}: this task gives no more than {saved:.4f} ms"
    else:
        reason = f"correct but saves only {saved:.4f} ms of {standing.predicted_ms:.4f} ms predicted"
        return RouteVerdict("code", reason, missed, rule=4)
    missed += prediction_missed(standing.predicted_ms, saved)
    if missed >= MISSES:
        reason = f"{reason}; predictions missed by more than {MISSED_BY:g}x on {missed} tasks"
        return RouteVerdict("replan", reason, missed, rule=5)
    return RouteVerdict("next_task", reason, missed, rule)


def needless_review(standing: AttemptStanding, verdict: RouteVerdict, *, ends: bool) -> str:
    """Returns why no review could change what follows or be read by anybody, in one sentence; "" if one is to be asked for.
    `verdict`: of rules 1 to 5. `ends`: the session ends with this attempt."""
    if standing.twin:
        return f"it does the same as attempt {standing.twin}, which has a review"
    if not standing.correct and (ends or verdict.route == "next_task"):
        return f"its program is not correct, and the {'session ends' if ends else 'task is dropped'}"
    return ""


def offer_routes(
    standing: AttemptStanding, verdict: RouteVerdict, *, kept: bool, goal_missed: str, ends: str
) -> RouteChoice:
    """Returns what a review may propose, found by asking `follow_review`. `ends`: why the session ends with this attempt,
    whatever is proposed; other arguments as for `follow_review`."""

    def leads_to(route: Route) -> Route:
        named = "a defect" if route == "code" else ""   # without one another round is not proposed, but decided by rules 1 to 4
        review = Review(bottleneck="", suggestion="", route=route, defect=named)
        return follow_review(standing, verdict, review, kept=kept, goal_missed=goal_missed).route

    words: tuple[Route, ...] = ("code", "replan", "done")
    others = () if ends else tuple(route for route in words if route != verdict.route and leads_to(route) == route)
    no_code = ""
    if "code" not in (*others, verdict.route):
        unrepaired = "this task has had its repair" if kept else "the draft is not kept"
        no_code = ends or (unrepaired if standing.correct else verdict.reason)
    return RouteChoice(verdict.route, verdict.reason, others, no_code, ends)


def follow_review(
    standing: AttemptStanding, verdict: RouteVerdict, review: Review, *, kept: bool, goal_missed: str = ""
) -> RouteVerdict:
    """Applies rules 7 and 8: returns the route after a review, or `verdict` (of rules 1 to 5) where one of these forbids what
    the review proposes. `kept`: the attempt's program is now the session's. `goal_missed`: the goal that is not reached."""
    asks = f"the review asks for it: {review.bottleneck}"
    if kept and review.defect and not standing.repaired:
        return RouteVerdict("code", f"the review names a defect: {review.defect}", standing.missed, rule=7)
    if review.route == "replan" and not (standing.replanned and not standing.correct):
        return verdict if verdict.route == "replan" else RouteVerdict("replan", asks, verdict.missed, rule=8)
    if review.route == "done" and standing.correct and verdict.rule != 5:
        if goal_missed:
            return verdict._replace(reason=f"{verdict.reason}; {goal_missed}", rule=6)
        return RouteVerdict("done", asks, verdict.missed, rule=8)
    return verdict


def prediction_missed(predicted_ms: float, saved_ms: float) -> bool:
    """Whether a saving is off by more than a factor of MISSED_BY, either way. A prediction of 0 cannot be missed."""
    return predicted_ms > 0 and not predicted_ms / MISSED_BY <= saved_ms <= predicted_ms * MISSED_BY


def stop(
    *,
    route: Route,
    left: Sequence[Task],
    runtime_ms: float,
    speedup: float | None,
    settings: Settings,
    attempts: int,
    usage: Usage,
    spent: str | None = None,
    repairs: bool = False,
) -> Stop | None:
    """Applies rule 6: returns why the session ends now, or None.

    `left`: the plan's tasks after this one. `runtime_ms`: of the best program. `attempts`: without those of the start stage.
    `spent`: which budget of model calls is used up. `repairs`: a defect is repaired next, so the goal has to wait. The first
    task of a plan is always tried; what follows has to be worth 0.5 % together, since ten tasks of 1.5 % are 15 %, and small
    predictions were seen to be below what fusion gave in a replayed graph.
    """
    if settings.goal is not None and speedup is not None and speedup >= settings.goal and not repairs:
        return Stop(f"goal reached: {speedup:.2f}x")
    if attempts >= settings.max_attempts:
        return Stop(f"budget spent: {counted(attempts, 'attempt')}")
    if spent:
        return Stop(f"budget spent: {spent}")
    if settings.max_minutes is not None and usage.wall_s >= 60 * settings.max_minutes:
        return Stop(f"budget spent: {usage.wall_s / 60:.1f} minutes")
    if settings.max_gpu_s is not None and usage.gpu_s >= settings.max_gpu_s:
        return Stop(f"budget spent: {usage.gpu_s:.0f} GPU seconds")
    if route != "next_task":
        return None
    if not left:
        return Stop("no task left", left_over=True)
    if settings.target == "cuda" and sum(task.predicted_ms for task in left) < WORTH * runtime_ms:
        return Stop(f"no task left worth {WORTH:.1%} of the runtime", left_over=True)
    return None


def after_build(state: State) -> str:
    """Returns "built" if there is a program to check (also where building was skipped), else "fail"."""
    work = state.get("work")
    return "built" if work and work.build and (work.build.ok or work.build.skipped) else "fail"


def after_check(state: State) -> str:
    """Returns "correct" or "fail"."""
    work = state.get("work")
    return "correct" if work and work.check and work.check.ok else "fail"


def after_verifier(state: State) -> str:
    """Returns the verifier's route; `code` and `next_task` share an edge, since both search documentation before a draft."""
    route = state.get("route") or "done"
    return GO_ON if route in ("code", "next_task") else route


def _failed(standing: AttemptStanding) -> RouteVerdict:
    failures = [each for each in standing.earlier if not each.correct and each.structure == standing.structure]
    same = 1 + sum(bool(standing.fingerprint) and attempt.fingerprint == standing.fingerprint for attempt in failures)
    what = "not correct" if standing.built else "not built"
    if same >= SAME_ERROR:
        reason = f"{what}: the same error {same} times"
    elif len(failures) + 1 >= FAILURES:
        reason = f"{what}: {len(failures) + 1} failures"
    else:
        return RouteVerdict("code", what, standing.missed, rule=1)
    if standing.replanned:
        return RouteVerdict("next_task", f"{reason}, as before the last replan: the task is dropped", standing.missed, rule=1)
    return RouteVerdict("replan", reason, standing.missed, rule=1)


def _alike(standing: AttemptStanding) -> bool:
    """Whether the last correct attempt at this task and this one are within ALIKE of each other. Compared is what each saved of
    the program before it, which is timed side by side. Absolute times of two timings may differ by the state of the host."""
    last = next((attempt for attempt in reversed(standing.earlier) if attempt.correct and attempt.saving_ms is not None), None)
    if last is None:
        return False
    this = _share(standing.saving_ms, standing.program_ms)
    before = 0.0 if last.kept else _share(last.saving_ms, last.program_ms)  # if it was kept, this one was timed against it
    return abs(this - before) <= ALIKE


def _share(saving_ms: float | None, program_ms: float | None) -> float:
    """Returns a program's saving as a share of the time of the program before it; 0 without figures."""
    before = (program_ms or 0.0) + (saving_ms or 0.0)
    return (saving_ms or 0.0) / before if before else 0.0
