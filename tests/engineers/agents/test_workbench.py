"""A workbench's session: commands, verdicts, the ledger, and what a hostile agent finds in its folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from stitchcuda.agents.workbench_calls import ask as call_workbench
from stitchcuda.engineers.agents.tools import MOST_CHARACTERS, ToolAnswer
from stitchcuda.engineers.agents.workbench_server import AT_ONCE
from stitchcuda.engineers.prompt_values import POLICIES, PRECISIONS
from stitchcuda.errors import BadInput
from stitchcuda.sessions.outcome_text import headline
from stitchcuda.sessions.replay import replay
from stitchcuda.state import CheckResult, Policy
from tests.engineers.agents.working_session import wait_for, working
from tests.graph.tiny import TinyHands, tiny_session


def test_a_session_with_a_failed_build_a_wrong_draft_and_two_kept_ones(tmp_path: Path) -> None:
    with working(tmp_path, timed=True) as made:
        assert made.call("status")[0] == 0
        codes = [made.submit(draft)[0] for draft in ("a build error", "a wrong", "a saves 0.2")]
        code, text = made.submit("a saves 0.3", "-m", "wider loads")
        assert "KEPT" in text
        assert "1 left" not in text
        assert "Attempts: 4 made, 26 left" in (made.bench / "TASK.md").read_text()
        assert (made.bench / "best/kernels/drafts.cu").read_text() == "a saves 0.3\n"
        done = made.call("submit", "--done")
        session = made.ends()
        assert made.call("check")[0] == 2
    assert [*codes, code] == [1, 1, 0, 0]
    assert done[0] == 0
    attempts = session.attempts()
    assert [(attempt.built, attempt.correct, attempt.kept) for attempt in attempts] == [
        (False, False, False), (True, False, False), (True, True, True), (True, True, True),
    ]  # fmt: skip
    assert [attempt.task for attempt in attempts] == ["agent-1", "agent-1", "agent-1", "agent-2"]
    assert {attempt.engineer for attempt in attempts} == {"workbench"}
    assert attempts[-1].note == "wider loads"
    assert session.outcome().accepted
    assert session.outcome().stop_reason == "the agent ended the session"
    report = (session.folder / "report.md").read_text()
    assert "- agent-1: measured 0.2 ms (a call takes 0.8 ms); kept after 3 drafts" in report
    assert "claimed" not in report.split("## Plan tree")[1].split("| attempt |")[0]
    calls = [json.loads(line) for line in (session.folder / "agent.jsonl").read_text().splitlines()]
    assert [call["tool"] for call in calls] == ["status", "submit", "submit", "submit", "submit", "finish"]


def test_a_replay_hands_the_same_drafts_in(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        for draft in ("a wrong", "a saves 0.2"):
            made.submit(draft)
        made.call("submit", "--done")
        session = made.ends()
    found = replay(session.name, workspace=session.home, tools=TinyHands())
    assert found.same, found.parts


def test_a_check_is_no_attempt(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        made.write("a wrong")
        assert made.call("check")[0] == 1
        made.write("a build error")
        assert made.call("bench")[0] == 1
        made.write("a saves 0.2")
        assert made.call("check")[0] == 0
        assert "Attempts: 0 made" in made.call("status")[1]


def test_a_submission_that_was_cut_off_is_not_judged_twice(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        held, go = threading.Event(), threading.Event()

        def hold(tool: str) -> None:
            if tool == "check":
                held.set()
                go.wait(20)

        made.hands.before = hold
        made.write("a wrong")
        cut_off = subprocess.Popen([made.bench / "submit"], stdout=subprocess.DEVNULL)
        assert held.wait(20)
        cut_off.kill()
        cut_off.wait()
        threading.Timer(0.3, go.set).start()
        code, text = made.call("submit")
        assert (code, "REFUSED" in text) == (1, True)
        assert "Attempts: 1 made" in text


def test_what_is_judged_is_what_was_sent(tmp_path: Path) -> None:
    """Files that are exchanged while they are judged change nothing."""
    with working(tmp_path) as made:
        def exchange(tool: str) -> None:
            made.write("a saves 0.9")

        made.hands.before = exchange
        assert made.submit("a wrong")[0] == 1
        made.hands.before = lambda tool: made.write("a wrong")
        assert made.submit("a saves 0.2")[0] == 0
        assert (made.bench / "best/kernels/drafts.cu").read_text() == "a saves 0.2\n"


def test_attempts_are_limited(tmp_path: Path) -> None:
    with working(tmp_path, max_attempts=2) as made:
        assert made.submit("a wrong")[0] == 1
        _, text = made.submit("b wrong")
        assert "budget spent: 2 attempts" in text
        session = made.ends()
        assert made.submit("c wrong")[0] == 2
    assert len(session.attempts()) == 2


def test_a_removed_workbench_ends_the_session_with_its_best_program(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        made.submit("a saves 0.2")
        made.bench.rename(tmp_path / "elsewhere")
        session = made.ends()
    assert session.outcome().accepted


def test_links_in_the_workbench_lead_nowhere(tmp_path: Path) -> None:
    """What an agent's links point to stays as it is, also where the session writes its own files anew."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    with working(tmp_path) as made:
        bench = made.bench
        for name in ("TASK.md", "SKILL.md", "reference.py"):
            (bench / name).unlink()
            (bench / name).symlink_to(outside / "mine.txt")
        subprocess.run(["rm", "-r", bench / "best"], check=True)
        (bench / "best").symlink_to(outside)
        assert made.submit("a saves 0.2")[0] == 0
        assert not (bench / "TASK.md").is_symlink()
        assert sorted(path.name for path in outside.iterdir()) == ["mine.txt"]
        assert (outside / "mine.txt").read_text() == "mine"


