"""What a model does wrong costs a session a task or its plan, never what it has verified; an outage is resumed from. Each
answer is paid for once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sessions.session import Session
from tests.engineers.protocol_server import Failure, Request, Server, serve
from tests.engineers.protocols import Reply
from tests.engineers.stage import Model, WordHands, played
from tests.graph.tiny import SIM

REFUSAL = "I'm sorry, but I can't help with that."
PLANS = [[("aa", 0.2), ("bb", 0.2)]]
DRAFTS = {"aa": ["saves 0.2"], "bb": ["saves 0.2"]}


def paid_once(session: Session, server: Server) -> None:
    usage = session.outcome().usage
    assert (usage.input_tokens, usage.output_tokens) == (server.read, server.written)


@pytest.mark.parametrize("reply", [REFUSAL, "", '{"summary": "cut'], ids=["refused", "empty", "cut"])
def test_without_a_plan_it_ends_with_what_is_verified(tmp_path: Path, reply: str) -> None:
    with serve(lambda request: reply) as server:
        session = played(tmp_path, server.url, tools=WordHands(SIM), from_scratch=False)
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted, outcome.attempts) == ("done", True, 1), "the built-in engineer's start"
    assert str(outcome.stop_reason).startswith("there is no plan: openai:local answered as planner in a form that cannot")
    assert server.roles() == ["planner", "planner"]
    paid_once(session, server)


@pytest.mark.parametrize("reply", [Reply(refusal="no"), REFUSAL, Reply("```kernels/aa.cu\n//", finish="length")])
def test_a_task_whose_coder_says_nothing_is_asked_anew_once_and_dropped(tmp_path: Path, reply: str | Reply) -> None:
    class Mute(Model):
        def draft(self, prompt: str) -> str | Reply:
            return reply if "## Task aa:" in prompt else super().draft(prompt)

    with serve(Mute(PLANS, DRAFTS)) as server:
        session = played(tmp_path, server.url)
    outcome, notes = session.outcome(), session.state()["notes"]
    assert (outcome.status, outcome.accepted) == ("done", True)
    assert outcome.speedup == pytest.approx(1.25)
    assert session.state()["tasks_kept"] == ("bb",)
    assert session.state()["tasks_done"] == ("aa", "bb")
    assert sum("## Task aa:" in request.turns[0] for request in server.requests) == 4, "two steps, each with a repair"
    assert sum("in a form that cannot be used" in note for note in notes) == 2
    assert any("the task is dropped after 2 such steps" in note for note in notes)
    paid_once(session, server)


def test_a_coder_that_has_nothing_new_ends_its_task(tmp_path: Path) -> None:
    class Tired(Model):
        def draft(self, prompt: str) -> str | Reply:
            return "exhausted: it is at the roofline" if "## Task aa:" in prompt else super().draft(prompt)

    with serve(Tired(PLANS, DRAFTS)) as server:
        session = played(tmp_path, server.url)
    assert session.state()["tasks_kept"] == ("bb",)
    assert any("openai:local has nothing new to offer: it is at the roofline" in note for note in session.state()["notes"])
    assert session.outcome().accepted
    paid_once(session, server)


def test_without_a_review_the_tools_word_stands(tmp_path: Path) -> None:
    model = Model(PLANS, {"aa": ["wrong", "saves 0.2"], "bb": ["saves 0.2"]})
    with serve(lambda request: REFUSAL if request.role == "verifier" else model(request)) as server:
        session = played(tmp_path, server.url)
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted) == ("done", True)
    assert outcome.speedup == pytest.approx(1 / 0.6)
    assert any("the tools' word stands alone" in note for note in session.state()["notes"])
    coder = [request for request in server.requests if request.role == "coder"][1]
    assert "Bottleneck: y is off by 0.25" in coder.prompt
    paid_once(session, server)


def test_no_session_turns_in_circles(tmp_path: Path) -> None:
    """The same failure again and again: the plan is made anew, then the task is dropped."""
    with serve(Model([[("aa", 0.2)], [("bb", 0.2)]], {"aa": ["build error"], "bb": ["saves 0.2"]})) as server:
        session = played(tmp_path, server.url, max_attempts=20)
    outcome = session.outcome()
    assert outcome.status == "done"
    assert len(session.attempts()) < 10
    paid_once(session, server)


@pytest.mark.parametrize("failing", ["planner", "coder", "verifier"])
def test_an_outage_is_one_sentence_and_resumed_from(tmp_path: Path, failing: str) -> None:
    model, down = Model(PLANS, DRAFTS), [True]

    def answer(request: Request) -> str | Reply | Failure:
        return Failure(401, "the key was revoked") if down[0] and request.role == failing else model(request)

    with serve(answer) as server:
        with pytest.raises(Unavailable, match=r"refused the key \(401: the key was revoked\)"):
            played(tmp_path, server.url)
        session = Session.open("tiny", tmp_path / "workspace")
        assert session.status == "failed"
        assert "the key was revoked" in str(session.outcome().stop_reason)
        down[0] = False
        session.run(device="cuda", tools=WordHands())
        assert session.outcome().speedup == pytest.approx(1 / 0.6)
        answered = [request for request in server.requests if request.role]
        assert len(answered) - 1 == len({request.prompt for request in answered}), "only what was refused is asked again"
    paid_once(session, server)


def test_an_outage_of_one_candidate(tmp_path: Path) -> None:
    """What the others were answered meanwhile is kept."""
    model, down = Model([[("aa", 0.2)]], DRAFTS), [True]

    def answer(request: Request) -> str | Reply | Failure:
        return Failure(403, "not today") if down[0] and "Yours is number 2" in request.prompt else model(request)

    with serve(answer) as server:
        with pytest.raises(Unavailable, match="not today"):
            played(tmp_path, server.url, candidates=3)
        down[0] = False
        session = Session.open("tiny", tmp_path / "workspace").run(device="cuda", tools=WordHands())
        assert session.outcome().accepted
        assert len(server.requests) - 1 == len({request.prompt for request in server.requests})
    paid_once(session, server)


def test_a_lost_connection_costs_one_more_call(tmp_path: Path) -> None:
    model, lost = Model(PLANS, DRAFTS), [True]

    def answer(request: Request) -> str | Reply | Failure:
        if request.role == "coder" and lost[0]:
            lost[0] = False
            return Reply("Here it c", lost=True)
        return model(request)

    with serve(answer) as server:
        session = played(tmp_path, server.url)
    usage = session.outcome().usage
    assert session.outcome().accepted
    assert usage.calls == len(server.requests)
    assert server.read <= usage.input_tokens < 2 * server.read, "what broke off is counted here, on the high side"


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"models": {"local": {"input": 1.25, "output": 10}}}))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(path))


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget_usd": 0.05}, r"budget: the next call"),
        ({"max_tokens": 13_000}, r"budget: the next call"),
        ({"max_gpu_s": 1e-6}, "budget: 0 of 0 GPU seconds"),
        ({"max_minutes": 1e-6}, "budget: 0.0 minutes"),
        ({"budget_usd": 0.0}, "budget: the next call"),
    ],
    ids=["money", "tokens", "GPU seconds", "minutes", "nothing"],
)
def test_a_budget_ends_a_session_with_what_is_verified(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with serve(Model(PLANS, {"aa": ["wrong", "wronger", "saves 0.2"], "bb": ["saves 0.2"]}), bytes_per_token=2.4) as server:
        session = played(tmp_path, server.url, **settings)
    outcome = session.outcome()
    assert outcome.status == "done"
    assert str(outcome.stop_reason).startswith(said)
    paid_once(session, server)
    if "budget_usd" in settings:
        assert outcome.usage.usd is not None
        assert outcome.usage.usd <= settings["budget_usd"]
    if "max_tokens" in settings:
        assert server.read + server.written <= settings["max_tokens"]
        assert server.requests
    assert bool(server.requests) == (said.startswith("budget: the next") and settings != {"budget_usd": 0.0})


def test_nothing_may_be_spent(tmp_path: Path) -> None:
    """The built-in engineer's start costs nothing and is what the session ends with."""
    with serve(Model(PLANS, DRAFTS)) as server:
        session = played(tmp_path, server.url, tools=WordHands(SIM), from_scratch=False, max_tokens=1000)
    outcome = session.outcome()
    assert (outcome.status, outcome.accepted, outcome.attempts) == ("done", True, 1)
    assert str(outcome.stop_reason).startswith("budget: the next call (planner) reads")
    assert server.requests == []
