"""Structures that compete for a task: several candidates follow one each, the losers stay in the ledger with their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.nodes.brief import GIVEN_UP, structures_to_follow
from stitchcuda.state import Attempt, Plan, Structure, Task
from tests.engineers.briefs import ATTEMPT
from tests.graph.tiny import SIM, ScriptedEngineer, TinyHands, tiny_session

GPU = SIM.model_copy(update={"target": "cuda", "measured": True})
STRUCTURES = tuple(Structure(name=name, strategy=f"write {name}", predicted_ms=0.2) for name in ("one", "two", "library"))
TASK = Task(id="a", kind="region", title="task a", predicted_ms=0.2, structures=STRUCTURES)


class Competing(ScriptedEngineer):
    """Its script says for each structure what its drafts are; "" for drafts that choose."""

    def plan(self, brief: Brief) -> Plan:
        self.briefs.append(brief)
        return Plan(version=0, tasks=(TASK,) if len(self.briefs) == 1 else ())

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
