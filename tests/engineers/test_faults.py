"""Whatever goes wrong on a model's side has one defined outcome, and what the server charged is counted once.

Refused: one sentence (`Unavailable`), nothing is counted. Lost on the way: asked again, and what it may have cost is counted.
What a model may answer that cannot be used: `tests/engineers/test_unusable.py`.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import Unavailable
from stitchcuda.state import Usage
from tests.engineers.briefs import LONG, brief
from tests.engineers.metered_chats import PLAN, assert_one_sentence, by_role, hired, once, paid_once
from tests.engineers.protocol_server import Failure, serve
from tests.engineers.protocols import Reply

GOOD = json.dumps(PLAN)
TOO_LONG = Failure(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded")
TOO_MUCH = Failure(400, "max_tokens is too large: 32000. This model supports at most 16384 completion tokens.")


def usage(engineers: Engineers) -> Usage:
    assert engineers.transcript is not None
    return engineers.transcript.usage()


@pytest.mark.parametrize(
    ("status", "said", "requests"),
    [
        (401, "refused the key", 1),
        (403, "does not allow this", 1),
        (404, "check the model's name", 1),
        (429, "for rate or quota after 2 retries", 3),
        (500, "fails after 2 retries", 3),
        (503, "fails after 2 retries", 3),
        (400, "refused the request", 1),
    ],
)
def test_a_refusing_server_is_one_clear_sentence(tmp_path: Path, status: int, said: str, requests: int) -> None:
    with serve(lambda request: Failure(status, "because of tests")) as server:
        tools = hired(tmp_path, server)
        with pytest.raises(Unavailable, match=said) as caught:
            tools.engineer.plan(brief())
    assert "because of tests" in str(caught.value)
    assert server.url in str(caught.value)
    assert len(server.requests) == requests
    assert_one_sentence(caught.value)
    assert (usage(tools).calls, usage(tools).usd) == (1, 0.0), "it is in the transcript and costs nothing"
    paid_once(tools, server)


@pytest.mark.parametrize(
    "failures",
    [[Failure(429), Failure(503)], [Failure(429, retry_after="")], [Failure(500), Failure(500)]],
    ids=["429 with retry-after, 503", "429 without", "500 twice"],
)
def test_a_server_that_recovers(tmp_path: Path, failures: list[Failure]) -> None:
    replies: list[str | Failure] = [*failures, GOOD]
    with serve(lambda request: replies.pop(0)) as server:
        tools = hired(tmp_path, server)
        assert tools.engineer.plan(brief()).tasks[0].id == "gelu-norm"
    assert usage(tools).calls == 1
    paid_once(tools, server)


def test_a_wrong_key_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(by_role, key="sk-right") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
        with pytest.raises(Unavailable, match=r"refused the key \(401: Incorrect API key.*check OPENAI_API_KEY") as caught:
            hired(tmp_path, server).engineer.plan(brief())
        assert "sk-wrong" not in str(caught.value)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
        tools = hired(tmp_path, server)
        tools.engineer.plan(brief())
        assert server.requests[-1].key == "sk-right"
    paid_once(tools, server)


def test_nobody_at_the_address(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        tools = hired(tmp_path, None, base_url=url)
        with pytest.raises(Unavailable, match=r"cannot be reached \(.*Connection refused\)") as caught:
            tools.engineer.plan(brief())
    assert url in str(caught.value)
    assert_one_sentence(caught.value)
    assert usage(tools).input_tokens == 0, "nothing was sent"


@pytest.mark.parametrize("retries", [0, 1])
def test_silence(tmp_path: Path, retries: int) -> None:
    """A server that does not answer in time may have read every request that it was sent."""
    with serve(lambda request: Reply(GOOD, silence_s=0.5)) as server:
        tools = hired(tmp_path, server, options={"timeout": 0.1, "max_retries": retries})
        with pytest.raises(Unavailable, match="did not answer in time") as caught:
            tools.engineer.plan(brief())
    assert_one_sentence(caught.value)
    assert len(server.requests) == 1 + retries
    assert server.read <= usage(tools).input_tokens <= 2 * server.read, "counted here, on the high side"


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        (Reply("cut ", lost=True), {}),
        (Reply("cut ", trouble="the engine has died"), {}),
        (Reply("", trouble="the engine has died"), {}),
        (Reply("slow " * 200), {"timeout": 0.1}),
    ],
    ids=["connection", "an event that says so", "before the first word", "silence in the middle"],
)
def test_an_answer_that_breaks_off(tmp_path: Path, fault: Reply, options: dict[str, Any]) -> None:
    delay_s = 0.3 if options else 0.0
    with serve(lambda request: fault, delay_s=delay_s) as server:
        tools = hired(tmp_path, server, options=options)
        with pytest.raises(Unavailable, match=r"broke off its answer .*, 3 times: resume later") as caught:
            tools.engineer.plan(brief())
    assert_one_sentence(caught.value)
    assert (len(server.requests), usage(tools).calls) == (3, 3)
    assert server.read <= usage(tools).input_tokens <= 2 * server.read, "the server has read it three times"
    with serve(once(fault, GOOD), delay_s=delay_s) as server:
        tools = hired(tmp_path / "again", server)
        if not options:
            assert tools.engineer.plan(brief()).tasks[0].id == "gelu-norm"
            assert (len(server.requests), usage(tools).calls) == (2, 2)
            assert usage(tools).output_tokens >= server.written, "with the part that came"


def test_a_prompt_that_is_too_long_is_shortened_twice(tmp_path: Path) -> None:
    long = brief(reference=LONG)
    with serve(lambda request: TOO_LONG) as server:
        tools = hired(tmp_path, server)
        with pytest.raises(Unavailable, match="cannot take a prompt as planner even when it is shortened") as caught:
            tools.engineer.plan(long)
    assert_one_sentence(caught.value)
    sizes = [len(request.prompt) for request in server.requests]
    assert len(sizes) == 3
    assert sizes[0] > sizes[1] > sizes[2]
    assert usage(tools).input_tokens == 0
    with serve(lambda request: TOO_LONG if len(request.prompt) == sizes[0] else GOOD) as server:
        tools = hired(tmp_path / "held", server)
        assert tools.engineer.plan(long).tasks[0].id == "gelu-norm"
    paid_once(tools, server)


@pytest.mark.parametrize("refusal", [TOO_LONG, TOO_MUCH], ids=["with what is read", "by itself"])
def test_a_bound_on_what_may_be_written(tmp_path: Path, refusal: Failure) -> None:
    """vLLM refuses a request whose longest answer does not fit beside it, OpenAI one with a longer answer than a model writes;
    that is no reason to shorten what it reads."""
    with serve(lambda request: refusal if (request.limit or 0) > 16_000 else GOOD) as server:
        tools = hired(tmp_path, server, max_tokens=1_000_000)
        assert tools.engineer.plan(brief()).tasks[0].id == "gelu-norm"
    first, second = server.requests
    assert first.prompt == second.prompt
    assert [first.limit, second.limit] == [32_000, 8000]
    paid_once(tools, server)


def test_a_server_that_counts_nothing(tmp_path: Path) -> None:
    with serve(by_role, usage=False) as server:
        tools = hired(tmp_path, server)
        tools.engineer.plan(brief())
    assert tools.transcript is not None
    (call,) = tools.transcript.calls()
    assert call.estimated
    assert call.input_tokens >= server.read, "counted here, on the high side"
    assert call.output_tokens >= server.written
