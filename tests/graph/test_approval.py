"""A person is asked before a plan is followed and a draft is built: accepted, edited, refused, or asked for another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.graph.approval import Question, answers_from_options
from stitchcuda.nodes.approval import AnswerRefused, code_question, plan_question, read_code_answer, read_plan_answer
from stitchcuda.sessions.session import Session, resume
from stitchcuda.state import Plan, Task, Work
from stitchcuda.store import SessionRecord
from tests.fake_model import answer_all, requests, run, story
from tests.graph.tiny import Script, ScriptedEngineer, TinyHands, tiny_session

TASKS = tuple(
    Task(id=name, kind="region", title=f"task {name}", predicted_ms=0.2, why="bytes", strategy="fuse") for name in "abc"
)
PLAN = Plan(version=1, tasks=TASKS, summary="three")
FILES: dict[str, str | bytes] = {
    "model_new.py": "import torch\n", "kernels/a.cu": "// a\n", "program.json": "{}\n", "constants.safetensors": b"\0",
}  # fmt: skip
SCRIPT: Script = {"a": ["saves 0.2"], "b": ["saves 0.3"], "c": ["saves 0.1"]}


def ids(plan: Plan | str) -> list[str]:
    assert isinstance(plan, Plan)
    return [task.id for task in plan.tasks]


def test_a_plan_may_be_cut_reordered_and_reworded() -> None:
    assert read_plan_answer("accept", PLAN, listens=False) is PLAN
    assert read_plan_answer({"accept": True}, PLAN, listens=False) is PLAN
    assert ids(read_plan_answer({"tasks": ["c", "a"]}, PLAN, listens=False)) == ["c", "a"]
    reworded = read_plan_answer({"tasks": [{"id": "b", "strategy": "größer"}]}, PLAN, listens=True)
    assert isinstance(reworded, Plan)
    assert reworded.tasks == (TASKS[1].model_copy(update={"strategy": "größer"}),)
    shown = plan_question(PLAN, "0" * 64, engineer="script", listens=True)
    assert read_plan_answer({"tasks": json.loads(json.dumps(shown["tasks"]))}, PLAN, listens=False) == PLAN
    assert read_plan_answer({"comment": " look at\nthe softmax "}, PLAN, listens=True) == "look at the softmax"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (True, "True is no answer to a plan"),
        ("yes", "'yes' is no answer to a plan"),
        ({}, "is no answer to a plan"),
        ({"tasks": ["a"], "comment": "b"}, "is no answer to a plan"),
        ({"tasks": []}, "at least one"),
        ({"tasks": "a"}, "tasks is a list"),
        ({"tasks": [1]}, "1 is no task"),
        ({"tasks": [{"strategy": "x"}]}, "is no task: give its id"),
        ({"tasks": ["a", "d"]}, "there is no task 'd' in this plan: it has a, b, c"),
        ({"tasks": ["a", {"id": "a"}]}, "a task is there twice"),
        ({"tasks": [{"id": "a", "predicted_ms": 9.0}]}, "predicted_ms of task 'a' is not for you to change"),
        ({"tasks": [{"id": "a", "depends": "b"}]}, "depends of task 'a' is not for you to change"),
        ({"tasks": [{"id": "a", "strategy": 3}]}, "the strategy of task 'a' is no text"),
        ({"tasks": [{"id": "a", "strategy": "\ud800"}]}, "the strategy of task 'a' is no text"),
        ({"tasks": [{"id": "a", "strategy": "other"}]}, "the built-in engineer reads no strategies"),
        ({"comment": "another"}, "the built-in engineer reads no comments"),
    ],
)
def test_what_is_no_answer_to_a_plan(answer: Any, why: str) -> None:
    with pytest.raises(AnswerRefused) as said:
        read_plan_answer(answer, PLAN, listens=False)
    assert why in str(said.value)
    assert "\n" not in str(said.value)


def test_a_drafts_files_may_be_changed_added_and_removed() -> None:
    assert read_code_answer("accept", FILES) is None
    assert read_code_answer({"files": {"kernels/a.cu": "// a\n"}}, FILES) is None, "the same is accepted"
    changed = read_code_answer({"files": {"kernels/a.cu": None, "./kernels/b.cu": "// b\n"}}, FILES)
    assert changed == {name: text for name, text in FILES.items() if name != "kernels/a.cu"} | {"kernels/b.cu": "// b\n"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"tasks": []}, "is no answer to a draft"),
        ({"files": {}}, "at least one file"),
        ({"files": {"/etc/passwd": "x"}}, "not inside the program's folder"),
        ({"files": {"kernels/../../x.py": "x"}}, "not inside the program's folder"),
        ({"files": {"kernels/x\0.cu": "x"}}, "not inside the program's folder"),
        ({"files": {"setup.py": "x"}}, "neither model_new.py nor below kernels/"),
        ({"files": {"kernels/a.so": "x"}}, "neither Python, CUDA, C++ nor JSON"),
        ({"files": {"kernels/a.cu/b.cu": "x"}}, "lies below what is a file itself"),
        ({"files": {"kernels/a.cu": 3}}, "kernels/a.cu is no text"),
        ({"files": {"kernels/a.cu": "\ud800"}}, "kernels/a.cu is no text"),
        ({"files": {"kernels/b.cu": None}}, "cannot be removed: there is no such file"),
        ({"files": {"model_new.py": None}}, "model_new.py cannot be removed"),
        ({"files": {"program.json": "{}"}}, "program.json states"),
        ({"files": {3: "x"}}, "not inside the program's folder"),
    ],
)
def test_what_is_no_answer_to_a_draft(answer: Any, why: str) -> None:
    with pytest.raises(AnswerRefused) as said:
        read_code_answer(answer, FILES)
    assert why in str(said.value)
    assert "\n" not in str(said.value)


def test_a_question_shows_what_is_new_in_a_draft() -> None:
    work = Work(id="0" * 16, task=TASKS[0], ordinal=1, candidate=1, candidates=2, program="1" * 64)
    asked = code_question(work, FILES | {"kernels/old.cu": ""}, FILES | {"kernels/a.cu": "// new\n"})
    assert asked["waiting_for"] == "your word on the draft of a #1, candidate 2 of 2 (task a)"
    assert (asked["files"], asked["removed"]) == ({"kernels/a.cu": "// new\n"}, ["kernels/old.cu"])
    assert asked["unchanged"] == ["model_new.py", "program.json"]
    assert json.loads(json.dumps(asked)) == asked


# sessions


def asked_about(folder: Path, *what: str, script: Script = SCRIPT, **settings: Any) -> tuple[Session, ScriptedEngineer]:
    folder.mkdir(exist_ok=True)
    session, engineer = tiny_session(folder, approve=what, **settings), ScriptedEngineer(script)
    return again(session, engineer), engineer


def again(session: Session, engineer: ScriptedEngineer, answer: Any = None) -> Session:
    """Goes on with a session as another process would."""
    found = Session.open(session.name, session.home.root)
    return found.run(engineer=engineer, tools=TinyHands(), answer=answer)


def tasks_of(session: Session) -> list[str]:
    return [attempt.task for attempt in session.attempts()]


def test_a_plan_waits_is_edited_and_followed(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path, "plan")
    (question,) = session.waiting
    assert (question.kind, [task["id"] for task in question.about["tasks"]]) == ("plan", ["a", "b", "c"])
    outcome = session.outcome()
    assert (outcome.status, outcome.stop_reason) == ("parked", "waits for your word on plan 1 (3 tasks, by script)")
    assert again(session, engineer).status == "parked", "nothing was answered"
    assert len(engineer.briefs) == 1, "asked once: what was shown is what is followed"
    assert again(session, engineer, {"tasks": ["c", "x"]}).outcome().stop_reason == (
        "waits for your word on plan 1 (3 tasks, by script); the last answer was refused: "
        "there is no task 'x' in this plan: it has a, b, c"
    )
    again(session, engineer, {"tasks": ["c", {"id": "a", "strategy": "two passes"}]})
    assert (session.status, tasks_of(session), session.outcome().accepted) == ("done", ["c", "a"], True)
    assert session.plan is not None
    assert [task.strategy for task in session.plan.tasks] == ["", "two passes"]
    assert "plan 1 is followed as a person edited it, without b" in session.state()["notes"]
    assert len(engineer.briefs) == 1
    assert session.waiting == ()
    with pytest.raises(BadInput, match="nothing waits for a word of yours"):
        again(session, engineer, "accept")
    assert session.status == "done"


def test_a_plan_as_it_is_gives_the_same_session_as_without_being_asked(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path / "asked", "plan")
    again(session, engineer, "accept")
    alone = tiny_session(tmp_path, "tiny").run(engineer=ScriptedEngineer(SCRIPT), tools=TinyHands())
    assert [one.id for one in session.attempts()] == [one.id for one in alone.attempts()]


def test_a_plan_that_was_edited_makes_other_attempts(tmp_path: Path) -> None:
    """A fork may be at the same task of the plan as it was: its ledger is the same, and an id must be one program's."""
    first, engineer = asked_about(tmp_path / "one", "plan")
    again(first, engineer, "accept")
    second, engineer = asked_about(tmp_path / "two", "plan")
    again(second, engineer, {"tasks": [{"id": "a", "strategy": "otherwise"}]})
    assert first.attempts()[0].task == second.attempts()[0].task == "a"
    assert first.attempts()[0].id != second.attempts()[0].id


