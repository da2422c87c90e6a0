"""A session with a chat model, killed at its calls, parked at them and moved in between, has the record of one left alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stitchcuda.sessions.session import Session
from tests import killed_process
from tests.engineers.protocol_server import Request, Server, serve
from tests.fake_model import answer_all, calls, ledger, reply_to, requests, run, story, unanswered, usage

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
from tests import clerk, dying
from stitchcuda.sessions.session import Session
dying.arm(dying.Fate(Path(sys.argv[2]), dying.by_signal, lambda point, call: True))
clerk.run(Session.open("story", sys.argv[1]))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Left alone: run, everything answered, run."""
    session = story(tmp_path_factory.mktemp("whole"))
    run(session)
    while answer_all(session.home.root / "box"):
        run(session)
    assert session.outcome().accepted
    return session


def test_the_story_has_every_kind_of_call(whole: Session) -> None:
    assert [attempt.task for attempt in ledger(whole) if not attempt.beside] == [
        "alpha", "beta", "beta", "gamma", "gamma", "gamma", "epsilon",
    ]  # fmt: skip
    assert {attempt.route for attempt in ledger(whole)} == {"code", "replan", "next_task"}
    assert sum(attempt.beside for attempt in ledger(whole)) == 7
    asked = [call.id.split("-") for call in calls(whole)]
    assert [sum(role == one for role, *_ in asked) for one in ("planner", "coder", "look", "verifier")] == [3, 18, 1, 7]
    assert sum(number == "1" for role, _, number, *_ in asked if role == "coder") == 2, "after a look, and a repair"
    assert usage(whole).usd, "what was answered has a price"


def test_replies_that_are_all_there_make_the_same_session_in_one_run(whole: Session, tmp_path: Path) -> None:
    session = story(tmp_path)
    shutil.copytree(whole.home.root / "box" / "replies", session.home.root / "box" / "replies")
    assert run(session).status == "done"
    same(session, whole)
    assert requests(session.home.root / "box") == {}, "nobody is asked what is answered already"


@pytest.mark.more
def test_killed_once_at_every_call_and_moved(whole: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: each call is struck at one point, another one from call to call."""
    book = tmp_path / "book"
    session = lived_through(story(tmp_path / "here"), tmp_path, lambda session: outlives(session, book, one_each, monkeypatch))
    same(session, whole)
    deaths = killed_process.deaths(book)
    assert {point for point, _ in deaths} == set(killed_process.POINTS)
    assert len(deaths) == len({call for _, call in deaths})
    missed = {call.id for call in calls(whole) if call.model} - {call for _, call in deaths}
    assert all(one_each("stored", call) for call in missed), "where another candidate's death was first"
    assert requests(session.home.root / "box") == requests(whole.home.root / "box")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_by_the_system_at_every_point_of_every_call_and_moved(whole: Session, tmp_path: Path) -> None:
    def alive(session: Session) -> bool:
        command = [sys.executable, "-c", CHILD, str(session.home.root), str(tmp_path / "book")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode == 0

    session = lived_through(story(tmp_path / "here"), tmp_path, alive)
    same(session, whole)
    deaths = killed_process.deaths(tmp_path / "book")
    asked = {call.id for call in calls(whole) if call.model}
    assert len(deaths) == len(set(deaths))
    assert {call for point, call in deaths if point == "asked"} == asked
    assert {call for point, call in deaths if point == "kept"} == {call.id for call in calls(whole)}
    assert {call for point, call in deaths if point == "done"} == asked
    assert {call for point, call in deaths if point == "stored"} <= asked
    assert requests(session.home.root / "box") == requests(whole.home.root / "box")


def outlives(session: Session, book: Path, strikes: Callable[[str, str], bool], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Runs it in this process, as one that dies by an exception; whether it came to an end or to a park."""
    with monkeypatch.context() as patched:
        killed_process.arm(killed_process.Fate(book, killed_process.by_exception, strikes), patched.setattr)
        try:
            run(session)
        except killed_process.Killed:
            return False
    return True


def one_each(point: str, call: str) -> bool:
    return killed_process.POINTS[int(call[-1], 16) % 4] == point


def lived_through(session: Session, folder: Path, alive: Callable[[Session], bool]) -> Session:
    """Runs, answers and runs again until the session is done, in another place each time; returns it as it is in the end."""
    for number in range(1000):
        root = folder / f"place-{number}" / "deeper" / "ws"
        root.parent.mkdir(parents=True)
        session.home.root.rename(root)
        session = Session.open("story", root)
        if alive(session):
            if not unanswered(root / "box"):
                assert session.status == "done"
                return session
            answer_all(root / "box")
    raise AssertionError("it comes to no end")


def same(session: Session, whole: Session) -> None:
    """Record by record: the ledger with the evidence, every call once with request and reply, the program, what it cost."""
    assert ledger(session) == ledger(whole)
    assert session.attempts() == whole.attempts()
    assert calls(session) == calls(whole)
    lines = (session.folder / "transcript.jsonl").read_text().splitlines()
    assert len(lines) == len(calls(session)), "each once"
    assert session.state()["program"] == whole.state()["program"]
    assert usage(session) == usage(whole)
    for key in ("plans", "tasks_done", "tasks_kept", "notes", "stop_reason"):
        assert session.state().get(key) == whole.state().get(key), key
    assert session.program is not None
    assert whole.program is not None
    texts = [{path.name: path.read_bytes() for path in found.rglob("*.*")} for found in (session.program, whole.program)]
    assert texts[0] == texts[1]


# at a live endpoint


def after_the_reply(point: str, call: str) -> bool:
    return point == ("kept", "done")[int(call[-1], 16) % 2]


def answer(request: Request) -> str:
    return reply_to(request.body["messages"])


def paid_once(session: Session, server: Server) -> None:
    assert usage(session).calls == len(server.requests)
    assert (usage(session).input_tokens, usage(session).output_tokens) == (server.read, server.written)
    asked = [call.id for call in calls(session) if call.model]
    assert len(asked) == len(set(asked)) == len(server.requests), "no request was sent twice"


def test_killed_after_each_reply_of_a_live_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the reply was recorded, and before the node's end: the server is asked nothing twice."""
    book = tmp_path / "book"
    with serve(answer) as server:
        session = story(tmp_path, model="openai:local", base_url=server.url, max_attempts=6)
        while not outlives(session, book, after_the_reply, monkeypatch):
            pass
    assert session.outcome().accepted
    assert {call for _, call in killed_process.deaths(book)} >= {call.id for call in calls(session) if call.model}
    paid_once(session, server)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_by_the_system_after_each_reply_of_a_live_model(tmp_path: Path) -> None:
    """One candidate a step: what another one is being answered when the process dies is lost, and nobody can know of it."""
    with serve(answer) as server:
        session = story(tmp_path, model="openai:local", base_url=server.url, candidates=1)
        child = CHILD.replace("True", "point != 'asked'")
        command = [sys.executable, "-c", child, str(session.home.root), str(tmp_path / "book")]
        for _ in range(200):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
            if done.returncode == 0:
                break
    assert session.outcome().accepted
    deaths = killed_process.deaths(tmp_path / "book")
    assert {call for point, call in deaths if point == "kept"} == {call.id for call in calls(session)}
    paid_once(session, server)
