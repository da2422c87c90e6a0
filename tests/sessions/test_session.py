"""Sessions as users meet them: they end, they go on after anything, and what is wrong is said in one sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer

from stitchcuda.cli.summary import session_tables, summary
from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.errors import BadInput, ReplyPending, SessionBusy, Unavailable
from stitchcuda.nodes.context import Event
from stitchcuda.report.page import session_page
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.outcome import ended
from stitchcuda.sessions.progress import PlainView
from stitchcuda.sessions.session import Session, optimize, resume, sessions
from stitchcuda.state import Plan
from stitchcuda.store import SessionLock, Workspace
from stitchcuda.store.checkpoints import open_checkpoints
from stitchcuda.tools.device.device import device_facts
from tests.graph.tiny import REFERENCE, SIM, Script, ScriptedEngineer, TinyHands, tiny_session

ROOT = Path(__file__).resolve().parents[2]
THREE: Script = {"a": ["saves 0.2"], "b": ["build error", "saves 0.3"], "c": ["wrong", "wrong", "saves 0.1"]}
H200 = SIM.model_copy(update={"target": "cuda", "driver": "580.95", "measured": True})


def routes(session: Session) -> list[tuple[str, str]]:
    return [(attempt.task, attempt.route) for attempt in session.attempts()]


def again(session: Session) -> Session:
    """The same session as another process would open it."""
    return Session.open(session.name, session.home.root)


def test_a_failed_build_then_a_wrong_result_then_a_right_one(tmp_path: Path) -> None:
    engineer = ScriptedEngineer({"a": ["build error", "wrong", "saves 0.2"]})
    session = tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands())
    outcome = session.outcome()
    assert [route for _, route in routes(session)] == ["code", "code", "next_task"]
    assert outcome.stop_reason == "no task left"
    assert (outcome.status, outcome.accepted, outcome.tier, outcome.attempts) == ("done", True, "simulated", 3)
    assert (outcome.tasks_done, outcome.tasks_total, outcome.speedup, outcome.best_ms) == (1, 1, None, None)
    assert outcome.predicted_speedup == 1, "it names no region, and what its engineer claims does not count"
    first, second, third = engineer.assignments
    assert (first.last, first.evidence, first.ordinal) == (None, None, 0)
    assert second.last is not None
    assert second.evidence is not None
    assert "expected a ';'" in second.evidence.build.log
    assert third.evidence is not None
    assert third.evidence.check is not None
    assert third.evidence.check.reasons == ("y is off by 0.25",)
    assert third.program == first.program  # failures leave the program as it was


def test_the_program_and_its_report_are_written(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    outcome = session.outcome()
    assert outcome.program is not None
    assert outcome.report is not None
    assert (Path(outcome.program) / "drafts.txt").read_text() == "a saves 0.2\nb saves 0.3\nc saves 0.1\n"
    text = Path(outcome.report).read_text()
    assert "prediction: " in text
    assert "simulated: kernels ran on the CPU simulator" in text
    assert "nsys_profile skipped: there is no GPU here" in text
    assert "speed-up" not in text


def test_on_a_gpu_figures_are_timed_and_what_does_not_pay_is_not_kept(tmp_path: Path) -> None:
    engineer = ScriptedEngineer({"a": ["saves 0.2"], "b": ["saves -0.1", "saves -0.1"], "c": ["saves 0.15"]})
    session = tiny_session(tmp_path).run(device="cuda", engineer=engineer, tools=TinyHands(H200, timed=True))
    outcome = session.outcome()
    assert routes(session) == [("a", "next_task"), ("b", "code"), ("b", "next_task"), ("c", "next_task")]
    assert [attempt.kept for attempt in session.attempts()] == [True, False, False, True]
    assert (outcome.tier, outcome.baseline_ms) == ("timed", 1.0)
    assert outcome.best_ms == pytest.approx(0.65)
    assert outcome.speedup == pytest.approx(1 / 0.65)
    assert "(timed, cuda events)" in (session.folder / "report.md").read_text()


def test_a_task_that_keeps_failing_is_replanned_once_then_dropped(tmp_path: Path) -> None:
    engineer = ScriptedEngineer({"a": ["wrong"] * 20, "b": ["saves 0.2"]})
    session = tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands())
    assert routes(session) == [
        ("a", "code"), ("a", "code"), ("a", "replan"), ("a", "code"), ("a", "code"), ("a", "next_task"), ("b", "next_task"),
    ]  # fmt: skip
    assert len(engineer.briefs) == 2
    assert [attempt.task for attempt in engineer.briefs[1].history] == ["a", "a", "a"]
    assert engineer.briefs[1].plans[0].version == 1
    assert session.state()["tasks_kept"] == ("b",)
    assert session.outcome().accepted


def test_predictions_missed_on_two_tasks_make_a_new_plan_without_the_finished_ones(tmp_path: Path) -> None:
    engineer = ScriptedEngineer({"a": ["saves 0.02"] * 2, "b": ["saves 0.02"] * 2, "c": ["saves 0.1"]}, predicted_ms=0.15)
    session = tiny_session(tmp_path).run(device="cuda", engineer=engineer, tools=TinyHands(H200, timed=True))
    assert ("b", "replan") in routes(session)
    plan = session.plan
    assert plan is not None
    assert (plan.version, [task.id for task in plan.tasks]) == (2, ["c"])


def test_an_engineer_with_nothing_to_offer_ends_in_a_clear_refusal(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer({"a": []}), tools=TinyHands())
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted, outcome.attempts, outcome.program) == ("done", False, 0, None)
    assert any("nothing new to offer: the script ends here" in note for note in session.state()["notes"])


def test_no_task_worth_doing_is_an_answer(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer({}), tools=TinyHands())
    outcome = session.outcome()
    said = "nothing to do: 1 operator was looked at (relu); script planned no task; what would help: another --model"
    assert (outcome.status, outcome.accepted, outcome.attempts, outcome.stop_reason) == ("nothing_to_do", False, 0, said)
    assert summary(session).splitlines()[0] == said
    assert f"- ended: {said}\n" in (session.folder / "report.md").read_text()
    page = session_page(findings_of(session)).decode()
    assert page.count(said) == 1
    assert '<span class="chip status">nothing_to_do</span>' in page
    again(session).run(engineer=ScriptedEngineer({"a": ["saves 0.2"]}), tools=TinyHands())
    assert again(session).outcome() == outcome, "it has ended: there is nothing to go on with"
    with pytest.raises(BadInput, match="is done, and its budgets with it"):
        resume("tiny", workspace=session.home, max_attempts=50)


def test_a_session_of_before_without_tasks_stays_as_it_ended() -> None:
    assert ended({"stop_reason": "no task left", "attempts": 0, "tasks_total": 0}) == "done"


@pytest.mark.parametrize(
    ("settings", "attempts", "reason"),
    [({"max_attempts": 2}, 2, "budget spent: 2 attempts"), ({"max_minutes": 1e-9}, 1, "budget spent: 0.0 minutes")],
)
def test_budgets_end_a_session_without_losing_the_best(
    tmp_path: Path, settings: dict[str, Any], attempts: int, reason: str
) -> None:
    session = tiny_session(tmp_path, **settings).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    outcome = session.outcome()
    assert (outcome.attempts, outcome.stop_reason, outcome.accepted) == (attempts, reason, True)
    assert session.state()["tasks_kept"] == ("a",)


def test_a_program_that_fails_fresh_seeds_falls_back_to_the_one_before(tmp_path: Path) -> None:
    engineer = ScriptedEngineer({"a": ["saves 0.2"], "b": ["saves 0.3 fragile"]})
    session = tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands())
    assert session.outcome().accepted
    assert session.state()["tasks_kept"] == ("a",)
    assert session.program is not None
    assert (session.program / "drafts.txt").read_text() == "a saves 0.2\n"
    assert any("is given up" in note for note in session.state()["notes"])
    assert "is given up" in (session.folder / "report.md").read_text()


def test_events_tell_the_whole_story(tmp_path: Path) -> None:
    told: list[Event] = []
    engineer = ScriptedEngineer({"a": ["wrong", "saves 0.2"]})
    tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands(), on_event=told.append)
    assert {event["kind"] for event in told} == {"session", "node", "plan", "attempt", "best", "note"}
    ends = [event["node"] for event in told if event["kind"] == "node" and event["phase"] == "end"]
    assert ends[:7] == ["baseline", "planner", "search_docs", "coder", "nvcc_build", "check", "verifier"]
    assert ends[-1] == "report"
    assert all(event["session"] == "tiny" for event in told)


def test_a_long_report_says_what_it_is_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    engineer, tools = ScriptedEngineer({"a": ["saves 0.2"]}), TinyHands(H200, timed=True)
    tiny_session(tmp_path, sanitize=True, time_baselines=True).run(device="cuda", engineer=engineer, tools=tools, on_event=view)
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in lines if line.startswith("report: ")] == [
        "report: looking where its time goes, and for memory errors",
        "report: timing eager, a CUDA graph and torch.compile, which compiles for minutes the first time",
    ]


@pytest.mark.more
def test_progress_is_shown_where_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_session(tmp_path, "silent")
    tiny_session(tmp_path, "loud")
    told: list[Event] = []
    home = tmp_path / "workspace"
    resume("silent", workspace=home, engineer=ScriptedEngineer({}))
    assert capsys.readouterr().err == "", "nobody looks: stderr is no terminal here"
    resume("loud", workspace=home, engineer=ScriptedEngineer({}), progress=True, on_event=told.append)
    assert "] plan 1: 0 tasks" in capsys.readouterr().err
    assert "plan" in {event["kind"] for event in told}


WATCHED = """
import sys
import stitchcuda
from tests.graph.tiny import ScriptedEngineer
session = stitchcuda.optimize(sys.argv[1], device="sim", workspace=sys.argv[2], engineer=ScriptedEngineer({}))
print(session.status)
"""


@pytest.mark.more
def test_python_shows_its_progress_in_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", WATCHED, "reference.py", "workspace"]
    environment = os.environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    panel = b""
    with contextlib.suppress(OSError):     # a terminal whose other end is closed
        while part := os.read(ours, 4096):
            panel += part
    os.close(ours)
    assert process.communicate()[0] == b"nothing_to_do\n"
    assert b"\x1b[" in panel, "a live panel"
    assert b"baseline: running and capturing the reference" in panel


# what interrupts


@pytest.mark.more
def test_ctrl_c_at_every_tool_call_loses_nothing(tmp_path: Path) -> None:
    whole = tiny_session(tmp_path, "whole").run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    calls = 0

    def strike(tool: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at and tool != "close":
            raise KeyboardInterrupt

    at = 1
    while True:
        session = tiny_session(tmp_path, f"struck{at}")
        tools, calls = TinyHands(), 0
        tools.before = strike
        said = ""
        try:
            session.run(engineer=ScriptedEngineer(THREE), tools=tools)
            break
        except KeyboardInterrupt as error:
            said = str(error)
        assert f"stitchcuda resume struck{at}" in said
        assert tools.calls[-1] == "close"
        assert session.status == "parked"
        assert session.outcome().stop_reason == "interrupted"
        resumed = again(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
        assert resumed.state()["program"] == whole.state()["program"]
        assert routes(resumed) == routes(whole)
        assert resumed.outcome().accepted
        at += 1
    assert at > 15


def test_an_interrupt_that_pydantic_made_another_error_of_is_one(tmp_path: Path) -> None:
    class Written(BaseModel):
        value: int

        @field_serializer("value")
        def interrupted(self, value: int) -> str:
            raise KeyboardInterrupt

    def strike(tool: str) -> None:
        if tool != "close":
            Written(value=1).model_dump_json()

    session, tools = tiny_session(tmp_path), TinyHands()
    tools.before = strike
    with pytest.raises(KeyboardInterrupt, match="go on with `stitchcuda resume tiny"):
        session.run(engineer=ScriptedEngineer(THREE), tools=tools)
    assert session.status == "parked"
    assert again(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted


INTERRUPTED = """
import sys, time
from tests.graph.tiny import ScriptedEngineer, TinyHands
from stitchcuda.sessions.session import Session
hands = TinyHands()
hands.before = lambda tool: (print(tool, flush=True), time.sleep(60 if tool == "build" else 0))
try:
    Session.open("tiny", sys.argv[1]).run(engineer=ScriptedEngineer({"a": ["saves 0.2"]}), tools=hands)