def test_a_draft_waits_is_edited_and_built(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path, "code", script={"a": ["wrong", "saves 0.2"]})
    (question,) = session.waiting
    assert question.kind == "code"
    assert "drafts.txt" in question.about["files"]
    assert str(session.outcome().stop_reason) == "waits for your word on the draft of a #0 (task a)"
    again(session, engineer, "accept")
    (question,) = session.waiting
    assert (question.about["ordinal"], len(engineer.assignments)) == (1, 2)
    edited = str(question.about["files"].get("model_new.py", "")) + "# by hand\n"
    assert again(session, engineer, {"files": {"drafts.txt": ""}}).status == "parked", "no name for a program's file"
    again(session, engineer, {"files": {"model_new.py": edited}})
    assert session.outcome().accepted
    assert len(engineer.assignments) == 2, "each draft was written once"
    last = session.attempts()[-1]
    assert last.note.endswith("(edited by a person)")
    assert session.program is not None
    assert (session.program / "model_new.py").read_text() == edited


def test_candidates_wait_side_by_side_and_each_is_answered_by_its_id(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path, "code", script={"a": ["wrong", "saves 0.1", "saves 0.2"]}, candidates=3)
    first, second, third = sorted(session.waiting, key=lambda one: one.about["candidate"])
    with pytest.raises(BadInput, match="3 drafts wait, and one answer does not fit them all"):
        again(session, engineer, {"files": {"model_new.py": ""}})
    assert session.status == "parked", "an answer that cannot be handed in changes nothing"
    again(session, engineer, {second.id: "accept"})
    assert {one.id for one in session.waiting} == {first.id, third.id}
    assert {attempt.ordinal for attempt in session.attempts()} == set()
    again(session, engineer, {first.id: "accept", third.id: {"files": {"model_new.py": "# mine\n"}}})
    assert session.outcome().accepted
    assert len(session.attempts()) == 3
    assert len(engineer.assignments) == 3, "nobody was asked twice"
    assert sum(attempt.note.endswith("(edited by a person)") for attempt in session.attempts()) == 1


