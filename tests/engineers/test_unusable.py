"""What a model answers that is not what was asked for: one repair in which it sees why, then `Unusable`, with which a session
goes on. Thinking, other languages and endless text on the way; each answer is paid for once. Lost answers:
`tests/engineers/test_faults.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stitchcuda.engineers import Draft
from stitchcuda.engineers.chat_engineer import REPAIRS
from stitchcuda.engineers.endpoint import MOST_CHARACTERS
from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import Unusable
from tests.engineers.briefs import PROGRAM, RIGHT, assignment, brief
from tests.engineers.metered_chats import PLAN, REVIEW, block, hired, once, paid_once
from tests.engineers.protocol_server import Answer, Request, Server, serve
from tests.engineers.protocols import Reply

GOOD = json.dumps(PLAN)


@dataclass
class Line:
    """A server that answers what a test wants, and one session's engineers that ask it: both are for many tests."""

    server: Server
    engineers: Engineers
    answers: list[Answer]

    def to(self, answer: Answer) -> list[Request]:
        """What it was asked from here on."""
        self.answers.append(answer)
        self.server.requests.clear()
        return self.server.requests


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    answers: list[Answer] = []
    with serve(lambda request: answers[-1](request)) as server:
        yield Line(server, hired(tmp_path_factory.mktemp("line"), server), answers)


PLANS = {
    "empty": (Reply(""), "the reply is empty"),
    "only white space": (Reply("\n \n"), "the reply is empty"),
    "refused": (Reply(refusal="I cannot help with that"), "it was refused (I cannot help with that)"),
    "filtered": (Reply(GOOD[:40], finish="content_filter"), "it was refused (stopped by a filter"),
    "refused in words": (Reply("I'm sorry, but I cannot help with that."), "there is no JSON object in the reply"),
    "cut": (Reply(GOOD[:60]), "not valid JSON"),
    "cut behind a task": (Reply(GOOD[:-2]), "not valid JSON"),
    "out of room": (Reply(GOOD[:60], finish="length"), "cut off at the output limit"),
    "another schema": (Reply('{"tasks": [{"target": "r01"}]}'), "tasks.0.name"),
    "a list": (Reply("[1, 2]"), "there is no JSON object"),
    "a number for a name": (Reply(GOOD.replace('"gelu-norm"', "7")), "tasks.0.name"),
    "only thinking": (Reply(f"<think>\n{GOOD}"), "the reply is empty"),
    "nested without end": (Reply('{"a":' * 20_000), "not valid JSON"),
}


@pytest.mark.parametrize("fault", PLANS)
def test_a_plan_that_cannot_be_read(line: Line, fault: str) -> None:
    reply, complaint = PLANS[fault]
    requests = line.to(once(reply, GOOD))
    assert line.engineers.engineer.plan(brief(about=f"{fault} once")).tasks[0].id == "gelu-norm"
    asked, _, repair = requests[1].turns
    assert asked == requests[0].prompt
    assert complaint in repair
    requests = line.to(lambda request: reply)
    with pytest.raises(Unusable, match="openai:local answered as planner in a form that cannot be used"):
        line.engineers.engineer.plan(brief(about=f"{fault} twice"))
    assert len(requests) == 2, "the same answer twice ends it"
    paid_once(line.engineers, line.server)


def test_other_answers_that_cannot_be_read_are_asked_again(line: Line) -> None:
    answers = iter(f"no plan {number}" for number in range(9))
    requests = line.to(lambda request: next(answers))
    with pytest.raises(Unusable, match="in a form that cannot be used"):
        line.engineers.engineer.plan(brief(about="always another"))
    assert len(requests) == 1 + REPAIRS
    paid_once(line.engineers, line.server)


DRAFTS = {
    "no fence": ("I have fused both into one kernel.", "no fenced block with a file in the reply"),
    "a fence without a path": ("```cuda\n__global__ void k() {}\n```", "does not say which file it is"),
    "an open fence": (f"{block('// one')}```kernels/b.cu\n// cut here", "a fenced block is not closed"),
    "refused in words": ("I'm sorry, but I can't assist with that request.", "no fenced block"),
    "outside of the program": (block("x", "../model.py"), "not inside the program's folder"),
    "an absolute path": (block("x", "/etc/profile.d/a.py"), "not inside the program's folder"),
    "beside the program": (block("x", "setup.py"), "neither model_new.py nor below kernels/"),
    "an edit that does not fit": (
        block("<<<<<<< SEARCH\nnowhere\n=======\nhere\n>>>>>>> REPLACE", "model_new.py"), "'nowhere' is not in it"
    ),
    "only thinking": (f"<think>\n{block('// thought')}", "the reply is empty"),
}  # fmt: skip


