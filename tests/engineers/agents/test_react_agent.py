"""The ReAct engineer in whole sessions: a scripted model over HTTP calls its tools, and the session judges what it hands in."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.agents.metered_model import LEFT_OUT
from stitchcuda.engineers.agents.react_tools import shell_denied
from stitchcuda.engineers.endpoint import Endpoint
from stitchcuda.engineers.selection import check_models
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.protections import WITHOUT
from stitchcuda.sessions.replay import replay
from stitchcuda.sessions.session import Session, optimize
from stitchcuda.state import Settings
from stitchcuda.training.session_rows import session_rows
from tests.engineers.agents.react_session import FINISH, MODEL, THREE_TASKS, Turns, hands, react_session, submit, turn, write
from tests.engineers.protocol_server import Failure, Server, serve
from tests.engineers.protocols import Reply
from tests.engineers.test_chat_session import BINDING, KERNEL, REFERENCE
from tests.engineers.test_chat_session import MODEL as MODEL_NEW
from tests.fake_model import ledger

ROOT = Path(__file__).resolve().parents[3]


def run(folder: Path, answer: Turns, **settings: Any) -> Session:
    with serve(answer) as server:
        return react_session(folder, server.url, **settings).run(device="sim", tools=hands())


def notes(session: Session) -> str:
    return "\n".join(session.state().get("notes", ()))


def test_three_tasks_with_a_failed_build_and_its_repair(tmp_path: Path) -> None:
    answer = Turns(THREE_TASKS)
    with serve(answer) as server:
        session = react_session(tmp_path, server.url).run(device="sim", tools=hands())
    attempts = session.attempts()
    assert [(attempt.task, attempt.built, attempt.kept) for attempt in attempts] == [
        ("agent-1", False, False), ("agent-1", True, True), ("agent-2", True, True), ("agent-3", True, True),
    ]  # fmt: skip
    assert {attempt.engineer for attempt in attempts} == {MODEL}
    assert [attempt.note for attempt in attempts] == ["first", "repaired", "bb", "cc"]
    assert session.outcome().accepted
    assert "the agent ended the session: nothing more" in notes(session)
    first, status, _, refused, changed, checked, *_ = answer.results()
    assert first.split() == ["model_new.py", "reference.py"]
    assert "0 made, 30 left" in status
    assert refused.startswith("REFUSED")
    assert "error: expected a ';'" in refused
    assert changed == "kernels/aa.cu is changed."
    assert "correct" in checked, "the calls of a turn are made one after the other"
    usage = session.outcome().usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (len(THREE_TASKS), server.read, server.written)
    assert {row.kind for row in session_rows(session)} == {"skill1", "skill2", "value"}, "turns of an agent are no talks"
    again = replay("tiny", device="sim", tools=hands(), workspace=session.home.root)
    assert again.same, again.parts


def test_the_first_message_says_the_rules_and_the_task(tmp_path: Path) -> None:
    answer = Turns([FINISH])
    run(tmp_path, answer, policy="strict", options={"turns": 12})
    (request,) = answer.requests
    (text,) = request.turns
    assert "torch.relu(x)" in text
    assert "no operator of torch may compute" in text.replace("\n", " ")
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC" in text
    assert "30 attempts left" in text
    assert "You have 12 turns" in text
    assert "turns" not in request.body, "an option of the agent is none of the model's"
    names = {tool["function"]["name"] for tool in request.body["tools"]}
    assert {"write_file", "edit_file", "read_file", "check", "bench", "profile", "docs", "submit", "finish"} <= names
    described = [tool["function"]["parameters"]["properties"] for tool in request.body["tools"]]
    assert all(parameter.get("description") for parameters in described for parameter in parameters.values())


# Files


def test_paths_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the judge's seed")
    paths = ("../../session.json", str(tmp_path / "secret"), "kernels/../../agent.jsonl")
    answer = Turns([
        turn(*(("read_file", {"path": path}) for path in paths), ("write_file", {"path": "../mine", "text": "x"})),
        turn(("read_file", {"path": "missing.cu"}), ("write_file", {"path": "kernels", "text": ""}), ("submit", {})),
        turn(("write_file", {"path": "\ud800", "text": "x"}), ("search_files", {"words": "def forward"}), ("no_tool", {})),
        FINISH,
    ])  # fmt: skip
    session = run(tmp_path, answer)
    results = answer.results()
    assert all("leads out of your folder" in text for text in results[:4])
    assert not (session.folder / "mine").exists()
    assert results[4] == "There is no file 'missing.cu'."
    assert results[5], "a folder that is made by its name is a file: nothing else happens"
    assert "note" in results[6], "a call without its argument is told which"
    assert "reference.py:" in results[8]
    assert "no_tool" in results[9]


@pytest.mark.skipif(bool(shell_denied()), reason="no sandbox here")
def test_the_shell_is_kept_in_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    answer = Turns([
        turn(
            ("run_command", {"command_line": f"echo mine > note; cat note; cat {outside}; echo x > ../out"}),
            ("run_command", {"command_line": f"ln -s {outside} link; mkdir kernels; mkfifo kernels/pipe; ln -s {tmp_path} up"}),
            ("read_file", {"path": "link"}), ("write_file", {"path": "up/outside", "text": "x"}), ("check", {}),
        ),
        turn(("run_command", {"command_line": "rm -r kernels; head -c 100000 /dev/zero | tr '\\0' a"}), ("restore", {})),
        FINISH,
    ])  # fmt: skip
    session = run(tmp_path, answer)
    ran, _, linked, written, checked, output, restored = answer.results()
    assert "mine" in ran
    assert "secret" not in ran
    assert not (session.folder / "out").exists()
    assert "leads out" in linked
    assert "leads out" in written
    assert outside.read_text() == "secret"
    assert checked == "kernels/pipe is no file."
    assert len(output) < 25_000
    assert "characters left out" in output
    assert restored


def test_without_a_sandbox_there_is_no_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "network")
    answer = Turns([FINISH])
    run(tmp_path, answer)
    (request,) = answer.requests
    assert "run_command" not in {tool["function"]["name"] for tool in request.body["tools"]}
    assert "no shell on this machine (not available: network)" in request.turns[0]


# Limits


def test_a_budget_of_tokens_ends_the_session(tmp_path: Path) -> None:
    answer = Turns([turn(write("saves 0.2"), submit()), *[turn(("read_file", {"path": "reference.py"}))] * 50])
    session = run(tmp_path, answer, max_tokens=20_000)
    assert session.status == "done"
    assert str(session.outcome().stop_reason).startswith("budget: ")
    assert "tokens" in str(session.outcome().stop_reason)
    assert session.outcome().accepted, "what was kept before stays"
    usage = session.outcome().usage
    assert usage.input_tokens + usage.output_tokens <= 20_000


def test_money_ends_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"models": {"local": {"input": 100, "output": 100}}}))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(prices))
    answer = Turns([turn(("status", {}))])
    session = run(tmp_path, answer, budget_usd=1.5)
    assert str(session.outcome().stop_reason).startswith("budget: ")
    assert 0.5 < (session.outcome().usage.usd or 0) <= 1.5


def test_turns_end_the_agent_and_a_note_says_so(tmp_path: Path) -> None:
    answer = Turns([turn(("status", {}))])
    session = run(tmp_path, answer, options={"turns": 4})
    assert len(answer.requests) == 4
    assert session.status == "done"
    assert "it has used its 4 turns" in notes(session)


def test_attempts_end_the_session_while_the_agent_waits(tmp_path: Path) -> None:
    answer = Turns([turn(write(f"saves 0.{at}"), submit()) for at in range(1, 9)])
    session = run(tmp_path, answer, max_attempts=2)
    assert len(session.attempts()) == 2
    assert "attempts" in str(session.outcome().stop_reason)


def test_replies_without_a_call_are_asked_again_then_end_it(tmp_path: Path) -> None:
    answer = Turns([
        Reply("I think."), Reply("", calls=(("write_file", '{"path": "x", "te'),)),
        Reply("", calls=(("write_file", {"path": "y", "text": "half a fi"}),), finish="length"), FINISH,
    ])  # fmt: skip
    session = run(tmp_path, answer)
    assert "it called no tool 3 times in a row" in notes(session)
    again = [message["content"] for message in answer.requests[2].body["messages"] if message["role"] == "user"][1:]
    assert "It called no tool." in again[0]
    assert "no JSON" in again[1]
    assert not (session.folder / "agent" / "y").exists(), "a call that was cut off is not made"


def test_a_call_that_cannot_be_read_is_answered_and_the_others_are_made(tmp_path: Path) -> None:
    answer = Turns([
        Reply("", calls=(("write_file", '{"path": "x", "te'), write("saves 0.2"), ("finish", "nonsense"), ("status", {}))),
        turn(submit()), FINISH,
    ])  # fmt: skip
    session = run(tmp_path, answer)
    told = answer.results()
    assert [attempt.kept for attempt in session.attempts()] == [True], "the other calls of that turn were made"
    assert sum("arguments were no JSON" in text for text in told) == 2
    assert any("Attempts: 0 made" in text for text in told)
    assert not (session.folder / "agent" / "x").exists()


def test_a_long_conversation_is_shortened_and_the_task_stays(tmp_path: Path) -> None:
    long = "\n".join(f"// {at} {'x' * 60}" for at in range(250))
    answer = Turns([
        *[turn(("write_file", {"path": f"{at}.txt", "text": long}), ("read_file", {"path": f"{at}.txt"})) for at in range(5)],
        FINISH,
    ])  # fmt: skip
    run(tmp_path, answer, options={"room": 12_000})
    last = answer.requests[-1]
    assert "torch.relu(x)" in last.turns[0]
    assert len(last.prompt) < 6 * len(long), "two results in a turn of 17,000 characters, three turns"
    assert answer.results()[-1] == long, "the newest stays"
    assert answer.results()[0] == LEFT_OUT


def test_a_window_that_is_too_small_is_one_sentence(tmp_path: Path) -> None:
    too_long = Failure(400, "This model's maximum context length is 8192 tokens", "context_length_exceeded")
    with pytest.raises(Unavailable, match="larger context window"):
        run(tmp_path, Turns([too_long]))


def test_a_server_that_fails_leaves_a_session_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Turns([turn(write("saves 0.2"), submit()), Failure(500)])
    with serve(failing) as server, pytest.raises(Unavailable, match="fails after"):
        react_session(tmp_path, server.url).run(device="sim", tools=hands())
    answer = Turns([turn(write("saves 0.2"), submit()), FINISH])
    with serve(answer) as server:
        monkeypatch.setattr("stitchcuda.engineers.selection.open_chat", lambda model, *_: Endpoint(model, server.url, {}))
        session = Session.open("tiny", tmp_path / "workspace").run(device="sim", tools=hands())
    assert len(session.attempts()) == 1
    assert session.outcome().accepted


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("react:", {}, "is not known"), ("react:local", {}, "is not known"), ("react:mailbox:x", {}, "is not known"),
        ("react:openai:", {}, "is not known"), (MODEL, {"candidates": 2}, "takes no roles"),
        ("openai:a", {"roles": {"coder": (MODEL,)}}, "takes no roles"),
    ],
)  # fmt: skip
def test_models_that_cannot_be(model: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_models(Settings(model=model, **settings))


@pytest.mark.parametrize("turns", [0, "many", True])
def test_turns_have_to_be_a_number(tmp_path: Path, turns: Any) -> None:
    with pytest.raises(BadInput, match="turns"):
        run(tmp_path, Turns([FINISH]), options={"turns": turns})


def test_anthropics_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    answer = Turns([turn(write("saves 0.2"), submit("by Claude")), FINISH])
    with serve(answer) as server:
        session = react_session(tmp_path, server.root, model="react:anthropic:claude-local").run(device="sim", tools=hands())
    assert [attempt.note for attempt in session.attempts()] == ["by Claude"]


# On the simulator itself


def on_the_simulator(folder: Path, answer: Turns) -> Session:
    (folder / "scale_relu.py").write_text(REFERENCE)
    with serve(answer) as server:
        return optimize(
            folder / "scale_relu.py", model=MODEL, base_url=server.url, device="sim", workspace=folder / "ws",
            from_scratch=True, policy="strict",
        )  # fmt: skip


@pytest.mark.more
def test_strict_refuses_operators_of_torch(tmp_path: Path) -> None:
    session = on_the_simulator(tmp_path, Turns([turn(submit("as it is")), FINISH]))
    assert not session.outcome().accepted
    told = r"policy strict: \d+% of the work is in framework operators \(\w+ in model_new\.py line \d+"
    assert re.search(told, notes(session)), notes(session)


@pytest.mark.more
def test_a_wrong_kernel_is_mended_without_an_attempt(tmp_path: Path) -> None:
    files = {"model_new.py": MODEL_NEW, "kernels/scale_relu_binding.cc": BINDING, "kernels/scale_relu.cu": KERNEL}
    answer = Turns([
        turn(*(("write_file", {"path": path, "text": text.replace("ADDEND", "2.0f")}) for path, text in files.items())),
        turn(("check", {})),
        turn(("edit_file", {"path": "kernels/scale_relu.cu", "old": "2.0f", "new": "1.0f"}), ("check", {}), ("bench", {})),
        turn(submit("one kernel")),
        FINISH,
    ])  # fmt: skip
    session = on_the_simulator(tmp_path, answer)
    *_, wrong, _, right, moved, verdict = answer.results()
    assert "NOT correct" in wrong
    assert "NOT correct" not in right
    assert "own kernels move" in moved
    assert verdict.startswith("KEPT")
    (attempt,) = session.attempts()
    assert attempt.correct
    assert session.outcome().accepted


# Killed


def test_an_interrupted_session_goes_on_in_the_same_turn(tmp_path: Path) -> None:
    """The judge fails while the second submission waits for it: the agent is stopped, and its submission made again."""
    answer = Turns([turn(write("build error"), submit("first")), turn(write("saves 0.2"), submit("second")), FINISH])
    builds: list[str] = []

    def fail(tool: str) -> None:
        builds.extend([tool] if tool == "build" else [])
        if len(builds) == 2:
            raise Unavailable("the compiler is gone")

    with serve(answer) as server:
        with pytest.raises(Unavailable, match="the compiler is gone"):
            react_session(tmp_path, server.url).run(device="sim", tools=hands(fail))
        session = Session.open("tiny", tmp_path / "workspace").run(device="sim", tools=hands())
    assert [(attempt.note, attempt.kept) for attempt in session.attempts()] == [("first", False), ("second", True)]
    assert answer.results()[-1].startswith("KEPT")
    assert len(answer.requests) == 3, "no turn was paid twice"


def killed(folder: Path, server: Server, where: str) -> None:
    command = [sys.executable, "-m", "tests.engineers.agents.react_session", str(folder), server.url, where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose session was left alone, and then moved to `whole`: evidence names the folder of a program."""
    folder = tmp_path_factory.mktemp("place")
    run(folder, Turns(THREE_TASKS))
    (folder / "workspace").rename(folder / "whole")
    return folder


