"""A fork goes on from any attempt with what was known then, and what it was made from stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import BadInput, Damaged
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace
from tests.engineers.protocol_server import serve
from tests.engineers.stage import Model, WordHands, played
from tests.fake_model import answer_all, calls, ledger, requests, run, story
from tests.graph.tiny import SIM, ScriptedEngineer, TinyHands, tiny_session
from tests.sessions.made_sessions import THREE, begun, ended, named, opened, program, record, stopped

H200 = SIM.model_copy(update={"target": "cuda", "driver": "580.95", "measured": True})


def test_from_every_attempt_to_the_same_end(home: Workspace) -> None:
    source = ended(home)
    before, walk = record(source), source.attempts()
    for number in range(7):
        made = fork("tiny", number, workspace=home)
        assert made.name == f"tiny-fork-{number + 1}"
        assert (made.status, made.attempts()) == ("parked", walk[:number])
        engineer = ScriptedEngineer(THREE)
        again = opened(made)
        again.run(engineer=engineer, tools=TinyHands())
        assert again.outcome().accepted
        assert program(again) == program(source)
        assert [one.id for one in again.attempts()] == [one.id for one in walk]
        asked = [(given.task.id, given.ordinal) for given in engineer.assignments]
        assert asked == [(one.task, one.ordinal) for one in walk[number:]], "what it took over is not made again"
    assert record(source) == before


def test_it_is_named_by_a_number_an_id_or_nothing(home: Workspace) -> None:
    source = ended(home)
    walk = source.attempts()
    assert fork("tiny", workspace=home).attempts() == walk
    assert fork("tiny", walk[2].id[:8], to="third", workspace=home).attempts() == walk[:3]
    assert fork("tiny", walk[2].id.upper(), workspace=home).attempts() == walk[:3]
    for at in (7, "-1", "x", "", walk[0].id[:3] + "z", "3.0"):
        with pytest.raises(BadInput, match=r"has no attempt .*give a number from 0"):
            fork("tiny", at, workspace=home)
    with pytest.raises(BadInput, match="'third' exists already"):
        fork("tiny", 1, to="third", workspace=home)
    with pytest.raises(BadInput, match="there is no session"):
        fork("gone", workspace=home)
    begun(home, "fresh")
    with pytest.raises(BadInput, match="has no attempt 1: it has none yet: give 0"):
        fork("fresh", 1, workspace=home)
    assert fork("fresh", workspace=home).attempts() == ()
    assert len(home.store.names()) == 6


def test_with_another_budget(home: Workspace) -> None:
    ended(home, max_attempts=2)
    more = fork("tiny", workspace=home, settings={"max_attempts": 30})
    opened(more).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert program(more) == "a saves 0.2\nb saves 0.3\nc saves 0.1\n", "where the old one ended, the rules decide anew"
    less = fork(more.name, 4, workspace=home, settings={"max_attempts": 4})
    opened(less).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert (len(less.attempts()), less.settings.max_attempts) == (4, 4)
    assert less.outcome().accepted
    with pytest.raises(BadInput, match="leaves nothing to do"):
        fork("tiny", workspace=home, settings={"max_attempts": 0})


def test_with_another_goal(tmp_path: Path) -> None:
    session = tiny_session(tmp_path).run(device="cuda", engineer=ScriptedEngineer(THREE), tools=TinyHands(H200, timed=True))
    assert session.outcome().attempts > 3
    made = fork("tiny", 1, workspace=session.home, settings={"goal": 1.5})
    opened(made).run(device="cuda", engineer=ScriptedEngineer(THREE), tools=TinyHands(H200, timed=True))
    assert made.outcome().stop_reason == "goal reached: 2.00x"
    assert made.outcome().attempts < session.outcome().attempts


def test_of_an_interrupted_one_and_of_a_fork(home: Workspace) -> None:
    seen: list[str] = []

    def at_the_fifth(tool: str, _: int) -> bool:
        seen.append(tool)
        return seen.count("build") == 5

    source = stopped(home, before=at_the_fifth)
    assert len(source.attempts()) == 4
    first = fork("tiny", 3, to="first", workspace=home)
    second = fork("first", 2, to="second", workspace=home)
    for one in (second, first, source):
        again = opened(one)
        again.run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
        assert again.outcome().accepted
        assert program(again) == "a saves 0.2\nb saves 0.3\nc saves 0.1\n"


def test_a_fork_of_a_parked_session_asks_for_itself(tmp_path: Path) -> None:
    source = parked(tmp_path, candidates=1, max_attempts=4)
    box = source.home.root / "box"
    before, asked = record(source), requests(box)
    number = len(source.attempts())
    assert number > 1
    made = fork("story", number - 1, to="other", workspace=source.home)
    told = [call.id for call in calls(made)]
    assert set(told) < {call.id for call in calls(source)}
    last = source.attempts()[-1].id
    assert not any(last[:16] in one for one in told), "nothing that came later is its own"
    run(made)
    fresh = requests(box).keys() - asked.keys()
    assert {name.split("-")[0] for name in fresh} == {"other"}
    assert record(source) == before
    for one in (made, source):
        run(one)
        while answer_all(box):
            run(one)
        assert named(one.home, one.name).status == "done"
    assert [(one.task, one.kept, one.route) for one in ledger(made)] == [
        (one.task, one.kept, one.route) for one in ledger(source)
    ]


def parked(folder: Path, **settings: Any) -> Session:
    """A session with a mailbox that waits for a draft, some attempts on."""
    session = story(folder, **settings)
    box = session.home.root / "box"
    while len(ledger(session)) < 2:
        run(session)
        answer_all(box)
    run(session)
    assert session.status == "parked"
    return session


def test_a_candidate_that_stood_beside_cannot_be_gone_on_from(tmp_path: Path) -> None:
    session = parked(tmp_path, candidates=2, max_attempts=6)
    walk = session.attempts()
    beside = next(number for number, attempt in enumerate(walk, 1) if attempt.beside)
    with pytest.raises(BadInput, match="another candidate of its step went on"):
        fork("story", beside, workspace=session.home)
    assert session.home.store.names() == ["story"]
    chosen = next(number for number, attempt in enumerate(walk, 1) if not attempt.beside)
    made = fork("story", chosen, workspace=session.home)
    assert made.attempts() == walk[:chosen]


PLANS = [[("aa", 0.001), ("bb", 0.001)], [("ee", 0.001)]]
DRAFTS = {"aa": ["saves 0.2"], "bb": ["build error", "wrong", "saves 0.2"], "ee": ["saves 0.1"]}


def test_another_model_plans_anew_from_there(tmp_path: Path) -> None:
    other = Model([[("cc", 0.001)]], {"cc": ["saves 0.3"]})
    with serve(Model(PLANS, DRAFTS)) as server, serve(other) as second:
        source = played(tmp_path, server.url, tools=WordHands(SIM))
        asked = len(server.requests)
        settings = {"model": "openai:other", "base_url": second.url}
        made = fork("tiny", 1, to="other", workspace=source.home, settings=settings)
        opened(made).run(tools=WordHands(SIM))
        assert len(server.requests) == asked
        assert {request.body["model"] for request in second.requests} == {"other"}
    walk = made.attempts()
    assert [attempt.task for attempt in walk] == ["aa", "cc"]
    assert [attempt.engineer for attempt in walk] == ["openai:local", "openai:other"]
    assert made.outcome().accepted
    assert made.outcome().usage.calls > len(second.requests), "what was taken over was paid for"


def test_the_built_in_engineer_goes_on_from_a_chat_model(tmp_path: Path) -> None:
    with serve(Model(PLANS, DRAFTS)) as server:
        source = played(tmp_path, server.url, tools=WordHands(SIM))
    made = fork("tiny", 1, workspace=source.home, settings={"model": "builtin", "base_url": None})
    opened(made).run(tools=WordHands(SIM))
    assert made.attempts()[0] == source.attempts()[0]
    assert {attempt.engineer for attempt in made.attempts()[1:]} <= {"builtin"}
    assert made.state()["plan_version"] == 2, "it has made a plan of its own"
    assert made.outcome().accepted


def test_a_chat_model_goes_on_from_the_built_in_engineer(tmp_path: Path) -> None:
    source = tiny_session(tmp_path).run(tools=WordHands(SIM))
    (only,) = source.attempts()
    with serve(Model([[("cc", 0.001)]], {"cc": ["saves 0.3"]})) as server:
        made = fork("tiny", workspace=source.home, settings={"model": "openai:other", "base_url": server.url})
        opened(made).run(tools=WordHands(SIM))
    assert [attempt.engineer for attempt in made.attempts()] == ["builtin", "openai:other"]
    assert made.attempts()[0] == only
    assert made.outcome().accepted


def test_a_mailbox_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = tiny_session(tmp_path).run(tools=WordHands(SIM))
    made = fork("tiny", workspace=session.home, settings={"model": "mailbox:workspace/box"})
    assert made.settings.model == "mailbox:box"


def test_without_the_checkpoint_it_says_so(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    session = ended(home)
    (session.folder / "checkpoints.sqlite").unlink()
    with pytest.raises(Damaged, match=r"the checkpoints of session .tiny. are missing"):
        fork("tiny", 3, workspace=home)
    opened(session).run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    assert fork("tiny", 3, workspace=home).attempts() == session.attempts()[:3], "once it is mended"
