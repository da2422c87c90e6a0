"""A mailbox as somebody meets who answers: what a request says, every form of a reply, and what cannot be read and why."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers import Draft, Looked
from stitchcuda.engineers.budget import Budget
from stitchcuda.engineers.chat import ChatAnswer, ChatRequest, Message, response_format
from stitchcuda.engineers.chat_engineer import ChatEngineer
from stitchcuda.engineers.mailbox import MOST_BYTES, Mailbox
from stitchcuda.engineers.metered_chat import MeteredChat, Transcript
from stitchcuda.engineers.reply import PlanReply, ReviewReply
from stitchcuda.errors import BadInput, ReplyPending
from stitchcuda.state import Role, Settings
from stitchcuda.store import FolderStore
from tests.engineers.briefs import PROGRAM, RIGHT, assignment, brief

PLAN_TEXT = json.dumps({
    "summary": "One.", "host": "",
    "tasks": [{"name": "norm", "regions": ["r01"], "title": "t", "predicted_ms": 0.004, "why": "w", "strategy": "s"}],
})  # fmt: skip
REVIEW_TEXT = json.dumps({"bottleneck": "b", "suggestion": "none", "expected_gain": "", "route": "next_task", "citations": []})
DRAFT_TEXT = "Did it.\n```kernels/r01.cu\n// one\n```\n"
FILES = PROGRAM | {"program.json": '{"format": 1, "tasks": []}\n'}
WRITTEN = Draft(files=PROGRAM | {"kernels/r01.cu": "// one\n"}, note="did it")
ASK = ChatRequest("coder", "a" * 16, 0, (Message("user", "Write it."),))


def mailbox(folder: Path, session: str = "mlp", **options: Any) -> Mailbox:
    return Mailbox(folder / "box", session, options, name="mailbox:box")


def desk(folder: Path, **settings: Any) -> MeteredChat:
    """A desk as another process would open it: what it knows is in files."""
    transcript = Transcript(FolderStore(folder / "ws"), "mlp")
    return MeteredChat(mailbox(folder), transcript, Budget(Settings(**settings), transcript.usage))


def engineer(folder: Path) -> ChatEngineer:
    roles: tuple[Role, ...] = ("planner", "coder", "verifier")
    return ChatEngineer(dict.fromkeys(roles, (desk(folder),)))


def asked(folder: Path, box: Mailbox | None = None, ask: ChatRequest = ASK) -> str:
    """Asks for the first time and returns the request's id."""
    with pytest.raises(ReplyPending) as waits:
        (box or mailbox(folder)).answer(ask, limit=None)
    return Path(waits.value.request).stem


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "box" / "requests").glob("*.jsonl"))]


def reply(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / "box" / "replies" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def completed(text: str = "It is written.", **message: Any) -> dict[str, Any]:
    """A chat completion as a server gives it."""
    told = {"role": "assistant", "content": text} | message
    used = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 600}}
    choice = {"index": 0, "message": told, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "gpt-5-mini-2025-08-07", "choices": [choice], "usage": used}


def output(name: str, text: str = "It is written.", **entry: Any) -> str:
    """A line of Batch output."""
    response = {"status_code": 200, "request_id": "r", "body": completed(text)}
    return json.dumps({"id": "b", "custom_id": name, "response": response, "error": None} | entry)


def refused(folder: Path, ask: ChatRequest = ASK) -> str:
    """The one sentence in which a reply is refused."""
    with pytest.raises(BadInput) as error:
        mailbox(folder).answer(ask, limit=None)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400 + len(str(folder))
    assert str(folder / "box") in text, "it says where"
    assert ": " in text, "and what to do"
    return text


# what is asked


def test_a_request_is_a_line_of_batch_input_and_a_text(tmp_path: Path) -> None:
    """Planner, coder and verifier; `cat requests/*.jsonl` is the batch."""
    for ask in (
        lambda: engineer(tmp_path).plan(brief(about="1" * 16)),
        lambda: engineer(tmp_path).write(assignment(about="2" * 16, program=FILES)),
        lambda: engineer(tmp_path).review(assignment(about="2" * 16), WRITTEN, RIGHT),
    ):
        with pytest.raises(ReplyPending):
            ask()
    batch = "".join(path.read_text() for path in sorted((tmp_path / "box" / "requests").glob("*.jsonl")))
    found = {line["custom_id"].split("-")[1]: line for line in map(json.loads, batch.splitlines())}
    assert set(found) == {"planner", "coder", "verifier"}
    for role, schema in (("planner", PlanReply), ("coder", None), ("verifier", ReviewReply)):
        line = found[role]
        assert set(line) == {"custom_id", "method", "url", "body"}
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", line["custom_id"])
        body = line["body"]
        assert isinstance(body["model"], str)
        (message,) = body["messages"]
        assert message["role"] == "user"
        assert message["content"].startswith(f"You are the {role} of StitchCUDA.")
        assert body.get("response_format") == (response_format(schema) if schema else None)
        text = (tmp_path / "box" / "requests" / f"{line['custom_id']}.md").read_text()
        assert text.startswith(message["content"].strip())
        form = text.removeprefix(message["content"].strip())
        assert form.strip() == (schema.instructions() if schema else ""), "a coder's text says the form itself"


