"""What a review leads to: a defect to a repair or a mark; `replan` and `done` are followed where no rule forbids them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stitchcuda.cli.summary import summary
from stitchcuda.engineers import Assignment, Draft
from stitchcuda.engineers.prompt import coder_prompt, planner_prompt, verifier_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.errors import OutOfBudget
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, BuildResult, DeviceFacts, Evidence, Plan, Review
from tests.graph.tiny import SIM, Script, ScriptedEngineer, TinyHands, tiny_session

GPU = SIM.model_copy(update={"target": "cuda", "measured": True})
ROOM = PromptBudget(TokenCounter("unknown"))
RACE = "kernels/a.cu: row is written again with no barrier after it was read"


class Reviewer(ScriptedEngineer):
    """Reviews as it is told, by task and draft: "a0" is the first draft of task a. A later plan has no tasks."""

    def __init__(self, script: Script, reviews: Mapping[str, dict[str, Any]]) -> None:
        super().__init__(script)
        self.reviews = reviews
        self.asked: list[Assignment] = []

    def plan(self, brief: Any) -> Plan:
        plan = super().plan(brief)
        return plan if len(self.briefs) == 1 else plan.model_copy(update={"tasks": ()})

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        self.asked.append(assignment)
        usual = super().review(assignment, draft, evidence)
        return usual.model_copy(update=self.reviews.get(f"{assignment.task.id}{assignment.ordinal}", {}))

    @property
    def asked_for(self) -> list[str]:
        return [f"{assignment.task.id}{assignment.ordinal}" for assignment in self.asked]


def ended(
    folder: Path, script: Script, reviews: Mapping[str, dict[str, Any]], device: DeviceFacts = SIM, **settings: Any
) -> tuple[Session, Reviewer, list[Attempt], list[Review]]:
    engineer = Reviewer(script, reviews)
    tools = TinyHands(device, timed=device.target == "cuda")
    session = tiny_session(folder, **settings).run(device=device.target, engineer=engineer, tools=tools)
    attempts = list(session.attempts())
    read = [Review.model_validate_json(session.home.store.get(attempt.review)) for attempt in attempts]
    return session, engineer, attempts, read


def report_of(session: Session) -> str:
    path = session.outcome().report
    assert path is not None
    return Path(path).read_text()


def test_a_named_defect_is_repaired_once_and_then_forgotten(tmp_path: Path) -> None:
    reviews = {"a0": {"defect": RACE, "route": "code"}}
    session, engineer, attempts, _ = ended(tmp_path, {"a": ["saves 0.2", "saves 0.3"], "b": ["saves 0.1"]}, reviews)
    assert [(a.task, a.ordinal, a.route, a.defect) for a in attempts] == [
        ("a", 0, "code", RACE), ("a", 1, "next_task", ""), ("b", 0, "next_task", ""),
    ]  # fmt: skip
    assert "the review names a defect" in attempts[0].route_reason
    repair, after = engineer.assignments[1], engineer.assignments[2]
    assert f"which the tools did not find: {RACE}" in coder_prompt(repair, ROOM)
    assert after.brief.defects == ()
    assert "Defects that reviews named" not in report_of(session)


def test_a_defect_that_is_named_again_marks_the_attempt_and_goes_with_the_session(tmp_path: Path) -> None:
    named = {"defect": RACE, "route": "code"}
    reviews = {"a0": named, "a1": named, "b0": {"route": "replan"}}
    script: Script = {"a": ["saves 0.2", "saves 0.3"], "b": ["saves 0.1"], "c": ["saves 0.1"]}
    session, engineer, attempts, read = ended(tmp_path, script, reviews)
    assert [(a.route, a.kept, bool(a.defect)) for a in attempts[:2]] == [("code", True, True), ("next_task", True, True)]
    assert read[1].overruled == "code was proposed, rule 2 forbids it: correct; nothing can be timed here"
    line = f"a #1: {RACE}"
    assert engineer.assignments[2].brief.defects == (line,)
    assert line in coder_prompt(engineer.assignments[2], ROOM)
    assert line in planner_prompt(engineer.briefs[-1], ROOM)
    assert f"## Defects that reviews named and nobody repaired\n\n- {line}\n" in report_of(session)


def test_the_last_review_is_told_of_open_defects_and_may_find_them_gone(tmp_path: Path) -> None:
    named = {"defect": RACE, "route": "code"}
    script: Script = {"a": ["saves 0.2", "saves 0.3"], "b": ["saves 0.1"]}
    session, engineer, _, _ = ended(tmp_path, script, {"a0": named, "a1": named})
    last = engineer.asked[-1]
    text = verifier_prompt(last, Draft(files=last.program), Evidence(build=BuildResult(ok=True)), ROOM)
    assert f"Name again what the program still has:\n- a #1: {RACE}" in text
    assert "Defects that reviews named" not in report_of(session)


def test_a_repair_may_cost_a_part_of_what_the_defective_program_saved(tmp_path: Path) -> None:
    reviews = {"a0": {"defect": RACE, "route": "code"}}
    _, _, attempts, _ = ended(tmp_path, {"a": ["saves 0.2", "saves 0.18"]}, reviews, GPU)
    assert [(a.kept, a.defect) for a in attempts] == [(True, RACE), (True, "")]
    again = reviews | {"a1": {"defect": RACE, "route": "code"}}
    (tmp_path / "again").mkdir()
    _, _, attempts, _ = ended(tmp_path / "again", {"a": ["saves 0.2", "saves 0.18"]}, again, GPU)
    assert [(a.kept, bool(a.defect)) for a in attempts] == [(True, True), (False, True)], "it repaired nothing and is slower"


def test_a_goal_waits_for_a_repair(tmp_path: Path) -> None:
    script: Script = {"a": ["saves 0.6", "saves 0.58"], "b": ["saves 0.1"]}
    session, _, attempts, _ = ended(tmp_path, script, {"a0": {"defect": RACE}}, GPU, goal=2.0)
    assert [a.defect for a in attempts] == [RACE, ""]
    assert "goal reached" in str(session.state()["stop_reason"])


def test_done_and_replan_of_a_review_are_followed(tmp_path: Path) -> None:
    script: Script = {"a": ["saves 0.2"], "b": ["saves 0.3"]}
    session, _, attempts, read = ended(tmp_path, script, {"a0": {"route": "done", "bottleneck": "the rest is a view"}})
    assert [(a.task, a.route) for a in attempts] == [("a", "done")]
    assert (read[0].overruled, session.outcome().accepted) == ("", True)
    assert session.state()["stop_reason"] == "the review asks for it: the rest is a view"
    (tmp_path / "replan").mkdir()
    _, engineer, attempts, _ = ended(tmp_path / "replan", script, {"a0": {"route": "replan"}})
    assert ([a.task for a in attempts], len(engineer.briefs)) == (["a"], 2)


def test_a_rule_that_forbids_a_proposal_is_named(tmp_path: Path) -> None:
    _, _, attempts, read = ended(tmp_path, {"a": ["saves 0.2"], "b": ["saves 0.1"]}, {"a0": {"route": "done"}}, GPU, goal=3.0)
    assert [a.task for a in attempts] == ["a", "b"]
    assert read[0].overruled.startswith("done was proposed, rule 6 forbids it: ")
    assert "the goal of 3x is not reached" in read[0].overruled


def test_suggestions_that_nobody_followed_go_to_planner_coder_and_report(tmp_path: Path) -> None:
    script: Script = {"a": ["saves 0.2"], "b": ["saves 0.1"]}
    session, engineer, _, _ = ended(tmp_path, script, {"a0": {"suggestion": "use 16-byte loads"}})
    line = "a #0: use 16-byte loads"
    assert line in coder_prompt(engineer.assignments[1], ROOM)
    assert f"## Suggestions that nobody followed\n\n- {line}\n" in report_of(session)


def test_a_review_that_cannot_matter_is_not_asked_for_and_the_last_one_is_of_the_whole(tmp_path: Path) -> None:
    script: Script = {"a": ["saves 0.2"], "b": ["saves 0.3"], "c": ["wrong"]}
    _, engineer, attempts, read = ended(tmp_path, script, {}, max_attempts=3)
    assert engineer.asked_for == ["a0", "b0"], "the session ends with c, which is wrong"
    assert [review.whole for review in read] == [False, False, False]
    assert read[2].skipped == "its program is not correct, and the session ends"
    assert attempts[2].diagnosis == "y is off by 0.25"
    (tmp_path / "whole").mkdir()
    _, engineer, _, read = ended(tmp_path / "whole", {"a": ["saves 0.2"], "b": ["saves 0.3"]}, {})
    assert [review.whole for review in read] == [False, True]
    assert [assignment.started_from is None for assignment in engineer.asked] == [True, False]
    assert "drafts.txt" not in (engineer.asked[1].started_from or {}), "the program before both tasks"


def test_a_failure_at_the_last_task_of_a_plan_is_reviewed(tmp_path: Path) -> None:
    _, engineer, _, read = ended(tmp_path, {"a": ["wrong", "saves 0.2"]}, {"a0": {"bottleneck": "an index"}})
    assert engineer.asked_for == ["a0", "a1"]
    assert [(review.bottleneck, review.whole) for review in read] == [("an index", False), ("none", True)]


def asked_so(assignment: Assignment) -> str:
    return verifier_prompt(assignment, Draft(files=assignment.program), Evidence(build=BuildResult(ok=True)), ROOM)


def test_a_session_that_ends_before_a_review_says_so(tmp_path: Path) -> None:
    class Unpaid(Reviewer):
        def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
            raise OutOfBudget("a call may cost $2, $1 is left")

    engineer = Unpaid({"a": ["saves 0.2"], "b": ["saves 0.1"]}, {})
    session = tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands())
    (attempt,) = session.attempts()
    assert attempt.unreviewed == "the session ended first (budget: a call may cost $2, $1 is left)"
    line = f"a #0: this program was not reviewed: {attempt.unreviewed}"
    assert f"## Reviews that are missing\n\n- {line}\n" in report_of(session)
    assert f"open:    {line}" in summary(session)
    assert line in findings_of(session).card.notes


def test_a_finding_that_is_open_at_the_end_is_shown(tmp_path: Path) -> None:
    reviews = {"a0": {"defect": RACE, "route": "code"}}
    session, engineer, _, _ = ended(tmp_path, {"a": ["saves 0.2", "saves 0.3"]}, reviews, max_attempts=1)
    assert f"open:    defect that nobody repaired: a #0: {RACE}" in summary(session)
    text = asked_so(engineer.asked[0])
    assert "Attempts of this session: 1 made, with this one; 0 left." in text
    assert "The session ends with this attempt (budget spent: 1 attempt)" in text
    assert "no draft repairs it now (budget spent: 1 attempt)" in text
    assert "No other word has an effect here" in text
    assert "`code`" not in text
    (tmp_path / "slow").mkdir()
    reviews = {"a0": {"suggestion": "use 16-byte loads", "route": "code"}}
    session, _, attempts, _ = ended(tmp_path / "slow", {"a": ["saves 0.05", "saves 0.3"]}, reviews, GPU, max_attempts=1)
    assert [attempt.route for attempt in attempts] == ["code"]
    assert "## Suggestions that nobody followed\n\n- a #0: use 16-byte loads\n" in report_of(session)
    assert "open:    1 suggestion of reviews that nobody followed" in summary(session)


def test_a_review_is_offered_the_routes_that_have_an_effect(tmp_path: Path) -> None:
    reviews = {"a0": {"defect": RACE, "route": "code"}, "a1": {"defect": RACE, "route": "code"}}
    script: Script = {"a": ["saves 0.2", "saves 0.3"], "b": ["saves 0.1"]}
    _, engineer, _, _ = ended(tmp_path, script, reviews, max_attempts=9)
    first, second, _ = (assignment.choice for assignment in engineer.asked)
    assert first is not None
    assert second is not None
    assert (first.follows, first.others, first.no_code, first.left) == ("next_task", ("code", "replan", "done"), "", 8)
    assert (second.others, second.no_code) == (("replan", "done"), "this task has had its repair")


def test_a_suggestion_that_a_later_review_calls_settled_leaves_the_list(tmp_path: Path) -> None:
    line = "a #0: use 16-byte loads"
    script: Script = {"a": ["saves 0.2"], "b": ["saves 0.1"], "c": ["saves 0.1"]}
    reviews: dict[str, dict[str, Any]] = {"a0": {"suggestion": "use 16-byte loads"}, "b0": {"settled": (line,)}}
    session, engineer, _, _ = ended(tmp_path, script, reviews)
    assert [assignment.brief.suggestions for assignment in engineer.asked] == [(), (line,), ()]
    text = asked_so(engineer.asked[1])
    assert f"## Suggestions of earlier reviews that are open\n1. {line}\n" in text
    assert "Suggestions that nobody followed" not in report_of(session)


def test_what_a_repaired_task_saved_is_said_as_a_whole(tmp_path: Path) -> None:
    reviews = {"a0": {"defect": RACE, "route": "code"}}
    session, _, attempts, _ = ended(tmp_path, {"a": ["saves 0.2", "saves 0.18"]}, reviews, GPU)
    assert [round(attempt.saving_ms or 0.0, 3) for attempt in attempts] == [0.2, -0.02]
    assert "+ a: task a; saved 0.18" in summary(session)
    assert "measured 0.18 ms (a call takes 0.82 ms)" in report_of(session)
