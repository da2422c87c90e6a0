"""The routing rules as a table: what an attempt's figures lead to."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest

from stitchcuda.graph import routes
from stitchcuda.nodes.route_request import AttemptStanding
from stitchcuda.state import Attempt, BuildResult, CheckResult, Evidence, Review, Settings, Task, TimingResult, Usage


def attempt(**facts: Any) -> Attempt:
    base = {
        "id": "a", "parent": None, "base": None, "task": "r00", "plan_version": 1, "ordinal": 0, "program": "p",
        "evidence": "e", "review": "r", "tier": "timed", "built": True, "correct": False, "kept": False, "route": "code",
        "route_reason": "", "predicted_ms": 1.0, "fingerprint": "",
    }  # fmt: skip
    return Attempt.model_validate(base | facts)


def failed(fingerprint: str, structure: str = "") -> Attempt:
    return attempt(fingerprint=fingerprint, structure=structure)


def paid(saving: float, program: float, kept: bool = True) -> Attempt:
    return attempt(correct=True, kept=kept, saving_ms=saving, program_ms=program)


CORRECT: dict[str, Any] = {
    "built": True, "correct": True, "fingerprint": "", "predicted_ms": 1.0, "saving_ms": None, "program_ms": None,
}  # fmt: skip
WRONG = {"correct": False, "fingerprint": "e1"}
IN_B = WRONG | {"structure": "b"}
TIMED = {"saving_ms": 0.8, "program_ms": 3.2}
TABLE: list[tuple[str, dict[str, Any], str, str]] = [
    # what,                                 how it differs from a correct untimed attempt,                        route, reason
    ("first failure", WRONG, "code", "not correct"),
    ("does not build", WRONG | {"built": False}, "code", "not built"),
    ("same error twice", WRONG | {"earlier": (failed("e1"),)}, "code", "not correct"),
    ("same error three times", WRONG | {"earlier": (failed("e1"), failed("e1"))}, "replan", "same error 3 times"),
    ("same error, apart", WRONG | {"earlier": (failed("e1"), failed("e2"), failed("e1"))}, "replan", "same error 3 times"),
    ("three different errors", WRONG | {"earlier": (failed("e2"), failed("e3"))}, "code", "not correct"),
    ("four failures", WRONG | {"earlier": (failed("e2"), failed("e3"), failed("e4"))}, "replan", "4 failures"),
    ("same error in another structure", IN_B | {"earlier": (failed("e1", "a"), failed("e1", "a"))}, "code", "not correct"),
    ("same error of its own", IN_B | {"earlier": (failed("e1", "b"), failed("e1", "a"), failed("e1", "b"))}, "replan", "3"),
    ("failures of others", IN_B | {"earlier": tuple(failed(name, "a") for name in ("e2", "e3", "e4"))}, "code", "not correct"),
    ("failures without a message", WRONG | {"fingerprint": "", "earlier": (failed(""), failed(""))}, "code", "not correct"),
    ("again after a replan", WRONG | {"earlier": (failed("e1"), failed("e1")), "replanned": True}, "next_task", "dropped"),
    ("simulator", {}, "next_task", "nothing can be timed"),
    ("simulator after failures", {"earlier": (failed("e1"), failed("e1"), failed("e1"))}, "next_task", "nothing can be timed"),
    ("pays as predicted", TIMED, "next_task", "of 1.0000 ms predicted"),
    ("pays exactly 70 %", TIMED | {"saving_ms": 0.7}, "next_task", "0.7000 ms"),
    ("pays 69 %", TIMED | {"saving_ms": 0.69}, "code", "saves only"),
    ("pays together with a kept draft", TIMED | {"saving_ms": 0.3, "earlier": (paid(0.4, 3.5),)}, "next_task", "0.7000 ms"),
    ("a draft not kept adds nothing", TIMED | {"saving_ms": 0.3, "earlier": (paid(0.6, 3.4, kept=False),)}, "code", "0.3000"),
    ("two alike", TIMED | {"saving_ms": 0.1, "earlier": (paid(0.0, 4.0, kept=False),)}, "next_task", "two correct attempts"),
    ("alike on a slower host", TIMED | {"saving_ms": 0.1, "earlier": (paid(0.0, 8.0, False),)}, "next_task", "two correct"),
    ("two not alike", TIMED | {"saving_ms": 0.6, "earlier": (paid(0.0, 4.0, kept=False),)}, "code", "saves only"),
    ("alike, failed between", TIMED | {"saving_ms": 0.1, "earlier": (paid(0, 4.0, False), failed("e"))}, "next_task", "two"),
    ("little on top of a kept one", TIMED | {"saving_ms": 0.1, "earlier": (paid(0.5, 3.3),)}, "next_task", "two correct"),
    ("much on top of a kept one", TIMED | {"saving_ms": 0.3, "earlier": (paid(0.3, 3.5),)}, "code", "saves only"),
    ("slower", TIMED | {"saving_ms": -0.2}, "code", "saves only"),
    ("no figures, twice", {"saving_ms": 0.0, "program_ms": 0.0, "earlier": (paid(0.0, 0.0, False),)}, "next_task", "two"),
    ("second miss, too good", TIMED | {"saving_ms": 2.5, "missed": 1}, "replan", "missed by more than 2x on 2 tasks"),
    ("first miss, too good", TIMED | {"saving_ms": 2.5}, "next_task", "2.5000 ms"),
    ("second miss, too little", TIMED | {"saving_ms": 0.1, "missed": 1, "earlier": (paid(0.1, 3.3),)}, "replan", "missed"),
    ("no prediction, no miss", TIMED | {"predicted_ms": 0.0, "missed": 1}, "next_task", "0.8000 ms"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "facts", "route", "reason"), TABLE, ids=[row[0] for row in TABLE])
def test_verdict(what: str, facts: dict[str, Any], route: str, reason: str) -> None:
    verdict = routes.verdict_route(AttemptStanding(**(CORRECT | facts)))
    assert verdict.route == route
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("predicted", "saved", "missed"),
    [(1.0, 2.0, False), (1.0, 2.01, True), (1.0, 0.5, False), (1.0, 0.49, True), (1.0, -1.0, True), (0.0, 5.0, False)],
)
def test_a_prediction_is_missed_by_more_than_2x_in_either_direction(predicted: float, saved: float, missed: bool) -> None:
    assert routes.prediction_missed(predicted, saved) is missed


def timing(saving: float, low: float) -> TimingResult:
    return TimingResult(
        reference_ms=2, previous_ms=1, program_ms=1 - saving, saving_ms=saving, saving_low_ms=low, saving_high_ms=1, samples=9
    )


@pytest.mark.parametrize(
    ("ok", "times", "timed_here", "kept"),
    [
        (True, None, False, True),
        (False, None, False, False),
        (True, timing(0.1, 0.05), True, True),
        (True, timing(0.1, -0.01), True, False),
        (True, timing(-0.1, -0.2), True, False),
        (True, None, True, False),
        (False, timing(0.1, 0.05), True, False),
    ],
)
def test_what_is_kept(ok: bool, times: TimingResult | None, timed_here: bool, kept: bool) -> None:
    evidence = Evidence(build=BuildResult(ok=True), check=CheckResult(ok=ok, tier="timed"), timing=times)
    assert routes.keep(evidence, timed_here=timed_here).kept is kept


def test_a_repair_may_cost_as_much_as_the_defective_program_saved_at_least() -> None:
    evidence = Evidence(build=BuildResult(ok=True), check=CheckResult(ok=True, tier="timed"), timing=timing(-0.02, -0.03))
    assert routes.keep(evidence, timed_here=True, repair_ms=0.05) == (True, ANY, True)
    assert not routes.keep(evidence, timed_here=True, repair_ms=0.03).kept
    assert not routes.keep(evidence, timed_here=True).kept


REVIEWED: list[tuple[str, dict[str, Any], dict[str, Any], str, int]] = [
    # what,                                what differs from a kept untimed attempt, the review,            route, deciding rule
    ("nothing to say", {}, {}, "next_task", 2),
    ("a defect", {}, {"defect": "a race"}, "code", 7),
    ("a defect named again", {"repaired": True}, {"defect": "a race"}, "next_task", 2),
    ("a defect, and done", {}, {"defect": "a race", "route": "done"}, "code", 7),
    ("a defect of what is not kept", TIMED | {"kept": False}, {"defect": "a race"}, "next_task", 3),
    ("a defect of a wrong program", WRONG, {"defect": "a race", "route": "code"}, "code", 1),
    ("code without a defect", {}, {"route": "code"}, "next_task", 2),
    ("replan", {}, {"route": "replan"}, "replan", 8),
    ("replan in place of another draft", TIMED | {"saving_ms": 0.1}, {"route": "replan"}, "replan", 8),
    ("replan after a failure", WRONG, {"route": "replan"}, "replan", 8),
    ("replan after a failure, again", WRONG | {"replanned": True}, {"route": "replan"}, "code", 1),
    ("done", TIMED, {"route": "done"}, "done", 8),
    ("done, below the prediction", TIMED | {"saving_ms": 0.1}, {"route": "done"}, "done", 8),
    ("done, below the goal", TIMED | {"goal_missed": "the goal is not reached"}, {"route": "done"}, "next_task", 6),
    ("done after a failure", WRONG, {"route": "done"}, "code", 1),
    ("done, predictions missed", TIMED | {"saving_ms": 2.5, "missed": 1}, {"route": "done"}, "replan", 5),
    ("next task, below the prediction", TIMED | {"saving_ms": 0.1}, {}, "code", 4),
]  # fmt: skip


@pytest.mark.parametrize(("what", "facts", "said", "route", "rule"), REVIEWED, ids=[row[0] for row in REVIEWED])
def test_what_a_review_changes(what: str, facts: dict[str, Any], said: dict[str, Any], route: str, rule: int) -> None:
    facts = CORRECT | facts
    kept, goal_missed = facts.pop("kept", facts["correct"]), facts.pop("goal_missed", "")
    standing = AttemptStanding(**facts)
    review = Review(**({"bottleneck": "launches", "suggestion": "none", "route": "next_task"} | said))
    found = routes.follow_review(standing, routes.verdict_route(standing), review, kept=kept, goal_missed=goal_missed)
    assert (found.route, found.rule) == (route, rule)
    assert goal_missed in found.reason


@pytest.mark.parametrize(
    ("facts", "ends", "why"),
    [
        ({}, False, ""),
        ({}, True, ""),
        ({"twin": "#2"}, False, "it does the same as attempt #2"),
        (WRONG, False, ""),
        (WRONG, True, "the session ends"),
        (WRONG | {"earlier": (failed("e1"), failed("e1"))}, False, ""),
        (WRONG | {"earlier": (failed("e1"), failed("e1")), "replanned": True}, False, "the task is dropped"),
    ],
)
def test_when_a_review_cannot_matter(facts: dict[str, Any], ends: bool, why: str) -> None:
    standing = AttemptStanding(**(CORRECT | facts))
    found = routes.needless_review(standing, routes.verdict_route(standing), ends=ends)
    assert (why in found) if why else found == ""


def test_what_was_never_checked_is_not_kept() -> None:
    assert not routes.keep(Evidence(build=BuildResult(ok=False)), timed_here=False).kept


BIG, SMALL = (Task(id=name, kind="region", title="", predicted_ms=ms) for name, ms in (("big", 0.5), ("small", 0.004)))
GPU = Settings(target="cuda")
GOES_ON: dict[str, Any] = {
    "route": "next_task", "left": (BIG,), "runtime_ms": 1.0, "speedup": 1.2, "settings": Settings(), "attempts": 3,
    "usage": Usage(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"left": ()}, "no task left"),
        ({"left": (SMALL,), "settings": GPU}, "no task left worth 0.5% of the runtime"),
        ({"left": (SMALL, SMALL), "settings": GPU}, None),
        ({"left": (SMALL,)}, None),
        ({"left": (SMALL, BIG)}, None),
        ({"left": (), "route": "code"}, None),
        ({"left": (), "route": "replan"}, None),
        ({"settings": Settings(goal=1.2)}, "goal reached: 1.20x"),
        ({"settings": Settings(goal=1.2), "route": "code"}, "goal reached: 1.20x"),
        ({"settings": Settings(goal=1.2), "route": "code", "repairs": True}, None),
        ({"settings": Settings(goal=1.3)}, None),
        ({"settings": Settings(goal=1.2), "speedup": None}, None),
        ({"attempts": 30, "route": "code"}, "budget spent: 30 attempts"),
        ({"spent": "$5.00 of $5.00", "route": "replan"}, "budget spent: $5.00 of $5.00"),
        ({"settings": Settings(max_gpu_s=9), "usage": Usage(gpu_s=9)}, "budget spent: 9 GPU seconds"),
        ({"settings": Settings(max_minutes=1), "usage": Usage(wall_s=60)}, "budget spent: 1.0 minutes"),
        ({"settings": Settings(max_minutes=1), "usage": Usage(wall_s=59)}, None),
    ],
)
def test_when_a_session_stops(facts: dict[str, Any], reason: str | None) -> None:
    stop = routes.stop(**(GOES_ON | facts))
    assert (stop.reason if stop else None) == reason
    if stop:
        assert stop.left_over == reason.startswith("no task left"), "only for want of tasks may another engineer know more"  # type: ignore[union-attr]
