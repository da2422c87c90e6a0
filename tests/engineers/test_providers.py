"""Which chat models there are, how each is asked, and what it says when it cannot be: one sentence.

Answers come from a local server in each provider's own form, streamed and whole.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from stitchcuda import remedies
from stitchcuda.engineers.chat import ChatAnswer
from stitchcuda.engineers.providers import is_local
from stitchcuda.engineers.selection import Engineers, engineers_for
from stitchcuda.errors import BadInput, Unavailable, Unusable
from stitchcuda.state import Settings
from stitchcuda.store import FolderStore
from tests.engineers.briefs import RIGHT, assignment, brief
from tests.engineers.metered_chats import assert_one_sentence, block, by_role, hired, paid_once
from tests.engineers.protocol_server import Failure, Request, serve
from tests.engineers.protocols import Reply

ANTHROPIC = pytest.mark.skipif(importlib.util.find_spec("langchain_anthropic") is None, reason="no langchain-anthropic here")
WAYS = [
    pytest.param("openai:local", {}, id="completions"),
    pytest.param("openai:local", {"disable_streaming": True}, id="completions, whole"),
    pytest.param("openai:local", {"use_responses_api": True}, id="responses"),
    pytest.param("openai:local", {"use_responses_api": True, "disable_streaming": True}, id="responses, whole"),
    pytest.param("azure:local", {"api_version": "2024-10-21"}, id="azure"),
    pytest.param("anthropic:local", {"max_tokens": 4000}, id="messages", marks=ANTHROPIC),
    pytest.param("anthropic:local", {"max_tokens": 4000, "disable_streaming": True}, id="messages, whole", marks=ANTHROPIC),
]


def last(engineers: Engineers) -> ChatAnswer:
    assert engineers.transcript is not None
    answer = engineers.transcript.answer(engineers.transcript.calls()[-1])
    assert answer is not None
    return answer


@pytest.mark.parametrize(("model", "options"), WAYS)
def test_each_way_to_ask(tmp_path: Path, model: str, options: dict[str, Any]) -> None:
    """Plans, drafts, thinking, caches, refusals and ends: the same whoever carries them, and each paid for once."""
    replies: list[str | Reply | Failure] = []
    with serve(lambda request: replies.pop(0) if replies else by_role(request)) as server:
        url = server.root if model.startswith(("anthropic", "azure")) else server.url
        tools = hired(tmp_path, None, model=model, base_url=url, options=options)
        engineer = tools.engineer
        assert engineer.plan(brief()).tasks[0].id == "gelu-norm"
        draft = engineer.write(assignment(about="first"))
        assert draft.files["kernels/r01.cu"] == "// does not build\n"
        assert engineer.review(assignment(), draft, RIGHT).route == "next_task"
        structured = not model.startswith("anthropic")
        assert [request.schema for request in server.requests] == (["PlanReply", "", "ReviewReply"] if structured else [""] * 3)
        streamed = [bool(request.body.get("stream")) for request in server.requests]
        assert streamed == [not options.get("disable_streaming")] * 3

        replies.append(Reply(block("// two"), thinking="bytes first", cached=7))
        engineer.write(assignment(about="second"))
        answer = last(tools)
        assert (answer.thinking, answer.cached_tokens, answer.model) == ("bytes first", 7, "local")

        replies.append(Reply(block("// three")[:20], finish="length"))
        engineer.write(assignment(about="third"))
        assert "cut off at the output limit" in server.requests[-1].turns[-1]

        replies += [Reply("no", finish="content_filter")] * 2
        with pytest.raises(Unusable, match="it was refused"):
            engineer.write(assignment(about="fourth"))
        if structured:
            replies += [Reply(refusal="I must not")] * 2
            with pytest.raises(Unusable, match=r"it was refused \(I must not\)"):
                engineer.plan(brief(about="fifth"))
        assert tools.transcript is not None
        assert not any(call.estimated for call in tools.transcript.calls())
        paid_once(tools, server)
        replies += [Failure(404, "no such model")]
        with pytest.raises(Unavailable, match=r"is not there.*404.*check the model's name") as caught:
            engineer.plan(brief(about="sixth"))
        assert_one_sentence(caught.value)


@pytest.mark.parametrize(("model", "options"), WAYS)
def test_a_limit_reaches_each_server(tmp_path: Path, model: str, options: dict[str, Any]) -> None:
    with serve(by_role) as server:
        url = server.root if model.startswith(("anthropic", "azure")) else server.url
        tools = hired(tmp_path, None, model=model, base_url=url, options=options, max_tokens=20_000)
        tools.engineer.plan(brief())
        assert tools.budget is not None
        (request,) = server.requests
        assert request.limit is not None
        assert server.read + request.limit <= 20_000


def test_azure_is_asked_by_its_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(by_role, key="azure-key") as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.root)
        monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
        chosen(tmp_path, "azure:gpt-5-mine").engineer.plan(brief())
        chosen(tmp_path / "given", "azure:gpt-5-mine", base_url=f"{server.root}/openai").engineer.plan(brief())
    path = "/openai/deployments/gpt-5-mine/chat/completions?api-version=2024-10-21"
    assert [request.path for request in server.requests] == [path, path]


def test_options_reach_the_server(tmp_path: Path) -> None:
    with serve(by_role) as server:
        hired(tmp_path, server, options={"temperature": 0.3, "reasoning_effort": "low", "seed": 7}).engineer.plan(brief())
    body = server.requests[0].body
    assert (body["temperature"], body["reasoning_effort"], body["seed"]) == (0.3, "low", 7)
    with serve(by_role) as server, pytest.raises(BadInput, match=r"cannot be set up with .*temperature.*hot") as caught:
        hired(tmp_path, server, options={"temperature": "hot"})
    assert_one_sentence(caught.value)


def chosen(tmp_path: Path, model: str, **more: Any) -> Engineers:
    return engineers_for(Settings(model=model, **more), store=FolderStore(tmp_path), session="s", root=tmp_path)


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        ("openai:gpt-5", {}, "No key for openai:gpt-5: set OPENAI_API_KEY .* or use --model builtin"),
        ("openai:m", {"base_url": "https://models.example.org/v1"}, r"No key for openai:m at https://models\.example\.org/v1"),
        ("azure:gpt-5", {}, "needs AZURE_OPENAI_ENDPOINT and OPENAI_API_VERSION: set them"),
        ("azure:gpt-5", {"base_url": "http://localhost:1"}, "needs OPENAI_API_VERSION: set it"),
        pytest.param("anthropic:claude-opus-5", {}, "set ANTHROPIC_API_KEY", marks=ANTHROPIC),
    ],
)
def test_what_is_missing_is_said_before_any_call(tmp_path: Path, model: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(Unavailable, match=said) as caught:
        chosen(tmp_path, model, **more)
    assert_one_sentence(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("langchain_google_genai") is not None, reason="langchain-google-genai is here")
def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    remedy = re.escape(remedies.install("langchain-google-genai"))
    with pytest.raises(Unavailable, match=f"google:gemini needs the package langchain-google-genai: {remedy}") as caught:
        chosen(tmp_path, "google:gemini")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("model", ["gpt-5", "openai:", "llama:x", "builtin:x", ""])
def test_names_that_are_none(tmp_path: Path, model: str) -> None:
    with pytest.raises(BadInput, match="is not known: give builtin") as caught:
        chosen(tmp_path, model)
    assert_one_sentence(caught.value)


def test_which_roles_may_have_several(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the planner is one model, not 2"):
        chosen(tmp_path, "openai:a", roles={"planner": ("openai:b", "openai:c")})
    with pytest.raises(BadInput, match="builtin has no roles"):
        chosen(tmp_path, "builtin", roles={"planner": ("openai:b",)})
    assert chosen(tmp_path, "builtin").engineer.name == "builtin"


def test_openais_own_variable_names_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is not OpenAI's price either."""
    with serve(by_role) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        tools = chosen(tmp_path, "openai:gpt-5")
        tools.engineer.plan(brief())
        assert len(server.requests) == 1
    assert tools.transcript is not None
    assert tools.transcript.usage().usd is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.0.0.7:8000/v1", True),
        ("http://gpu-host:8000/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_which_addresses_want_no_key(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_roles_are_told_apart_by_the_server() -> None:
    """The server's answer function is the protocol that these tests rely on."""
    request = Request({"messages": [{"role": "user", "content": "You are the planner of"}]})
    assert (request.role, request.schema) == ("planner", "")