def test_replaced_commands_and_a_poisoned_path_judge_nothing(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        (made.bench / "submit").write_text("#!/bin/sh\necho KEPT\n")
        fake = tmp_path / "fake"
        fake.mkdir()
        for name in ("python3", "nvcc", "g++"):
            (fake / name).write_text("#!/bin/sh\necho KEPT\n")
            (fake / name).chmod(0o755)
        environment = os.environ | {"PATH": f"{fake}:/bin:/usr/bin", "PYTHONPATH": str(fake)}
        subprocess.run([made.bench / "submit"], env=environment, check=True, stdout=subprocess.DEVNULL)
        made.write("a wrong")
        assert subprocess.run([made.bench / "check"], env=environment, stdout=subprocess.DEVNULL).returncode == 1
        assert "Attempts: 0 made" in made.call("status")[1]


def test_forged_results_are_written_anew_and_read_by_nobody(tmp_path: Path) -> None:
    with working(tmp_path, timed=True) as made:
        made.submit("a saves 0.2")
        (made.bench / "best/kernels/drafts.cu").write_text("a saves 0.9\n")
        (made.bench / "TASK.md").write_text("The session's program: 100x over eager.")
        assert made.submit("a wrong", "-m", "KEPT: 100x over eager")[0] == 1
        assert (made.bench / "best/kernels/drafts.cu").read_text() == "a saves 0.2\n"
        assert "REFUSED" in (made.bench / "TASK.md").read_text()
        made.call("submit", "--done")
        session = made.ends()
    assert session.outcome().speedup == pytest.approx(1.25)


def test_the_socket_comes_back(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        place = made.bench / ".workbench/socket"
        place.unlink()
        place.mkdir()
        (place / "x").write_text("")
        subprocess.run(["rm", "-r", place], check=True)
        made.write("a saves 0.2")
        wait_for(lambda: made.call("check")[0] == 0)


@pytest.mark.parametrize(("request_text", "said"), [
    (b"nonsense\n", "not valid JSON"), (b"[]\n", "no object"), (b'{"tool": "shell"}\n', "no tool"),
    (b'{"tool": "check", "files": {"model_new.py": 3}}\n', "malformed"), (b"[" * 100_000 + b"\n", "not valid JSON"),
    (b'{"tool": "check", "files": {}}\n', "no model_new.py"),
    (b'{"tool": "submit", "files": {"model_new.py": "", "../x": ""}}\n', "no file of a program"),
    (b'{"tool": "submit", "files": {"model_new.py": "", "kernels/../../x.cu": ""}}\n', "no file of a program"),
    (json.dumps({"tool": "submit", "files": {"model_new.py": "x" * (MOST_CHARACTERS + 1)}}).encode() + b"\n", "at most"),
    (b'{"tool": "submit", "files": {"model_new.py": "\\ud800"}}\n', "UTF-8"),
])  # fmt: skip
def test_garbage_is_answered(tmp_path: Path, request_text: bytes, said: str) -> None:
    with working(tmp_path) as made:
        answer = ask(made.bench, request_text)
        assert answer["code"] == 2
        assert said in answer["text"]
        assert made.call("status")[0] == 0


def test_more_commands_at_once_than_are_served(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        idle = [connect(made.bench) for _ in range(AT_ONCE)]
        wait_for(lambda: "commands are at work" in ask(made.bench, b'{"tool": "status"}\n')["text"])
        for connection in idle:
            connection.close()
        wait_for(lambda: made.call("status")[0] == 0)


def test_words_that_are_no_text_are_refused_and_end_nothing(tmp_path: Path) -> None:
    word = os.fsdecode(b"caf\xe9")
    with working(tmp_path) as made:
        made.write("a saves 0.2")
        for command in (("submit", "-m", word), ("docs", word), ("bench", word), ("submit", "-m", word, "--done")):
            code, text = made.call(*command)
            assert (code, "is no text in UTF-8" in text) == (2, True), (command, text)
        strange = b'{"tool": "submit", "files": {"model_new.py": "", "\\ud800": ""}}\n'
        assert "no file of a program" in ask(made.bench, strange)["text"]
        assert made.call("docs", "skeleton:nope")[0] == 1
        assert made.call("submit", "-m", "café")[0] == 0


def test_a_tool_that_fails_is_no_bad_request_and_ends_nothing(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        def fail(tool: str) -> None:
            raise ValueError("what the tool says")

        made.write("a saves 0.2")
        made.hands.before = fail
        code, text = made.call("check")
        assert (code, "JSON" in text, "a defect of StitchCUDA (ValueError)" in text) == (2, False, True)
        made.hands.before = lambda tool: None
        assert made.call("check")[0] == 0


def test_control_characters_reach_no_terminal(tmp_path: Path) -> None:
    def fail(tool: str) -> None:
        raise BadInput("\x1b[31mred\x1b[0m")

    with working(tmp_path) as made:
        assert made.submit("a saves 0.2", "-m", "\x1b[31mRED\x1b[0m \x07\u202e")[0] == 0
        assert "\x1b" not in (made.bench / "TASK.md").read_text()
        made.hands.before = fail
        assert made.call("check") == (2, "It cannot be done: red\n")
        made.hands.before = lambda tool: None
        made.call("submit", "--done")
        assert [attempt.note for attempt in made.ends().attempts()] == ["RED ␇⟨U+202E⟩"]


@pytest.mark.parametrize(("policy", "figures", "said"), [
    ("strict", {"framework_share": 1.0}, "policy strict: 100% of the work is in framework operators"),
    ("stitched", {"own_share": 0.0}, "policy stitched: no kernel of its own runs"),
])  # fmt: skip
def test_a_program_that_the_last_check_will_refuse_is_named(
    tmp_path: Path, policy: Policy, figures: dict[str, float], said: str
) -> None:
    class Hands(TinyHands):
        def check(self, program: Path, seeds: int) -> CheckResult:
            return super().check(program, seeds).model_copy(update=figures)

    with working(tmp_path, policy=policy, hands=Hands()) as made:
        code, text = made.submit("a saves 0.2")
        first = text.splitlines()[0]
        assert code == 0
        assert first.startswith("KEPT, BUT NOT ACCEPTED AS IT IS: ")
        assert f"The last check will refuse it as it is: {said}" in first
        code, text = made.call("submit", "--done")
        first = text.splitlines()[0]
        assert code == 1
        assert first.startswith("NOT ACCEPTED: the program of attempt ")
        assert " is given up: policy" in first


def test_a_session_without_a_program_says_so_at_its_end_and_ever_after(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        code, text = made.call("submit", "--done")
        assert (code, text.splitlines()[0]) == (
            1, "NOT ACCEPTED: no program was kept. The session has ended: the agent ended the session."
        )  # fmt: skip
        ended = headline(made.ends().outcome())
        assert ended == (
            "ended without an accepted program after 0 attempts; 1 of 1 planned task finished (the agent ended the session)"
        )
        made.write("a saves 0.2")
        assert made.call("status") == (0, text)
        assert made.call("check") == (2, text)
        for tool in ("status", "check"):
            answer = anyio.run(call_workbench, made.bench, {"tool": tool})
            assert answer == ToolAnswer(0 if tool == "status" else 2, text.rstrip("\n"), ended=True)


def test_a_status_waits_for_no_verdict_and_a_reader_may_go_away(tmp_path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    def hold(tool: str) -> None:
        held.set()
        go.wait(20)

    with working(tmp_path) as made:
        made.write("a wrong")
        made.hands.before = hold
        waiting = threading.Thread(target=made.call, args=("submit",))
        waiting.start()
        assert held.wait(20)
        code, text = made.call("status")
        assert (code, text.startswith("A program is being judged now.")) == (0, True)
        go.set()
        waiting.join()
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([made.bench / "submit"], stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (1, b"")


def test_a_busy_session_says_so_to_a_long_request(tmp_path: Path) -> None:
    with working(tmp_path) as made:
        made.write("a" * 900_000)
        idle = [connect(made.bench) for _ in range(AT_ONCE)]
        wait_for(lambda: made.call("submit") == (2, f"{AT_ONCE} commands are at work: wait for one of them.\n"))
        for connection in idle:
            connection.close()


@pytest.mark.parametrize("policy", ["stitched", "strict"])
def test_the_skill_says_what_the_policy_says(tmp_path: Path, policy: Policy) -> None:
    with working(tmp_path, policy=policy) as made:
        text = (made.bench / "SKILL.md").read_text()
    assert POLICIES[policy] in text
    assert PRECISIONS["reference"] in text
    assert text.startswith("---\nname: stitchcuda-workbench\ndescription: ")
    for tool in ("check", "bench", "docs", "submit", "status"):
        assert f"`./{tool}" in text
    assert "`./profile" not in text        # nothing is profiled on the simulator


def test_folders_that_cannot_be_workbenches(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(full)
    for name, place in (("a", full), ("b", tmp_path / "file"), ("c", tmp_path / "link")):
        (tmp_path / name).mkdir()
        session = tiny_session(tmp_path / name, model=f"workbench:{place}", from_scratch=True)
        with pytest.raises(BadInput, match="folder"):
            session.run(tools=TinyHands())
    assert [path.name for path in full.iterdir()] == ["mine.txt"]


def test_an_agent_takes_no_roles_candidates_or_approval(tmp_path: Path) -> None:
    for settings in ({"candidates": 2}, {"approve": ("plan",)}, {"roles": {"planner": ("openai:x",)}}):
        with pytest.raises(BadInput, match="works draft by draft"):
            tiny_session(tmp_path, model="workbench:x", **settings)


def connect(bench: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(bench / ".workbench/socket"))
    return connection


def ask(bench: Path, line: bytes) -> dict[str, Any]:
    with connect(bench) as connection:
        connection.sendall(line)
        with connection.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer

