"""What was asked once is not asked again: whoever goes on with a session finds the answers, whatever happened in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stitchcuda.engineers.budget import Budget
from stitchcuda.engineers.chat import ChatRequest, Message
from stitchcuda.engineers.mailbox import Mailbox
from stitchcuda.engineers.metered_chat import MeteredChat, Transcript
from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import BadInput, ReplyPending, Unavailable
from stitchcuda.state import Settings, Usage
from stitchcuda.store import FolderStore
from tests.engineers.briefs import LONG, PROGRAM, RIGHT, assignment, brief
from tests.engineers.metered_chats import PLAN, block, by_role, hired, paid_once
from tests.engineers.protocol_server import Failure, Request, serve

FILES = PROGRAM | {"program.json": '{"format": 1, "tasks": []}\n'}
TOO_LONG = Failure(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded")


def usage(engineers: Engineers) -> Usage:
    assert engineers.transcript is not None
    return engineers.transcript.usage()


def ids(engineers: Engineers) -> list[str]:
    assert engineers.transcript is not None
    return [call.id for call in engineers.transcript.calls()]


def test_another_process_is_given_what_was_answered(tmp_path: Path) -> None:
    """Plan, a draft with a malformed reply before it, review."""
    def answer(request: Request) -> str:
        return "I would rather not." if request.role == "coder" and len(request.turns) == 1 else by_role(request)

    found = []
    with serve(answer) as server:
        for _ in range(3):
            tools = hired(tmp_path, server)
            plan = tools.engineer.plan(brief(about="1" * 16))
            draft = tools.engineer.write(assignment(about="2" * 16, program=FILES))
            found.append((plan, draft, tools.engineer.review(assignment(about="2" * 16, program=FILES), draft, RIGHT)))
    assert found[0] == found[1] == found[2]
    assert server.roles() == ["planner", "coder", "coder", "verifier"]
    assert (usage(tools).calls, len(set(ids(tools)))) == (4, 4)
    paid_once(tools, server)


def test_what_a_server_counts_changes_no_prompt(tmp_path: Path) -> None:
    """Long texts are shortened by an estimate; one that is corrected by replies would differ in a process that has had none."""
    long = brief(reference=LONG, about="1" * 16)
    task = assignment(long, about="2" * 16, program=FILES)
    with serve(by_role, bytes_per_token=1.3) as server:
        first = hired(tmp_path, server)
        first.engineer.plan(long)
        draft = first.engineer.write(task)
        again = hired(tmp_path, server)
        assert again.engineer.write(task) == draft
        again.engineer.plan(long)
    assert server.roles() == ["planner", "coder"]


def test_a_prompt_that_was_too_long_is_not_sent_again(tmp_path: Path) -> None:
    long = brief(reference=LONG, about="1" * 16)
    with serve(lambda request: TOO_LONG if len(request.prompt) > 11_000 else json.dumps(PLAN)) as server:
        plan = hired(tmp_path, server).engineer.plan(long)
        asked = len(server.requests)
        assert asked == 2
        tools = hired(tmp_path, server)
        assert tools.engineer.plan(long) == plan
    assert len(server.requests) == asked == usage(tools).calls
    paid_once(tools, server)
    assert tools.transcript is not None
    refused, answered = tools.transcript.calls()
    assert "maximum context length" in refused.outcome
    assert (refused.input_tokens, refused.usd, answered.outcome) == (0, 0.0, "")


def test_what_failed_is_asked_again_and_both_are_kept(tmp_path: Path) -> None:
    with serve(lambda request: Failure(401, "no")) as server, pytest.raises(Unavailable):
        hired(tmp_path, server).engineer.write(assignment(about="2" * 16, program=FILES))
    with serve(lambda request: block("// one")) as server:
        tools = hired(tmp_path, server)
        tools.engineer.write(assignment(about="2" * 16, program=FILES))
    failed, done = ids(tools)
    assert failed == f"{done}#0"
    paid_once(tools, server)


def test_a_reply_that_cannot_be_read_is_no_call(tmp_path: Path) -> None:
    """Somebody resumes again and again while a file is half-written: the session's account does not grow by that."""
    ask = ChatRequest("coder", "a" * 16, 0, (Message("user", "Write it."),))

    def desk() -> MeteredChat:
        transcript = Transcript(FolderStore(tmp_path / "ws"), "mlp")
        mailbox = Mailbox(tmp_path / "box", "mlp", name="mailbox:box")
        return MeteredChat(mailbox, transcript, Budget(Settings(), transcript.usage))

    with pytest.raises(ReplyPending):
        desk().ask(ask)
    path = tmp_path / "box" / "replies" / f"mlp-{ask.id}.json"
    path.write_text('{"choices": [')
    for _ in range(3):
        with pytest.raises(BadInput, match="not valid JSON"):
            desk().ask(ask)
    assert desk().transcript.usage() == Usage()
    path.write_text(json.dumps({"choices": [{"message": {"content": "Written."}}]}))
    assert desk().ask(ask).text == "Written."
    assert [call.id for call in desk().transcript.calls()] == [ask.id]