def test_options_limit_and_what_was_said_before_are_in_the_line(tmp_path: Path) -> None:
    turns = (Message("user", "Write."), Message("assistant", "No."), Message("user", "Again."))
    with pytest.raises(ReplyPending):
        mailbox(tmp_path, model="gpt-5-mini", temperature=0.5).answer(ChatRequest("coder", "a" * 16, 1, turns), limit=4000)
    (line,) = lines(tmp_path)
    body = line["body"]
    assert (body["model"], body["temperature"], body["max_completion_tokens"]) == ("gpt-5-mini", 0.5, 4000)
    assert body["messages"] == [
        {"role": "user", "content": "Write."}, {"role": "assistant", "content": "No."}, {"role": "user", "content": "Again."},
    ]  # fmt: skip
    text = (tmp_path / "box" / "requests" / f"{line['custom_id']}.md").read_text()
    assert text == "# Asked\n\nWrite.\n\n# Answered\n\nNo.\n\n# Asked\n\nAgain.\n"


def test_an_id_fits_and_is_made_of_letters_that_a_batch_takes(tmp_path: Path) -> None:
    """That sessions whose names begin alike differ is in tests/sessions/test_parked.py: what is asked about goes back to the
    name."""
    long = "transformer.block ü with a very long name"
    name = asked(tmp_path, mailbox(tmp_path, long), ChatRequest("verifier", "f" * 16, 9999, ASK.messages))
    assert re.fullmatch(r"transformer_block___-verifier-f{16}-9999-[0-9a-f]{12}", name)
    assert len(name) == 64


def test_asking_again_changes_no_file(tmp_path: Path) -> None:
    name = asked(tmp_path)
    files = {path: path.stat() for path in (tmp_path / "box").rglob("*") if path.is_file()}
    with pytest.raises(ReplyPending) as waits:
        mailbox(tmp_path, temperature=1.0).answer(ASK, limit=7)  # options and what may be written are no part of what is asked
    assert Path(waits.value.request).stem == name
    again = {path: path.stat() for path in (tmp_path / "box").rglob("*") if path.is_file()}
    assert [(path, was.st_mtime_ns, was.st_ino) for path, was in files.items()] == [
        (path, found.st_mtime_ns, found.st_ino) for path, found in again.items()
    ]


# what is answered


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("{}.md", "It is written."),
        ("{}.txt", "It is written."),
        ("{}.md", "\ufeffIt is written."),
        ("{}.json", json.dumps(completed())),
        ("{}.json", "\ufeff" + json.dumps(completed(), indent=1).replace("\n", "\r\n")),
        ("{}.json", output("{}")),
        ("batch_output.jsonl", output("other") + "\n" + output("{}") + "\n"),
        ("batch_output.jsonl", output("{}")),
        ("batch_output.jsonl", output("other") + "\r\n" + output("{}") + "\r\n"),
    ],
    ids=["md", "txt", "marked md", "completion", "marked completion", "line", "many", "one", "many, other line ends"],
)
def test_a_reply_in_each_form(tmp_path: Path, form: str, content: str) -> None:
    name = asked(tmp_path)
    reply(tmp_path, form.replace("{}", name), content.replace("{}", name))
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "It is written."


def test_batch_output_with_letters_that_end_lines_elsewhere(tmp_path: Path) -> None:
    """Servers such as vLLM write what is not ASCII as it is; U+2028 and U+0085 are no ends of lines there."""
    name = asked(tmp_path)
    text = "one\u2028two\u0085three é"
    entry = json.loads(output(name, text))
    reply(tmp_path, "out.jsonl", json.dumps(entry, ensure_ascii=False) + "\n")
    assert mailbox(tmp_path).answer(ASK, limit=None).text == text