def test_another_plan_may_be_asked_for(tmp_path: Path) -> None:
    session = story(tmp_path, approve=("plan",), candidates=1)
    box = session.home.root / "box"
    run(session)
    answer_all(box)
    run(session)
    assert "your word on plan 1" in str(session.outcome().stop_reason)
    resume(session.name, workspace=session.home.root, device="elsewhere", answer={"comment": "begin with beta"})
    (asked,) = [name for name in requests(box) if not list((box / "replies").glob(f"{name}.*"))]
    text = (box / "requests" / f"{asked}.md").read_text()
    assert "asked for another one: begin with beta" in " ".join(text.split())
    answer_all(box)
    run(session)
    (question,) = session.waiting
    assert question.kind == "plan"
    resume(session.name, workspace=session.home.root, device="elsewhere", answer="accept")
    assert session.plan is not None
    assert session.plan.word
    assert any("begin with beta" in note for note in session.state()["notes"])


# files for people


def test_what_waits_lies_ready_to_be_edited(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path, "plan", "code", script={"a": ["saves 0.2"], "b": ["saves 0.1"]})
    (question,) = session.waiting
    path = session.folder / "waiting" / question.name
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({"tasks": plan["tasks"][1:]}))
    again(session, engineer)
    assert len(json.loads(path.read_text())["tasks"]) == 1, "an edit that was not handed in yet is left alone"
    again(session, engineer, answers_from_options(session.waiting, accept=False, edited=[path], comment=None))
    assert not path.exists()
    (question,) = session.waiting
    assert (question.kind, question.about["task"]["id"]) == ("code", "b")
    folder = session.folder / "waiting" / question.name
    copy = tmp_path / "edited"
    shutil.copytree(folder, copy)
    (copy / "model_new.py").write_text("# mine\n")
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "model_new.pyc").write_bytes(b"\xff")
    answer = question.answer(copy)
    assert answer["files"]["model_new.py"] == "# mine\n"
    assert not any("pycache" in name for name in answer["files"])
    (copy / "model_new.py").unlink()
    assert question.answer(copy)["files"]["model_new.py"] is None