except KeyboardInterrupt as error:
    sys.exit(str(error))
"""


def test_a_real_sigint_ends_a_long_tool_call_at_once(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    command = [sys.executable, "-c", INTERRUPTED, str(session.home.root)]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "build\n":
        pass
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, said = process.communicate()
    assert time.monotonic() - started < 5
    assert "go on with `stitchcuda resume tiny" in said
    assert session.status == "parked"
    assert session.run(engineer=ScriptedEngineer({"a": ["saves 0.2"]}), tools=TinyHands()).outcome().accepted


def test_a_rerun_of_the_verifier_takes_the_verdict_from_the_ledger(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    session.home.store.append = _dying(session.home.store.append)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    tools = TinyHands()
    resumed = again(session).run(engineer=ScriptedEngineer(THREE), tools=tools)
    ids = [attempt.id for attempt in resumed.attempts()]
    assert len(ids) == len(set(ids)) == len(resumed.home.store.attempts("tiny")) == 6
    assert tools.calls.count("check") == 4 + 1  # of b and c, as far as they build, and the last verification


def _dying(append: Any) -> Any:
    def record(session: str, attempt: Any) -> Any:
        append(session, attempt)
        raise KeyboardInterrupt

    return record


class Waiting(ScriptedEngineer):
    """Has no reply for the first draft of b until `answered`."""

    answered = False

    def write(self, assignment: Assignment) -> Draft:
        if assignment.task.id == "b" and not self.answered:
            raise ReplyPending("mailbox/b-0.json")
        return super().write(assignment)


def test_a_missing_reply_parks_the_session(tmp_path: Path) -> None:
    engineer = Waiting(THREE)
    session = tiny_session(tmp_path).run(engineer=engineer, tools=TinyHands())
    outcome = session.outcome()
    assert (outcome.status, outcome.attempts, outcome.accepted) == ("parked", 1, False)
    assert outcome.stop_reason == "waits for a reply to mailbox/b-0.json"
    assert again(session).run(engineer=engineer, tools=TinyHands()).status == "parked"
    engineer.answered = True
    assert again(session).run(engineer=engineer, tools=TinyHands()).outcome().accepted


class Unreachable(ScriptedEngineer):
    def plan(self, brief: Brief) -> Plan:
        raise Unavailable("http://127.0.0.1:9 does not answer")


def test_a_session_that_failed_says_why_and_goes_on(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    with pytest.raises(Unavailable, match="does not answer"):
        session.run(engineer=Unreachable(THREE), tools=TinyHands())
    outcome = again(session).outcome()
    assert (outcome.status, outcome.accepted) == ("failed", False)
    assert "does not answer" in str(outcome.stop_reason)
    assert again(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted


def test_a_session_that_is_done_stays_as_it_is(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    tools = TinyHands()
    assert again(session).run(engineer=ScriptedEngineer(THREE), tools=tools).outcome() == session.outcome()
    assert tools.calls == ["close"]


# what moves


def test_what_is_shown_of_a_session_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer({"a": ["saves 0.2"]}), tools=TinyHands())
    opened: list[str] = []

    def counted(*given: Any, **more: Any) -> Any:
        opened.append("once")
        return open_checkpoints(*given, **more)

    monkeypatch.setattr("stitchcuda.sessions.session.open_checkpoints", counted)
    with session.read_once():
        session_tables(session)
        summary(session)
        assert session.status == "done"
        assert opened == ["once"]
    session.state()
    session.state()
    assert len(opened) == 3, "outside it is read anew each time"


def test_a_copied_workspace_goes_on_elsewhere(tmp_path: Path) -> None:
    engineer = Waiting(THREE)
    (tmp_path / "here").mkdir()
    session = tiny_session(tmp_path / "here")
    session.run(engineer=engineer, tools=TinyHands())
    shutil.copytree(session.home.root, tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    engineer.answered = True
    moved = Session.open("tiny", tmp_path / "there").run(engineer=engineer, tools=TinyHands())
    assert moved.outcome().accepted
    assert moved.program is not None
    assert moved.program.is_relative_to(tmp_path / "there")


def test_on_another_device_the_baseline_is_taken_again_and_the_best_verified_again(tmp_path: Path) -> None:
    session = tiny_session(tmp_path, max_attempts=1).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert session.outcome().speedup is None
    tools = TinyHands(H200, timed=True)
    told: list[Event] = []
    moved = again(session).run(device="cuda", engineer=ScriptedEngineer(THREE), tools=tools, on_event=told.append)
    outcome = moved.outcome()
    assert tools.calls[0] == "study"
    assert (outcome.status, outcome.tier) == ("done", "timed")
    assert outcome.speedup == pytest.approx(1.25)
    assert (outcome.accepted, outcome.baseline_ms) == (True, 1.0)
    assert any("another device" in note for note in moved.state()["notes"])


def test_what_does_not_hold_on_another_device_is_given_up_and_said(tmp_path: Path) -> None:
    script = {"a": ["saves 0.2"], "b": ["saves -0.5"]}
    session = tiny_session(tmp_path, max_attempts=2).run(engineer=ScriptedEngineer(script), tools=TinyHands())
    assert session.state()["tasks_kept"] == ("a", "b")
    moved = again(session).run(device="cuda", engineer=ScriptedEngineer(script), tools=TinyHands(H200, timed=True))
    assert moved.state()["tasks_kept"] == ("a",)
    assert any("slower than eager" in note for note in moved.state()["notes"])


# what is wrong


def test_a_changed_reference_is_refused_and_a_missing_one_is_not(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer(THREE), tools=TinyHands(device_facts("sim")))
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE.replace("relu", "gelu"))
    with pytest.raises(BadInput, match=r"reference\.py has changed since session 'tiny' was started"):
        resume("tiny", workspace=session.home.root)
    reference.unlink()
    assert resume("tiny", workspace=session.home.root).status == "done"


def test_an_edited_copy_of_the_reference_is_refused(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    (session.folder / "reference.py").write_text("")
    with pytest.raises(BadInput, match="the session's own copy"):
        session.run(engineer=ScriptedEngineer(THREE))


def test_two_processes_on_one_session(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    with SessionLock(session.folder):
        assert session.status == "running"
        with pytest.raises(SessionBusy, match="'tiny' is being run by process"):
            again(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).status == "done"


def test_an_unknown_session_and_a_taken_name(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    with pytest.raises(BadInput, match=r"no session 'other' in .*workspace: it has tiny"):
        resume("other", workspace=session.home.root)
    with pytest.raises(BadInput, match="'tiny' exists already"):
        optimize(tmp_path / "reference.py", session="tiny", workspace=session.home.root, device="sim")
    assert [found.name for found in sessions(session.home.root)] == ["tiny"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"device": "tpu"}, "--device 'tpu' is not one of auto, cuda, sim"),
        ({"max_attempts": 0}, "--max-attempts 0 leaves nothing to do"),
        ({"policy": "lax"}, "policy: .*'lax'"),
        ({"precision": "fp8"}, "precision: .*'fp8'"),
        ({"model": "oracle"}, "'oracle' is not known"),
        ({"session": "a/b"}, "cannot name a session"),
        ({"reference": "nowhere.py"}, "there is no file nowhere.py"),
        ({"reference": Path("/")}, "cannot be read as Python source"),
        ({"reference": 7}, "the path of a file or an nn.Module, not int"),
        ({"example_inputs": (1,)}, "go with an nn.Module"),
        ({"make_inputs": lambda: (1,)}, "go with an nn.Module"),
        ({"example_inputs": (1,), "make_inputs": lambda: (1,)}, "not both"),
        ({"make_inputs": 7}, "a function make_inputs"),
    ],
)
def test_what_cannot_be_meant_is_said_and_leaves_no_session(tmp_path: Path, asked: dict[str, Any], sentence: str) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    given: dict[str, Any] = {"reference": reference, "workspace": tmp_path / "w", "device": "sim"} | asked
    with pytest.raises(BadInput, match=sentence):
        optimize(**given)
    assert sessions(tmp_path / "w") == ()


def test_an_nn_module_needs_example_inputs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(BadInput, match="needs example_inputs"):
        optimize(torch.nn.ReLU(), workspace=tmp_path, device="sim")


def test_no_room_is_said_and_the_session_goes_on_once_there_is_some(tmp_path: Path) -> None:
    session = tiny_session(tmp_path)
    code = (
        "import resource, sys; from pathlib import Path; from tests.graph.tiny import ScriptedEngineer, TinyHands\n"
        "from stitchcuda.errors import Unavailable; from stitchcuda.sessions.session import Session\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "session = Session.open('tiny', sys.argv[1])\n"
        "try: session.run(engineer=ScriptedEngineer({'a': ['wrong', 'saves 0.2']}), tools=TinyHands())\n"
        "except Unavailable as error: print(error); sys.exit(7)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(session.home.root)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "no space left to write" in done.stdout
    assert str(session.folder) in done.stdout
    assert session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands()).outcome().accepted


# how much it costs


@pytest.mark.parametrize("attempts", [pytest.param(100, marks=pytest.mark.more), pytest.param(500, marks=pytest.mark.long)])
def test_many_attempts_stay_small(attempts: int, tmp_path: Path) -> None:
    """20 kB an attempt; benchmarks/growth.py has the times."""
    script = {f"t{number:03}": ["saves 0.001"] for number in range(attempts)}
    session = tiny_session(tmp_path, max_attempts=attempts)
    session.run(engineer=ScriptedEngineer(script, predicted_ms=0.02), tools=TinyHands())
    assert session.outcome().attempts == attempts
    assert sum(path.stat().st_size for path in session.folder.glob("checkpoints.sqlite*")) < 20e3 * attempts
    assert len(list(session.history())) < attempts + 10
    assert again(session).run(engineer=ScriptedEngineer(script), tools=TinyHands()).outcome().attempts == attempts


def test_checkpoints_are_one_per_attempt_and_typed(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    heads = [snapshot.values.get("head") for snapshot in session.history()]
    assert list(dict.fromkeys(reversed(heads))) == [attempt.id for attempt in session.attempts()]
    assert len(heads) == 6 + 1  # and the report
    state = session.state()
    assert state["best"] is not None
    assert state["best"].task == "c"
    assert type(state["settings"]).__name__ == "Settings"
    with sqlite3.connect(session.folder / "checkpoints.sqlite") as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert mode == "wal"
    assert Workspace(session.home.root).record("tiny") == session.record