def test_a_request_stands_when_a_newer_version_words_it_differently(tmp_path: Path) -> None:
    name = asked(tmp_path)
    reworded = dataclasses.replace(ASK, messages=(Message("user", "The same, in other words."),))
    assert asked(tmp_path, ask=reworded) == name, "somebody may be answering it"
    reply(tmp_path, f"{name}.md", "It is written.")
    mine = desk(tmp_path)
    assert mine.ask(reworded).text == "It is written."
    (tmp_path / "box" / "replies" / f"{name}.md").unlink()
    assert mine.ask(ASK).text == "It is written.", "and the transcript gives it to either wording"
    assert len(mine.transcript.calls()) == 1
    later = dataclasses.replace(reworded, ordinal=ASK.ordinal + 1)
    assert asked(tmp_path, ask=later) != name, "another place has a request of its own"


def test_many_replies_in_several_files_answer_several_sessions(tmp_path: Path) -> None:
    asks = [ChatRequest("coder", f"{number:016x}", 0, (Message("user", f"Write {number}."),)) for number in range(40)]
    boxes = [mailbox(tmp_path, f"session-{number % 4}") for number in range(40)]
    names = [asked(tmp_path, box, ask) for box, ask in zip(boxes, asks, strict=True)]
    texts = [output(name, f"Reply {number}.") for number, name in enumerate(names)]
    reply(tmp_path, "a.jsonl", "\n".join(reversed(texts[:30])) + "\n")
    reply(tmp_path, "b.jsonl", "\n".join(texts[30:]))
    found = [box.answer(ask, limit=None).text for box, ask in zip(boxes, asks, strict=True)]
    assert found == [f"Reply {number}." for number in range(40)]


def test_thinking_usage_and_refusals_are_read(tmp_path: Path) -> None:
    name = asked(tmp_path)
    reply(tmp_path, f"{name}.json", json.dumps(completed(reasoning_content="First the rows.")))
    assert mailbox(tmp_path).answer(ASK, limit=None) == ChatAnswer(
        text="It is written.", thinking="First the rows.", model="gpt-5-mini-2025-08-07",
        input_tokens=1000, cached_tokens=600, output_tokens=200,
    )  # fmt: skip
    reply(tmp_path, f"{name}.json", json.dumps(completed(reasoning="By its newer name.")))
    assert mailbox(tmp_path).answer(ASK, limit=None).thinking == "By its newer name."
    reply(tmp_path, f"{name}.json", json.dumps(completed(content=None, refusal="I cannot.")))
    assert mailbox(tmp_path).answer(ASK, limit=None).refusal == "I cannot."
    for finish, refusal in (("length", ""), ("content_filter", "stopped by a filter")):
        cut = completed()
        cut["choices"][0]["finish_reason"] = finish
        reply(tmp_path, f"{name}.json", json.dumps(cut))
        found = mailbox(tmp_path).answer(ASK, limit=None)
        assert (found.finish, found.refusal) == (finish, refusal)


# what is not there, and what cannot be read


@pytest.mark.parametrize("form", ["{}.md", "{}.txt", "{}.json", "out.jsonl"])
@pytest.mark.parametrize("content", ["", "\n", " \r\n\n"])
def test_an_empty_file_is_not_there_yet(tmp_path: Path, form: str, content: str) -> None:
    name = asked(tmp_path)
    path = reply(tmp_path, form.format(name), content)
    assert asked(tmp_path) == name
    path.write_text(output(name) if path.suffix.startswith(".json") else "It is written.")
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "It is written."


def test_files_under_other_names_are_left_alone(tmp_path: Path) -> None:
    name = asked(tmp_path)
    for other in (f"{name}.md.part", f".{name}.md.swp", f"{name}.md~", "out.jsonl.gz", "notes.json", f"{name}-2.md"):
        reply(tmp_path, other, "half of it")
    reply(tmp_path, ".half.jsonl", output(name)[:90])
    (tmp_path / "box" / "replies" / f"{name}.md").mkdir()
    assert asked(tmp_path) == name


ERROR = {"message": "The server had\nan error", "code": "500"}


