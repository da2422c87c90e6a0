"""Structures that compete for a task: several candidates follow one each, the losers stay in the ledger with their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.engineers.prompt import verifier_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.nodes import search_docs
from stitchcuda.nodes.brief import GIVEN_UP, structures_to_follow
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import Documented
from stitchcuda.state import Attempt, Evidence, Plan, Review, State, Structure, Task
from tests.engineers.briefs import ATTEMPT, NOT_BUILT
from tests.graph.tiny import SIM, ScriptedEngineer, TinyHands, tiny_session

GPU = SIM.model_copy(update={"target": "cuda", "measured": True})
STRUCTURES = tuple(Structure(name=name, strategy=f"write {name}", predicted_ms=0.2) for name in ("one", "two", "library"))
TASK = Task(id="a", kind="region", title="task a", predicted_ms=0.2, structures=STRUCTURES)


class Competing(ScriptedEngineer):
    """Its script says for each structure what its drafts are; "" for drafts that choose."""

    def __init__(self, script: dict[str, list[str]], task: Task = TASK) -> None:
        super().__init__(script)
        self.task = task
        self.reviewed: list[Assignment] = []

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        self.reviewed.append(assignment)
        return super().review(assignment, draft, evidence)

    def plan(self, brief: Brief) -> Plan:
        self.briefs.append(brief)
        return Plan(version=0, tasks=(self.task,) if len(self.briefs) == 1 else ())

    def write(self, assignment: Assignment) -> Draft:
        self.assignments.append(assignment)
        drafts = self.script[assignment.structure]
        before = [attempt for attempt, _ in assignment.earlier if attempt.structure == assignment.structure]
        word = drafts[min(len(before), len(drafts) - 1)]
        return Draft(files=dict(assignment.program) | {"drafts.txt": f"a {word}\n"}, note=f"{assignment.structure} {word}")


def ran(folder: Path, script: dict[str, list[str]], candidates: int) -> tuple[list[Attempt], str, Competing]:
    engineer = Competing(script)
    session = tiny_session(folder, "tiny", candidates=candidates)
    session.run(engineer=engineer, device="cuda", tools=TinyHands(GPU, timed=True))
    return list(session.attempts()), (session.folder / "report.md").read_text(), engineer


def test_each_structure_is_drafted_and_the_losers_stay_with_their_times(tmp_path: Path) -> None:
    script = {"one": ["saves 0.1"], "two": ["saves 0.3"], "library": ["wrong"], "": ["saves 0.2"]}
    attempts, report, engineer = ran(tmp_path, script, candidates=4)
    assert {attempt.structure: attempt.saving_ms and round(attempt.saving_ms, 3) for attempt in attempts} == {
        "one": 0.1, "two": 0.3, "library": None, "": 0.2,
    }  # fmt: skip
    assert [attempt.structure for attempt in attempts if attempt.kept] == ["two"]
    assert sorted(given.structure for given in engineer.assignments) == ["", "library", "one", "two"]
    tree = report.split("## Plan tree")[1].split("\n## ")[0]
    assert "- a / two: claimed 0.2 ms, measured 0.3 ms (a call takes 0.7 ms); kept after 1 draft" in tree
    assert "- a / one: claimed 0.2 ms, measured 0.1 ms (a call takes 0.9 ms); left after 1 draft" in tree
    assert "- a / library: claimed 0.2 ms, not timed; left after 1 draft" in tree


def test_one_candidate_tries_them_in_turn_until_one_gives_what_it_should(tmp_path: Path) -> None:
    script = {"one": ["wrong", "saves 0.05"], "two": ["saves 0.3"], "library": ["saves 0.9"]}
    attempts, report, _ = ran(tmp_path, script, candidates=1)
    assert [(attempt.structure, attempt.correct) for attempt in attempts] == [("one", False), ("one", True), ("two", True)]
    assert "- a / one: claimed 0.2 ms, measured 0.05 ms (a call takes 0.95 ms); left after 2 drafts (two took" in report
    assert "- a / library: claimed 0.2 ms; not tried (two was kept)" in report


def drafted(*named: tuple[str, bool]) -> list[Attempt]:
    return [ATTEMPT.model_copy(update={"structure": name, "correct": correct}) for name, correct in named]


@pytest.mark.parametrize(
    ("earlier", "count", "wanted"),
    [
        ([], 1, ("one",)),
        ([], 2, ("one", "two")),
        ([], 5, ("one", "two", "library")),
        ([("one", False)], 1, ("one",)),
        ([("one", False)], 2, ("one", "two")),
        ([("one", False)] * GIVEN_UP, 1, ("two",)),
        ([("one", True)], 1, ("two",)),
        ([("one", True), ("two", True), ("library", True)], 2, ("library",)),
    ],
)
def test_which_are_followed_next(earlier: list[tuple[str, bool]], count: int, wanted: tuple[str, ...]) -> None:
    assert structures_to_follow(TASK, drafted(*earlier), count) == wanted


def test_a_task_without_structures_leaves_the_choice_to_the_coder() -> None:
    plain = TASK.model_copy(update={"structures": ()})
    assert structures_to_follow(plain, [], 3) == ()
    assert structures_to_follow(plain, drafted(("", False)), 3) == ()


def test_a_draft_is_judged_by_what_its_structure_is_predicted_to_save(tmp_path: Path) -> None:
    modest = (Structure(name="one", strategy="write one", predicted_ms=0.05), *STRUCTURES[1:])
    competing = Competing({"one": ["saves 0.05"]}, TASK.model_copy(update={"structures": modest}))
    session = tiny_session(tmp_path, "tiny", candidates=1)
    session.run(engineer=competing, device="cuda", tools=TinyHands(GPU, timed=True))
    (attempt,) = session.attempts()
    assert (attempt.structure, attempt.predicted_ms, attempt.route) == ("one", 0.05, "next_task")
    assert attempt.route_reason == "saves 0.0500 ms of 0.0500 ms predicted"
    prompt = verifier_prompt(competing.reviewed[0], Draft(files={}), NOT_BUILT, PromptBudget(TokenCounter("unknown")))
    assert "saves 0.05 ms" in prompt


@pytest.mark.parametrize("candidates", [1, 2])
def test_documentation_is_searched_by_the_error_of_the_same_structure(
    tmp_path: Path, candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is the error that was searched with."""

    def found(state: State, context: Context, task: Task, about: str, error: str, review: object, draft: object) -> Documented:
        return Documented(f"on {error}" if error else "on the task")

    monkeypatch.setattr(search_docs, "search_for_draft", found)
    script = {"one": ["build error"], "two": ["wrong", "saves 0.3"], "library": ["saves 0.1"]}
    _, _, engineer = ran(tmp_path, script, candidates)
    docs = {name: [given.docs for given in engineer.assignments if given.structure == name] for name in script}
    errors = {"one": "expected a ';'", "two": "y is off by 0.25"}
    again = [name for name in errors for found_then in docs[name][1:] if errors[name] in found_then]
    assert [len(docs[name]) - 1 for name in errors] == [again.count("one"), again.count("two")]
    assert "two" in again, "and it was tried again"
    assert {docs[name][0] for name in errors} == {"on the task"}
