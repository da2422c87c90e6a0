"""What a session may spend: asked before every call, so that a cap is one.

The server counts as densely as our estimate allows, writes as much as it may, and keeps its own account.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stitchcuda.engineers.budget import LEAST_WRITTEN, Budget
from stitchcuda.engineers.chat import ChatRequest, Message
from stitchcuda.engineers.endpoint import Endpoint
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.prices import cost_usd, price_of
from stitchcuda.engineers.reply import PlanReply
from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import OutOfBudget, Unavailable
from stitchcuda.state import Settings, Usage
from tests.engineers.briefs import assignment, brief
from tests.engineers.metered_chats import PLAN, block, hired, paid_once
from tests.engineers.protocol_server import Request, Server, serve
from tests.engineers.protocols import Reply

PRICES = {"models": {"local": {"input": 1.25, "output": 10}, "small": {"input": 1, "output": 2, "context": 9000}}}
DENSE = 2.4  # bytes a token: as many tokens as the estimate has


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(path))


def charged(server: Server) -> float:
    price = price_of("local")
    assert price is not None
    return cost_usd(price, server.read, 0, server.written)


def spent(engineers: Engineers) -> Usage:
    assert engineers.transcript is not None
    return engineers.transcript.usage()


def desk(engineers: Engineers, server: Server) -> MeteredChat:
    """The desk below the roles, to ask anything at all."""
    assert engineers.transcript is not None
    assert engineers.budget is not None
    return MeteredChat(Endpoint("openai:local", server.url), engineers.transcript, engineers.budget, base_url=server.url)


def ask(number: int, length: int, *, schema: bool = False) -> ChatRequest:
    text = "You are the coder of " + "x = y; // 中\n" * (length // 14)
    return ChatRequest("coder", f"{number:016}", 0, (Message("user", text),), PlanReply if schema else None)


def until_refused(do: Callable[[int], object]) -> tuple[int, str]:
    """How often it could be done, and why no more."""
    for number in range(50):
        try:
            do(number)
        except OutOfBudget as refused:
            return number, str(refused)
    raise AssertionError("nothing was refused")


def as_much_as_allowed(request: Request) -> str:
    return "z" * int((request.limit or 0) * DENSE)


@pytest.mark.usefixtures("priced")
def test_a_cap_stops_before_the_call_that_would_exceed_it(tmp_path: Path) -> None:
    with serve(lambda request: block("// " + "x" * 9000), bytes_per_token=DENSE) as server:
        tools = hired(tmp_path, server, budget_usd=0.1)
        drafts, why = until_refused(lambda number: tools.engineer.write(assignment(about=f"{number}")))
        assert re.fullmatch(r"the next call \(coder\) may cost \$0\.0\d+ or more, and \$0\.0\d+ of \$0\.10 is left", why)
        assert 0 < drafts < 10
        assert len(server.requests) == drafts, "the server never sees the call that was refused"
        paid_once(tools, server)
        assert spent(tools).usd == pytest.approx(charged(server))
        assert charged(server) <= 0.1


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize("seed", range(2))
def test_a_cap_holds_whatever_is_asked_and_answered(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)

    def answer(request: Request) -> Reply:
        text = as_much_as_allowed(request)
        replies = [Reply(text), Reply(text[: draw.randrange(5000)]), Reply(text[:300], lost=True), Reply("", thinking=text)]
        return draw.choice(replies)

    for cap in (0.026, 0.05, draw.uniform(0.02, 0.6), draw.uniform(0.02, 0.6)):
        with serve(answer, bytes_per_token=DENSE) as server:
            engineers = hired(tmp_path / f"{cap}", server, budget_usd=cap)
            asking = desk(engineers, server)
            for number in range(6):
                with suppress(OutOfBudget, Unavailable):  # also what broke off three times
                    asking.ask(ask(number, draw.randrange(100, 20_000), schema=draw.random() < 0.5))
            assert charged(server) <= cap
            assert (spent(engineers).usd or 0.0) >= charged(server) - 1e-9, "never less than was charged"


@pytest.mark.usefixtures("priced")
def test_candidates_hold_their_share(tmp_path: Path) -> None:
    """What one call under way may cost, no other may spend."""
    asked, go = threading.Event(), threading.Event()

    def slow(request: Request) -> str:
        asked.set()
        assert go.wait(20)
        return "short"

    with serve(slow, bytes_per_token=DENSE) as server:
        engineers = hired(tmp_path, server, budget_usd=0.05)
        asking = desk(engineers, server)
        first = threading.Thread(target=asking.ask, args=(ask(1, 500),))
        first.start()
        try:
            assert asked.wait(20)
            with pytest.raises(OutOfBudget, match=r"\$0\.00\d of \$0\.05 is left"):
                asking.ask(ask(2, 500))
        finally:
            go.set()
            first.join()
        assert server.requests[0].limit is not None
        assert asking.ask(ask(2, 500)).text == "short", "what it did not need is free again"
        assert len(server.requests) == 2
        paid_once(engineers, server)


@pytest.mark.parametrize("cap", [9000, 20_000])
def test_tokens(tmp_path: Path, cap: int) -> None:
    with serve(as_much_as_allowed, bytes_per_token=DENSE) as server:
        engineers = hired(tmp_path, server, max_tokens=cap)
        asking = desk(engineers, server)
        asked, why = until_refused(lambda number: asking.ask(ask(number, 2000)))
        assert "tokens" in why
        assert len(server.requests) == asked > 0
        assert server.read + server.written <= cap
        paid_once(engineers, server)
        assert spent(engineers).usd is None, "and no price is known"


@pytest.mark.usefixtures("priced")
def test_known_money_is_capped_beside_a_model_without_a_price(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        return json.dumps(PLAN) if request.role == "planner" else block("// " + "x" * 9000)

    with serve(answer, bytes_per_token=DENSE) as server:
        tools = hired(tmp_path, server, roles={"planner": ("openai:unpriced",)}, budget_usd=0.1)
        tools.engineer.plan(brief())
        assert spent(tools).usd is None
        drafts, why = until_refused(lambda number: tools.engineer.write(assignment(about=f"{number}")))
        assert "of $0.10 is left" in why
        assert 0 < drafts < 10


@pytest.mark.usefixtures("priced")
def test_an_answer_fits_into_the_models_window(tmp_path: Path) -> None:
    with serve(lambda request: block("// one")) as server:
        hired(tmp_path, server, model="openai:small").engineer.write(assignment())
    (request,) = server.requests
    assert request.limit is not None
    assert 2500 <= request.limit < 9000, "what the request takes is left out of it"


@pytest.mark.parametrize(
    ("settings", "usage", "expected"),
    [
        ({"max_gpu_s": 60}, Usage(gpu_s=61), "61 of 60 GPU seconds"),
        ({"max_gpu_s": 60}, Usage(gpu_s=59), None),
        ({"max_minutes": 2}, Usage(wall_s=121), "2.0 minutes"),
        ({"max_minutes": 2}, Usage(wall_s=100), None),
        ({}, Usage(gpu_s=1e9, wall_s=1e9), None),
    ],
)
def test_seconds_and_minutes(settings: dict[str, float], usage: Usage, expected: str | None) -> None:
    budget = Budget(Settings(**settings), Usage)  # type: ignore[arg-type]
    budget.note(usage)
    assert budget.exhausted() == expected
    if expected is None:
        with budget.admit(None, 10, "planner") as limit:
            assert limit is None, "no limit but the model's own"
    else:
        with pytest.raises(OutOfBudget, match=expected), budget.admit(None, 10, "planner"):
            pass


def test_what_is_spent_is_said() -> None:
    money = Budget(Settings(budget_usd=1.0), lambda: Usage(usd=1.5))
    assert money.exhausted() == "$1.50 of $1.00"
    tokens = Budget(Settings(max_tokens=5000), lambda: Usage(input_tokens=4000, output_tokens=2000))
    assert tokens.exhausted() == "6,000 of 5,000 tokens"
    assert LEAST_WRITTEN["coder"] > LEAST_WRITTEN["planner"] > LEAST_WRITTEN["verifier"]