LONG = "x" * (MOST_BYTES + 1_000_000)
UNUSABLE: dict[str, tuple[str, str | bytes, str]] = {
    # what:                 a file's name,   what it holds,                                           what is said of it
    "half a completion": ("{}.json", json.dumps(completed())[:-30], "is not valid JSON"),
    "half a line": ("out.jsonl", output("{}")[:-30], "is not valid JSON"),
    "bytes": ("{}.json", b"\xff\xfe\x00rubbish", "is not valid JSON"),
    "too deep": ("{}.json", "[" * 100_000, "is not valid JSON"),
    "a list": ("{}.json", "[1, 2]", "is no chat completion"),
    "the plan itself": ("{}.json", PLAN_TEXT, "is no chat completion: answer as text in a file that ends in .md"),
    "no choice": ("{}.json", json.dumps(completed() | {"choices": []}), "is no chat completion"),
    "content in parts": ("{}.json", json.dumps(completed(content=[{"type": "text"}])), "is no chat completion"),
    "no count": ("{}.json", json.dumps(completed() | {"usage": {"prompt_tokens": "many"}}), "is no chat completion"),
    "an error": ("{}.json", json.dumps({"error": ERROR}), r"holds an error instead of an answer \(The server had an error\)"),
    "an error's line": ("out.jsonl", output("{}", response=None, error=ERROR), "holds an error .* had an error"),
    "a response's error": ("out.jsonl", output("{}", response={"body": {"error": ERROR}}), "holds an error .* had an error"),
    "an error's code": ("out.jsonl", output("{}", response=None, error={"code": "batch_expired"}), "an error .*batch_expired"),
    "nothing": ("out.jsonl", output("{}", response={"status_code": 500, "body": None}), "is no chat completion"),
    "a page": ("out.jsonl", output("{}", response={"status_code": 502, "body": "Bad gateway"}), "is no chat completion"),
    "the request": ("out.jsonl", json.dumps({"custom_id": "{}", "body": {"messages": []}}), "is no chat completion"),
    "a long text": ("{}.md", LONG, "more than 4 MB"),
    "a long completion": ("{}.json", json.dumps(completed(LONG)), "more than 4 MB"),
    "a long line": ("out.jsonl", output("{}", LONG), "more than 4 MB"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_cannot_be_used_is_one_sentence_until_it_is_mended(tmp_path: Path, what: str) -> None:
    form, content, sentence = UNUSABLE[what]
    name = asked(tmp_path)
    path = reply(tmp_path, form.replace("{}", name), content.replace("{}", name) if isinstance(content, str) else content)
    assert re.search(sentence, refused(tmp_path))
    assert path.exists(), "nothing is deleted"
    path.write_text("It is written." if path.suffix == ".md" else output(name))
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "It is written."


def test_a_bad_reply_holds_up_nobody_else(tmp_path: Path) -> None:
    name = asked(tmp_path)
    other = ChatRequest("coder", "b" * 16, 0, ASK.messages)
    second = asked(tmp_path, ask=other)
    reply(tmp_path, "out.jsonl", output(name)[:-30] + "\n" + output(second, "Mine."))
    assert mailbox(tmp_path).answer(other, limit=None).text == "Mine."
    assert "not valid JSON" in refused(tmp_path)


def test_a_second_batch_answers_what_the_first_one_could_not(tmp_path: Path) -> None:
    name = asked(tmp_path)
    reply(tmp_path, "batch_1_errors.jsonl", output(name, response=None, error=ERROR))
    assert "holds an error" in refused(tmp_path)
    reply(tmp_path, "batch_2_output.jsonl", output(name, "At last."))
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "At last."
    reply(tmp_path, f"{name}.md", "By hand.")
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "By hand."


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    name = asked(tmp_path)
    replies = tmp_path / "box" / "replies"
    replies.rmdir()
    replies.write_text("")
    assert f"{replies} is not a folder: move it away" in refused(tmp_path)
    replies.unlink()
    reply(tmp_path, f"{name}.md", "It is written.")
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "It is written."
    shutil.rmtree(tmp_path / "box")
    (tmp_path / "box").write_text("")
    assert "is not a folder" in refused(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_folders_and_files_that_are_closed(tmp_path: Path) -> None:
    name = asked(tmp_path)
    path = reply(tmp_path, f"{name}.md", "It is written.")
    path.chmod(0)
    assert "permission denied" in refused(tmp_path)
    path.chmod(0o600)
    assert mailbox(tmp_path).answer(ASK, limit=None).text == "It is written."


# what is kept of it


def test_usage_thinking_and_money_reach_the_transcript_once(tmp_path: Path) -> None:
    """gpt-5-mini: 0.25, 0.025 cached and 2 dollars a million tokens."""
    with pytest.raises(ReplyPending):
        desk(tmp_path).ask(ASK)
    assert desk(tmp_path).transcript.calls() == (), "to wait is no call"
    (line,) = lines(tmp_path)
    response = {"status_code": 200, "body": completed(reasoning_content="hm")}
    path = reply(tmp_path, "out.jsonl", output(line["custom_id"], response=response))
    assert desk(tmp_path).ask(ASK).text == "It is written."
    path.unlink()
    assert desk(tmp_path).ask(ASK).thinking == "hm", "from the transcript, though nothing lies in the mailbox any more"
    transcript = desk(tmp_path).transcript
    (call,) = transcript.calls()
    assert (call.id, call.model, call.input_tokens, call.cached_tokens, call.output_tokens, call.estimated) == (
        ASK.id, "mailbox:box", 1000, 600, 200, False,
    )  # fmt: skip
    assert call.usd == pytest.approx((400 * 0.25 + 600 * 0.025 + 200 * 2) / 1e6)
    kept = transcript.answer(call)
    assert kept is not None
    assert (kept.thinking, kept.model) == ("hm", "gpt-5-mini-2025-08-07")
    assert transcript.usage().usd == call.usd


def test_what_is_answered_by_hand_is_counted_here_and_has_no_price(tmp_path: Path) -> None:
    name = asked(tmp_path)
    reply(tmp_path, f"{name}.md", DRAFT_TEXT)
    desk(tmp_path).ask(ASK)
    (call,) = desk(tmp_path).transcript.calls()
    assert call.estimated
    assert call.input_tokens > 0
    assert call.output_tokens > 0
    assert call.usd is None


def test_a_coder_looks_by_mailbox_and_what_it_saw_stays(tmp_path: Path) -> None:
    """A malformed reply, two looks: each turn is a request of its own that tells all before it."""
    look = Compiler()
    says = [
        "I would rather not.",
        "```kernels/r01.cu\n// try\n```\n```look\ncompile\nread model_new.py\n```",
        "```look\ndocs cudaMemcpyAsync\n```",
        DRAFT_TEXT,
    ]
    for number, text in enumerate(says):
        with pytest.raises(ReplyPending) as waits:
            engineer(tmp_path).write(assignment(about="2" * 16, look=look, program=FILES))
        assert Path(waits.value.request).stem.split("-")[3] == str(number)
        reply(tmp_path, f"{Path(waits.value.request).stem}.md", text)
    draft = engineer(tmp_path).write(assignment(about="2" * 16, look=look, program=FILES))
    assert draft.files["kernels/r01.cu"] == "// one\n"
    assert look.asked == ["compile // try", "docs cudaMemcpyAsync"], "each once, however often the node ran again"
    assert len(lines(tmp_path)) == 4
    last = (tmp_path / "box" / "requests" / f"{Path(waits.value.request).stem}.md").read_text()
    parts = [
        says[0], "Your reply could not be used: there is no fenced block", says[1], "### compile\nregisters: 12",
        "### read model_new.py\n```\nclass ModelNew", says[2], "### docs cudaMemcpyAsync\nIt copies.",
    ]  # fmt: skip
    assert [part for part in parts if part not in last] == []
    assert sorted(parts, key=last.index) == parts


def test_a_repair_after_a_look_still_shows_what_was_seen(tmp_path: Path) -> None:
    task = assignment(about="2" * 16, look=Compiler(), program=FILES)
    for text in ("```look\ndocs cudaMemcpyAsync\n```", "I would rather not.", ""):
        with pytest.raises(ReplyPending) as waits:
            engineer(tmp_path).write(task)
        reply(tmp_path, f"{Path(waits.value.request).stem}.md", text)
    last = Path(waits.value.request).read_text()
    assert "Your reply could not be used" in last
    assert "### docs cudaMemcpyAsync\nIt copies." in last


class Compiler:
    """What a coder may look at, counting; it says something else each time, as another machine may."""

    tools = ("compile", "docs")
    gpu_s = 0.0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def compile(self, files: Any) -> Looked:
        self.asked.append(f"compile {files['kernels/r01.cu'].strip()}")
        return Looked(True, f"registers: {11 + len(self.asked)}")

    def check(self, files: Any) -> Looked:
        raise AssertionError("nobody asked")

    def bench(self, kernel: str, files: Any) -> Looked:
        raise AssertionError("nobody asked")

    def profile(self, kernel: str) -> str:
        raise AssertionError("nobody asked")

    def docs(self, query: str) -> Looked:
        self.asked.append(f"docs {query}")
        return Looked(True, "It copies.")


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "<think>hm</think>\nHere:\n{}"])
def test_json_in_a_text_reply_is_read(tmp_path: Path, around: str) -> None:
    with pytest.raises(ReplyPending) as waits:
        engineer(tmp_path).plan(brief(about="1" * 16))
    reply(tmp_path, f"{Path(waits.value.request).stem}.md", around.replace("{}", PLAN_TEXT))
    assert [task.id for task in engineer(tmp_path).plan(brief(about="1" * 16)).tasks] == ["norm"]