@pytest.mark.more
@pytest.mark.parametrize("where", ["3", "5", "7", "9", "12", "edit"])
def test_killed_in_the_middle_of_a_turn(place: Path, where: str) -> None:
    """Before and while a program is judged, in a look, and when a file was edited but nobody knows of it yet."""
    answer = Turns(THREE_TASKS)
    with serve(answer) as server:
        killed(place, server, where)
        session = Session.open("tiny", place / "workspace").run(device="sim", tools=hands())
    whole = Session.open("tiny", place / "whole")
    assert ledger(session) == ledger(whole)
    assert session.state()["program"] == whole.state()["program"]
    assert session.outcome().accepted
    assert len(answer.requests) == len(THREE_TASKS), "no turn was paid twice"
    kept = [attempt.kept for attempt in session.attempts()]
    verdicts = [text.startswith("KEPT") for text in answer.results() if text.startswith(("KEPT", "REFUSED"))]
    assert verdicts == kept, "each submission was answered with its own verdict"
    (place / "workspace").rename(place / f"killed-{where}")


def test_the_conversation_stays_small_on_disk(tmp_path: Path) -> None:
    session = run(tmp_path, Turns([*[turn(("status", {}))] * 8, FINISH]))
    with sqlite3.connect(session.folder / "agent.sqlite") as connection:
        (count,) = connection.execute("SELECT count(*) FROM checkpoints").fetchone()
    assert count <= 2