@pytest.mark.parametrize("fault", DRAFTS)
def test_a_draft_that_cannot_be_read(line: Line, fault: str) -> None:
    text, complaint = DRAFTS[fault]
    requests = line.to(once(text, block("// mended")))
    written = line.engineers.engineer.write(assignment(about=f"{fault} once"))
    assert written.files["kernels/r01.cu"] == "// mended\n"
    assert complaint in requests[1].turns[-1]
    requests = line.to(lambda request: text)
    with pytest.raises(Unusable, match="as coder in a form that cannot be used"):
        line.engineers.engineer.write(assignment(about=f"{fault} twice"))
    assert len(requests) == 2, "the same answer twice ends it"
    paid_once(line.engineers, line.server)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(json.dumps(REVIEW | {"route": "onwards"}), "route"), (json.dumps(REVIEW | {"suggestion": " "}), "must not be empty")],
)
def test_a_review_that_cannot_be_read(line: Line, text: str, complaint: str) -> None:
    requests = line.to(once(text, json.dumps(REVIEW)))
    review = line.engineers.engineer.review(assignment(about=complaint), Draft(files=PROGRAM), RIGHT)
    assert review.route == "next_task"
    assert complaint in requests[1].turns[-1]
    paid_once(line.engineers, line.server)


def test_thinking_is_kept_and_never_read_as_code(line: Line) -> None:
    thought = block("// a thought", "kernels/thought.cu")
    for number, reply in enumerate((
        Reply(f"<think>\n{thought}</think>\n{block('// written')}"),
        Reply(f"{thought}</think>\n{block('// written')}"),  # the server took the opening tag off
        Reply(block("// written"), thinking=thought),
    )):  # fmt: skip
        line.to(lambda request, reply=reply: reply)  # type: ignore[misc]
        files = line.engineers.engineer.write(assignment(about=f"thought {number}")).files
        assert sorted(files) == ["kernels/r01.cu", "model_new.py", "program.json"]
        assert line.engineers.transcript is not None
        answer = line.engineers.transcript.answer(line.engineers.transcript.calls()[-1])
        assert answer is not None
        assert "// a thought" in answer.text + answer.thinking
    paid_once(line.engineers, line.server)


def test_a_megabyte_is_broken_off_and_repaired_once(tmp_path: Path) -> None:
    endless = Reply(block("//\n" * (MOST_CHARACTERS // 2)))
    with serve(once(endless, block("// short"))) as server:
        tools = hired(tmp_path, server)
        assert tools.engineer.write(assignment()).files["kernels/r01.cu"] == "// short\n"
    assert "longer than a megabyte" in server.requests[1].turns[-1]
    assert len(server.requests[1].turns[1]) < 3000, "it is not sent back whole"
    assert tools.transcript is not None
    long, _ = tools.transcript.calls()
    answer = tools.transcript.answer(long)
    assert answer is not None
    assert (len(answer.text), answer.finish) == (MOST_CHARACTERS, "long")
    assert long.estimated, "the server's count comes at the end, which nobody waited for"
    assert long.output_tokens >= MOST_CHARACTERS / 4


def test_another_language_is_used_as_it_is(tmp_path: Path) -> None:
    def chinese(request: Request) -> str:
        if request.role == "planner":
            return json.dumps(PLAN | {"summary": "融合唯一的区域。"}, ensure_ascii=False)
        if request.role == "verifier":
            return f"分析如下：\n{json.dumps(REVIEW | {'bottleneck': '启动开销'}, ensure_ascii=False)}\n谢谢。"
        return f"好的，我把两个算子融合成一个内核。\n{block('// 一行一个线程块', note='文件如下：')}希望有帮助！"

    with serve(chinese, structured=False) as server:
        tools = hired(tmp_path, server)
        plan = tools.engineer.plan(brief())
        draft = tools.engineer.write(assignment())
        review = tools.engineer.review(assignment(), draft, RIGHT)
    assert plan.summary.startswith("融合唯一的区域。")
    assert draft.files["kernels/r01.cu"] == "// 一行一个线程块\n"
    assert draft.note.startswith("好的")
    assert review.bottleneck == "启动开销"
    assert len(server.requests) == 4, "one of them found that there is no json_schema"
    paid_once(tools, server)
