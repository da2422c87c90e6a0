"""The plan tree: each branch of the plans once, with what was expected and measured of it, and why it was left."""

from __future__ import annotations

from stitchcuda.engineers import Draft
from stitchcuda.engineers.plan_tree import plan_branches, plan_tree_text
from stitchcuda.engineers.prompt import coder_prompt, verifier_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import Attempt, Plan, Structure, Task
from tests.engineers.briefs import ATTEMPT, PROGRAM, RIGHT, TASK, assignment

ROOM = PromptBudget(TokenCounter("unknown"))
NAMES = ("one-kernel", "two-kernels", "library")
STRUCTURES = tuple(Structure(name=name, strategy=f"write {name}", predicted_ms=0.1) for name in NAMES)
COMPETED = TASK.model_copy(update={"structures": STRUCTURES})
LATER = Task(id="later", kind="host", title="later", predicted_ms=0.2)
PLAN = Plan(version=1, tasks=(COMPETED, LATER), summary="Two tasks.", engineer="openai:x")


def attempt(structure: str, **more: object) -> Attempt:
    return ATTEMPT.model_copy(update={"structure": structure, "diagnosis": "", **more})


WON = attempt("two-kernels", correct=True, kept=True, saving_ms=0.08, program_ms=0.3)
LOST = attempt(
    "one-kernel", correct=True, beside=True, saving_ms=0.03, program_ms=0.35, route_reason="candidate 1 of 2"
)


def test_each_branch_says_what_became_of_it() -> None:
    assert plan_tree_text([PLAN], [LOST, WON], ("r01",)).splitlines() == [
        "Plan 1: Two tasks.",
        "- r01 / one-kernel: claimed 0.1 ms, measured 0.03 ms (a call takes 0.35 ms); left after 1 draft "
        "(candidate 1 of 2)",
        "- r01 / two-kernels: claimed 0.1 ms, measured 0.08 ms (a call takes 0.3 ms); kept after 1 draft",
        "- r01 / library: claimed 0.1 ms; not tried (two-kernels was kept)",
        "- later: claimed 0.2 ms; not tried",
    ]


def test_drafts_of_no_structure_are_a_branch_too() -> None:
    names = [branch.structure for branch in plan_branches([PLAN], [attempt("", route_reason="not correct")], ())]
    assert names == [*NAMES, "", ""]


def test_a_plan_that_was_left_says_so() -> None:
    second = PLAN.model_copy(update={"version": 2, "tasks": (), "summary": "Nothing is left."})
    text = plan_tree_text([PLAN, second], [WON], ("r01",))
    assert "- later: claimed 0.2 ms; not tried (the plan went on without it)" in text
    assert text.endswith("Plan 2: no tasks. Nothing is left.")
    assert plan_tree_text([], [], ()) == ""


def test_a_coder_is_given_its_structure_and_told_which_compete() -> None:
    text = coder_prompt(assignment(task=COMPETED, plan=PLAN, structure="library", candidate=2, candidates=3), ROOM)
    assert "Structure: yours is `library`: write library (It competes with one-kernel, two-kernels: do not" in text
    assert "Yours is number 3: the structure library." in text
    assert "Saving: the planner claims that it saves 0.1 ms; at its best, as one kernel, it can by the cost model save" in text
    free = coder_prompt(assignment(task=COMPETED, plan=PLAN), ROOM)
    assert "- two-kernels: write two-kernels" in free
    judged = verifier_prompt(assignment(task=COMPETED, plan=PLAN, structure="library"), Draft(files=PROGRAM), RIGHT, ROOM)
    assert "Structure `library`, one of several that compete." in judged
