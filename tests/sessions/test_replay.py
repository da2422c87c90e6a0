"""A replay: the record alone, nobody is asked, and what is not the same is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.memory import open_memory
from stitchcuda.sessions.fork import fork
from stitchcuda.sessions.replay import replay
from stitchcuda.sessions.session import Session
from stitchcuda.state import DeviceFacts
from stitchcuda.store import Workspace
from tests.engineers.protocol_server import serve
from tests.engineers.stage import Model, WordHands, played
from tests.fake_model import KernelHands, answer_all, requests, run, story
from tests.graph.tiny import SIM, ScriptedEngineer, TinyHands
from tests.sessions.made_sessions import THREE, begun, ended, named, record

PLANS = [[("aa", 0.001), ("bb", 0.001)], [("ee", 0.001)]]
DRAFTS = {"aa": ["saves 0.2"], "bb": ["build error", "wrong", "saves 0.2"], "ee": ["saves 0.1"]}


@pytest.fixture
def chatted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of five attempts with a chat model whose server is gone by now, and the key with it."""
    with monkeypatch.context() as then, serve(Model(PLANS, DRAFTS)) as server:
        then.setenv("OPENAI_API_KEY", "sk-of-then")
        return played(tmp_path, server.url, tools=WordHands(SIM))


def test_a_chat_session_by_its_record(chatted: Session) -> None:
    before = record(chatted)
    found = replay("tiny", tools=WordHands(SIM), workspace=chatted.home)
    assert (found.session, found.attempts, found.of, found.same, found.parts) == ("tiny-replay-1", 5, 5, True, "")
    made = named(chatted.home, "tiny-replay-1")
    assert made.outcome().accepted
    assert made.outcome().usage.input_tokens == chatted.outcome().usage.input_tokens
    assert [attempt.program for attempt in made.attempts()] == [attempt.program for attempt in chatted.attempts()]
    assert record(chatted) == before
    assert replay("tiny-replay-1", tools=WordHands(SIM), workspace=chatted.home, to="again").same, "a replay can be replayed"


def test_a_replay_teaches_nothing(chatted: Session) -> None:
    with open_memory(chatted.home.root) as memory:
        before = memory.lessons()
        assert sum(len(experience.lessons) for experience in before) == 3
    assert replay("tiny", tools=WordHands(SIM), workspace=chatted.home).same
    with open_memory(chatted.home.root) as memory:
        assert memory.lessons() == before


def test_where_the_tools_say_something_else_it_is_told(chatted: Session) -> None:
    class Stricter(WordHands):
        def check(self, program: Path, seeds: int):  # type: ignore[no-untyped-def]
            found = super().check(program, seeds)
            ok = found.ok and "bb saves" not in (program / "drafts.txt").read_text()
            return found.model_copy(update={"ok": ok, "reasons": () if ok else ("y is off by 0.5",)})

    found = replay("tiny", tools=Stricter(SIM), workspace=chatted.home)
    assert not found.same
    assert found.parts == "attempt 4 is wrong, in the record correct"


def test_a_reply_that_the_record_lacks_ends_it(chatted: Session) -> None:
    """The transcript ends before the last plan's draft."""
    path = chatted.folder / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = chatted.attempts()[-1].id
    cut = next(at for at, line in enumerate(lines) if f"coder-{last}".encode() in line)
    path.write_bytes(b"".join(lines[:cut]))
    found = replay("tiny", tools=WordHands(SIM), workspace=chatted.home)
    assert (found.attempts, found.of, found.same) == (4, 5, False)
    assert found.parts.startswith("the replay ended after attempt 4 of 5: the record has no reply of openai:local as coder at ")


def test_an_unfinished_one_is_replayed_as_far_as_it_came(tmp_path: Path) -> None:
    session = story(tmp_path, candidates=1, max_attempts=5)
    box = session.home.root / "box"
    for _ in range(6):
        run(session)
        answer_all(box)
    run(session)
    assert session.status == "parked"
    asked, before = requests(box), record(session)
    found = replay("story", tools=KernelHands(), workspace=session.home)
    assert (found.of, found.attempts, found.parts, found.same) == (len(before[0]), len(before[0]), "", True)
    assert found.of > 1
    assert requests(box) == asked, "nobody is asked"
    assert record(session) == before


def test_a_fork_is_replayed(chatted: Session) -> None:
    made = fork("tiny", 3, to="forked", workspace=chatted.home)
    found = replay("forked", tools=WordHands(SIM), workspace=chatted.home)
    assert (found.attempts, found.of, found.same) == (3, 3, True)
    assert len(made.attempts()) == 3


def test_one_that_cannot_begin_leaves_nothing(chatted: Session) -> None:
    with pytest.raises(BadInput, match="'tiny' exists already"):
        replay("tiny", to="tiny", workspace=chatted.home)
    with pytest.raises(BadInput, match="there is no session 'gone'"):
        replay("gone", workspace=chatted.home)

    class NoGpu(WordHands):
        def device(self) -> DeviceFacts:
            raise Unavailable("there is no GPU here")

    with pytest.raises(Unavailable, match="no GPU"):
        replay("tiny", tools=NoGpu(SIM), workspace=chatted.home)
    assert chatted.home.store.names() == ["tiny"]


def test_the_built_in_engineer_needs_no_record(home: Workspace) -> None:
    """A session that has not run: the same nothing."""
    session = begun(home).run(tools=TinyHands())
    found = replay("tiny", tools=TinyHands(), workspace=home)
    assert found.same, found.parts
    assert found.of == len(session.attempts())


def scripted() -> Engineers:
    return Engineers(ScriptedEngineer(THREE), recorded=True)


def test_one_of_the_built_in_engineer_ends_where_the_record_ends(home: Workspace) -> None:
    ended(home)
    forked = fork("tiny", 4, workspace=home)
    found = replay(forked.name, engineer=scripted(), tools=TinyHands(), workspace=home)
    assert (found.attempts, found.of, found.same, found.parts) == (4, 4, True, "")
    assert named(home, found.session).status == "parked", "it stands where the other one stands"
    at_the_start = fork("tiny", 0, workspace=home)
    assert replay(at_the_start.name, engineer=scripted(), tools=TinyHands(), workspace=home).same


def test_what_people_answered_is_answered_again(home: Workspace) -> None:
    session = ended(home, approve=("plan", "code"))
    answers: list[Any] = [{"tasks": ["x"]}, {"tasks": ["c", "a"]}, "accept", {"files": {"drafts.txt": ""}}, "accept"]
    for answer in [*answers, {"files": {"model_new.py": "# mine\n"}}]:
        session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands(), answer=answer)
    while session.waiting:
        session.run(engineer=ScriptedEngineer(THREE), tools=TinyHands(), answer="accept")
    before = session.attempts()
    assert any(attempt.note.endswith("(edited by a person)") for attempt in before)
    found = replay("tiny", engineer=scripted(), tools=TinyHands(), workspace=home)
    assert (found.same, found.attempts, found.parts) == (True, len(before), "")
    assert [one.program for one in named(home, found.session).attempts()] == [one.program for one in before]
