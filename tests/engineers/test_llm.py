"""A chat model as engineer, against a real HTTP server that answers from what the request contains."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers import Draft
from stitchcuda.engineers.choose import engineer_for
from stitchcuda.engineers.endpoint import is_local
from stitchcuda.engineers.llm import ChatEngineer
from stitchcuda.engineers.reply import DraftReply, Malformed, without_thinking
from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Settings

from .briefs import NOT_BUILT, PROGRAM, RIGHT, WRONG, assignment, brief
from .protocol_server import Answer, Failure, Request, serve

TASK = {"target": "r01", "title": "gelu + norm", "predicted_ms": 0.004, "why": "two launches", "strategy": "one block a row"}
PLAN = {"summary": "Fuse the one region.", "tasks": [TASK]}
REVIEW = {"bottleneck": "launches", "suggestion": "none", "expected_gain": "", "route": "next_task", "citations": []}


def draft(text: str, note: str = "did it") -> dict[str, Any]:
    return {"note": note, "exhausted": "", "files": [{"path": "kernels/r01.cu", "content": text}]}


def by_role(request: Request) -> str:
    """Plans, reviews, and writes code that depends on which failure the prompt tells of."""
    if request.role == "planner":
        return json.dumps(PLAN)
    if request.role == "verifier":
        return json.dumps(REVIEW)
    if "worst error 0.5 (allowed 1e-05" in request.prompt and "// built now" in request.prompt:
        return json.dumps(draft("// right now\n"))
    if 'identifier "xs" is undefined' in request.prompt:
        return json.dumps(draft("// built now\n"))
    return json.dumps(draft("// does not build\n"))


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def chat(url: str, **more: Any) -> ChatEngineer:
    return ChatEngineer(Settings(model="openai:local-coder", base_url=url), **more)


def test_plans_writes_and_reviews() -> None:
    progress: list[tuple[str, int]] = []
    with serve(by_role) as server:
        engineer = chat(server.url, progress=lambda role, chunks: progress.append((role, chunks)))
        assert engineer.spent().usd == 0.0, "nothing spent before the first call"
        plan = engineer.plan(brief())
        written = engineer.write(assignment())
        review = engineer.review(assignment(), written, RIGHT)
    assert (plan.version, plan.summary, plan.evidence) == (1, "Fuse the one region.", ("c" * 64, "d" * 64))
    (task,) = plan.tasks
    assert (task.id, task.kind, task.regions, task.predicted_ms) == ("r01", "region", ("r01",), 0.004)
    assert written.files == PROGRAM | {"kernels/r01.cu": "// does not build\n"}, "merged over the program"
    assert (review.route, review.suggestion) == ("next_task", "none")
    assert [request.schema for request in server.requests] == ["PlanReply", "DraftReply", "ReviewReply"]
    assert all(request.body["model"] == "local-coder" for request in server.requests)
    spent = engineer.spent()
    assert spent.calls == 3
    assert spent.input_tokens == sum(len(request.prompt) // 4 for request in server.requests)
    assert spent.output_tokens > 0
    assert spent.usd is None, "no price is known"
    assert [role for role, _ in progress] == sorted((role for role, _ in progress), key=["planner", "coder", "verifier"].index)
    assert {role for role, _ in progress} == {"planner", "coder", "verifier"}


def test_the_diagnosis_reaches_the_coder() -> None:
    with serve(by_role) as server:
        engineer = chat(server.url)
        first = engineer.write(assignment())
        second = engineer.write(assignment(last=first, evidence=NOT_BUILT, ordinal=1))
        third = engineer.write(assignment(last=second, evidence=WRONG, ordinal=2))
    assert [written.files["kernels/r01.cu"] for written in (first, second, third)] == [
        "// does not build\n",
        "// built now\n",
        "// right now\n",
    ]


def test_host_tasks_and_earlier_plans() -> None:
    host = PLAN | {"tasks": [TASK | {"target": "host:cuda_graph"}]}
    with serve(lambda request: json.dumps(host)) as server:
        plan = chat(server.url).plan(brief(plans=(chat(server.url).plan(brief()),)))
    assert (plan.version, plan.tasks[0].id, plan.tasks[0].kind, plan.tasks[0].regions) == (2, "host:cuda_graph", "host", ())


def test_a_server_without_json_schema_is_asked_in_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    def fenced(request: Request) -> str:
        if request.role == "planner":
            assert "JSON schema" in request.prompt
            return f"<think>{{'not': 'this'}}</think>\nHere it is:\n```json\n{json.dumps(PLAN)}\n```\n"
        thinking = "<think>\n```kernels/wrong.cu\nthinking\n```\n</think>\n"
        return f"{thinking}Fused.\n```cuda kernels/r01.cu\n// one\n```\n**model_new.py**\n```python\nclass ModelNew: 1\n```\n"

    with serve(fenced, structured=False) as server:
        engineer = chat(server.url)
        plan = engineer.plan(brief())
        written = engineer.write(assignment())
    assert plan.tasks[0].id == "r01"
    assert "does not offer json_schema" in plan.summary, "the fallback is recorded with the plan"
    assert "does not offer json_schema" in caplog.text, "and announced"
    assert written.files == PROGRAM | {"kernels/r01.cu": "// one\n", "model_new.py": "class ModelNew: 1\n"}
    assert written.note.startswith("Fused.")
    assert [request.schema for request in server.requests] == ["PlanReply", "", ""], "not tried again in vain"


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("I would rather not.", "no JSON object"),
        ('{"summary": "x"', "not valid JSON"),
        (json.dumps(PLAN | {"tasks": [{"target": "r01"}]}), "tasks.0.title"),
        (json.dumps(PLAN | {"tasks": [TASK, TASK]}), "planned twice"),
        (json.dumps(PLAN).replace('"r01"', '"r99"'), "'r99' is neither a region's id"),
        (json.dumps(PLAN).replace("0.004", "4000"), "the whole program takes 0.02 ms"),
    ],
)
def test_a_malformed_reply_gets_one_repair(bad: str, complaint: str) -> None:
    def repaired(request: Request) -> str:
        return json.dumps(PLAN) if complaint in request.prompt and bad in request.prompt else bad

    with serve(repaired) as server:
        engineer = chat(server.url)
        assert engineer.plan(brief()).tasks[0].id == "r01"
        assert engineer.spent().calls == 2, "the repair is paid for too"
    with serve(lambda request: bad) as server, pytest.raises(Unavailable, match="as planner twice") as caught:
        chat(server.url).plan(brief())
    assert len(server.requests) == 2
    assert complaint in str(caught.value) or len(str(caught.value)) > 150
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("path", ["/etc/passwd", "../model.py", "a/../../b.py", "", "notes.txt", "a\\b.py"])
def test_a_draft_cannot_leave_its_folder(path: str) -> None:
    bad = json.dumps({"note": "", "exhausted": "", "files": [{"path": path, "content": "x"}]})
    with serve(lambda request: bad) as server, pytest.raises(Unavailable, match="as coder twice"):
        chat(server.url).write(assignment())


def test_an_exhausted_coder_says_why() -> None:
    with serve(lambda request: json.dumps({"note": "", "exhausted": "it is at the roofline", "files": []})) as server:
        written = chat(server.url).write(assignment())
    assert (written.files, written.exhausted) == (PROGRAM, "it is at the roofline")


def test_a_draft_that_changes_nothing_is_refused() -> None:
    same = json.dumps({"note": "", "exhausted": "", "files": [{"path": "model_new.py", "content": PROGRAM["model_new.py"]}]})
    with serve(lambda request: same) as server, pytest.raises(Unavailable, match="same as in the program now"):
        chat(server.url).write(assignment())


def test_missing_key_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="set OPENAI_API_KEY") as caught:
        engineer_for(Settings(model="openai:gpt-5"))
    assert_one_sentence(caught.value)
    with pytest.raises(Unavailable, match=r"models\.example\.org"):
        engineer_for(Settings(model="openai:m", base_url="https://models.example.org/v1"))
    with serve(by_role, key="sk-right") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
        chat(server.url).plan(brief())
        assert server.requests[-1].key == "sk-right"
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
        with pytest.raises(Unavailable, match=r"refused the key \(401: Incorrect API key") as caught:
            chat(server.url).plan(brief())
    assert "sk-wrong" not in str(caught.value)


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
def test_a_refusing_endpoint_is_one_clear_sentence(status: int, said: str, requests: int) -> None:
    with serve(lambda request: Failure(status, "because of tests")) as server, pytest.raises(Unavailable, match=said) as caught:
        chat(server.url).plan(brief())
    assert "because of tests" in str(caught.value)
    assert server.url in str(caught.value)
    assert len(server.requests) == requests
    assert_one_sentence(caught.value)


def test_retries_help_when_the_server_recovers() -> None:
    replies: list[str | Failure] = [Failure(429), Failure(503), json.dumps(PLAN)]

    with serve(lambda request: replies.pop(0)) as server:
        assert chat(server.url).plan(brief()).tasks[0].id == "r01"


def test_an_unreachable_endpoint() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        started = time.monotonic()
        with pytest.raises(Unavailable, match=r"cannot be reached \(.*Connection refused\)") as caught:
            chat(url).plan(brief())
    assert time.monotonic() - started < 10
    assert url in str(caught.value)
    assert_one_sentence(caught.value)


def test_a_connection_lost_in_the_middle() -> None:
    with serve(lambda request: Failure(0)) as server, pytest.raises(Unavailable) as caught:
        chat(server.url).plan(brief())
    assert_one_sentence(caught.value)
    assert server.requests


def test_a_server_that_counts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with serve(by_role, usage=False) as server:
        engineer = chat(server.url)
        engineer.plan(brief())
    assert (engineer.spent().calls, engineer.spent().input_tokens) == (1, 0)
    assert "reports no usage" in caplog.text


def test_engineers_by_name(tmp_path: Path) -> None:
    assert engineer_for(Settings(model="builtin")).name == "builtin"
    for model in ("mailbox:box", "gpt-5", "openai:", "anthropic:x", ""):
        with pytest.raises(BadInput, match="builtin") as caught:
            engineer_for(Settings(model=model))
        assert_one_sentence(caught.value)


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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b", "b"),
        ("<thinking>a\n</thinking>\n\nb", "b"),
        ("a, thought without its opening tag\n</think>\nb", "b"),
        ("<think>cut off", ""),
        ('{"note": "the tag </think> in code"}', '{"note": "the tag </think> in code"}'),
    ],
)
def test_thinking_is_removed(text: str, left: str) -> None:
    assert without_thinking(text) == left


def test_only_thinking_is_malformed() -> None:
    with pytest.raises(Malformed):
        DraftReply.from_text("<think>```kernels/a.cu\nx\n```")


def assert_one_sentence(error: StitchError) -> None:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    assert 20 < len(text) < 500


def test_answers_are_typed() -> None:
    """The server's answer function is the protocol that these tests rely on."""
    answer: Answer = by_role
    assert isinstance(answer(Request({"messages": [{"role": "user", "content": "You are the planner of"}]}, "")), str)


def test_draft_record_keeps_the_program() -> None:
    with serve(by_role) as server:
        written = chat(server.url).write(assignment())
    assert isinstance(written, Draft)
    assert set(PROGRAM) < set(written.files)