def test_nothing_is_written_or_removed_outside_of_the_sessions_folder(tmp_path: Path) -> None:
    session, engineer = asked_about(tmp_path, "plan")
    (question,) = session.waiting
    odd = dict(question.about) | {"version": "../../1"}
    assert Question(question.id, odd).name == f"plan-.._.._1-{question.about['plan'][:8]}.json"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("")
    shutil.rmtree(session.folder / "waiting")
    (session.folder / "waiting").symlink_to(theirs)
    with pytest.raises(BadInput, match="leads somewhere else"):
        again(session, engineer)
    assert [path.name for path in theirs.iterdir()] == ["file"]


def test_what_cannot_be_read_as_an_answer(tmp_path: Path) -> None:
    plan = Question("0" * 32, plan_question(PLAN, "0" * 64, engineer="script", listens=False))
    broken = tmp_path / "plan.json"
    broken.write_text("{")
    with pytest.raises(BadInput, match=r"cannot be read as an edited plan"):
        plan.answer(broken)
    with pytest.raises(BadInput, match=r"cannot be read as an edited plan"):
        plan.answer(tmp_path)
    work = Work(id="0" * 16, task=TASKS[0], ordinal=0, program="1" * 64)
    drafts = [Question(name * 32, code_question(work.model_copy(update={"program": name * 64}), {}, FILES)) for name in "12"]
    with pytest.raises(BadInput, match="is no folder"):
        drafts[0].answer(broken)
    with pytest.raises(BadInput, match="several things wait"):
        answers_from_options(drafts, accept=False, edited=[tmp_path], comment=None)
    with pytest.raises(BadInput, match="--comment goes to a plan"):
        answers_from_options(drafts, accept=True, edited=[], comment="no")
    written = tmp_path / "written.json"
    written.write_text('{"tasks": ["a"]}')
    with pytest.raises(BadInput, match="--comment asks for another plan, and --edit is one"):
        answers_from_options([plan], accept=True, edited=[written], comment="no")
    with pytest.raises(BadInput, match="nothing waits for a word of yours"):
        answers_from_options([], accept=True, edited=[], comment=None)
    assert answers_from_options(drafts, accept=True, edited=[], comment=None) == {"1" * 32: "accept", "2" * 32: "accept"}


def test_records_of_sessions_from_before_still_load(tmp_path: Path) -> None:
    record = json.loads(tiny_session(tmp_path).record.model_dump_json())
    del record["settings"]["approve"]
    assert SessionRecord.model_validate(record).settings.approve == ()
    with pytest.raises(BadInput, match=r"approve\.0: Input should be 'plan' or 'code' \(got 'all'\)"):
        tiny_session(tmp_path, "other", approve=("all",))
