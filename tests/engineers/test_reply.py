"""How a model's text becomes files: fences, edits, looks, and what may not be written."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchcuda.engineers import Files
from stitchcuda.engineers.draft_in_progress import DraftInProgress
from stitchcuda.engineers.draft_reply import DraftReply, LookReply
from stitchcuda.engineers.loose_json import json_object
from stitchcuda.engineers.reply import Malformed, PlanReply, ReviewReply, without_thinking
from tests.engineers.metered_chats import block

MODEL = "import torch\n\nclass ModelNew:\n    width = 4\n    depth = 4\n"
BASE: dict[str, str | bytes] = {"model_new.py": MODEL, "kernels/a.cu": "// a\n", "constants.safetensors": b"\0"}


def applied(text: str) -> dict[str, str | bytes]:
    draft = DraftInProgress(BASE, None)
    draft.read(f"{text}\n```look\nread model_new.py\n```")  # so that a draft which changes nothing is read, too
    return draft.files


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE"


@pytest.mark.parametrize(
    "text",
    [
        "```kernels/b.cu\n// b\n```",
        "```cuda kernels/b.cu\n// b\n```",
        "```cuda:kernels/b.cu\n// b\n```",
        "``` ./kernels/b.cu \n// b\n``` ",
        "**kernels/b.cu**\n```cuda\n// b\n```",
        "### `kernels/b.cu`\n\n```cuda\n// b\n```",
        "````kernels/b.cu\n// b\n````",
        "Here:\r\n```kernels/b.cu\r\n// b\r\n```\r\n",
        "Run `make`:\n```sh\nmake\n```\nand\n```kernels/b.cu\n// b\n```",
        "```kernels/b.cu\n// b\n```\n```kernels/b.cu\n// b\n```",
        "~~~kernels/b.cu\n// b\n~~~",
        "1. The kernel:\n   ```kernels/b.cu\n   // b\n   ```",
        "````markdown\n```kernels/b.cu\n// b\n```\n````",
        "```\nkernels/b.cu\n// b\n```",
        "Here is kernels/b.cu:\n```cuda\n// b\n```",
    ],
    ids=[
        "bare", "language", "colon", "dot", "above", "heading", "four ticks", "CRLF", "beside a command", "twice the same",
        "tildes", "in a list", "inside of Markdown", "first line", "at the end of a sentence",
    ],
)
def test_where_a_fence_says_its_file(text: str) -> None:
    assert applied(text) == BASE | {"kernels/b.cu": "// b\n"}


def test_two_files_and_the_note_around_them() -> None:
    model = "**model_new.py**\n```python\nx = 1\n```\nIt pays."
    text = f"{block('// b', 'kernels/b.cu', note='I fused both.')}{model}"
    assert DraftReply.from_text(text).note == "I fused both. It pays."
    assert applied(text) == BASE | {"kernels/b.cu": "// b\n", "model_new.py": "x = 1\n"}


def test_edits_that_fit_once() -> None:
    wider, without = edit("    width = 4\n", "    width = 8\n"), edit("import torch\n", "")
    text = f"```model_new.py\n{wider}\n{without}\n```\n"
    assert applied(text)["model_new.py"] == "\nclass ModelNew:\n    width = 8\n    depth = 4\n"
    again = block(edit("    width = 8\n", "    width = 9\n"), "model_new.py")
    assert "width = 9" in str(applied(text + again)["model_new.py"]), "a second block goes on from what the first one made"


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        ("model_new.py", edit("    height = 4\n", ""), "does not fit: 'height = 4' is not in it"),
        ("model_new.py", edit(" = 4\n", " = 5\n"), "does not fit: '= 4' is in it 2 times"),
        ("model_new.py", edit("", "x\n"), "does not fit"),
        ("model_new.py", "<<<<<<< SEARCH\n    width = 4\n=======\n    width = 8\n", "an edit of model_new.py is not closed"),
        ("model_new.py", edit("import torch\n", "") + "\n<<<<<<< SEARCH\n    width", "an edit of model_new.py is not closed"),
        ("kernels/none.cu", edit("// a\n", "// b\n"), "there is no such file in the program now; write it whole"),
        ("model_new.py", "", "model_new.py cannot be removed"),
    ],
    ids=["not there", "twice there", "nothing to look for", "unclosed", "one of two unclosed", "no such file", "removed"],
)
def test_edits_that_do_not_fit(path: str, body: str, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        applied(f"```{path}\n{body}\n```")


def test_an_empty_block_removes_its_file() -> None:
    assert "kernels/a.cu" not in applied("```kernels/a.cu\n```")
    assert applied("```kernels/never_there.cu\n\n```") == BASE


def test_the_manifest_is_kept_for_the_coder() -> None:
    assert applied(block('{"tasks": ["everything"]}', "program.json")) == BASE


@pytest.mark.parametrize(
    "path",
    ["/etc/profile.d/a.py", "../model.py", "a/../../b.py", "kernels/../../b.cu", "/model_new.py", "./../b.cc"],
)
def test_paths_that_leave_the_program(path: str) -> None:
    with pytest.raises(Malformed, match="not inside the program's folder"):
        applied(block("x", path))


@given(st.text(alphabet="./ab\\~:\0 \n`*", max_size=12), st.sampled_from([".py", ".cu", ".h", ".txt", ".so", ""]))
@settings(max_examples=300, deadline=None)
def test_no_text_writes_outside_of_the_program(name: str, suffix: str) -> None:
    try:
        files = applied(f"```{name}{suffix}\nx\n```")
    except Malformed:
        return
    for path in files.keys() - BASE.keys():
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert path.endswith((".py", ".cu", ".h"))


@given(st.text(alphabet="`{}[]\"':,<>=/-# \nab\\", max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (DraftReply.from_text, PlanReply.from_text):
        with contextlib.suppress(Malformed):
            read(text)


@pytest.mark.parametrize(
    "text", ["exhausted: at the roofline", "I looked.\n**Exhausted: at the roofline**", "`exhausted: at the roofline`"]
)
def test_nothing_new_to_offer(text: str) -> None:
    reply = DraftReply.from_text(text)
    assert reply.exhausted == "at the roofline"
    assert reply.files == ()


def test_a_word_beside_files_is_no_end() -> None:
    assert DraftReply.from_text(f"exhausted: not yet\n{block('// b')}").exhausted == ""


@pytest.mark.parametrize("line", ["base: program", "**base: program**", "Base: program.", "`base: program`"])
def test_from_the_program_instead(line: str) -> None:
    reply = DraftReply.from_text(f"Anew.\n{line}\n{block('// b', note='')}")
    assert reply.afresh
    assert reply.note == "Anew."
    assert not DraftReply.from_text(block(f"// {line}")).afresh, "inside of a file it is no word of the coder's"


def test_looks() -> None:
    reply = DraftReply.from_text("First I look.\n```look\ncompile\n\n read  kernels/a.cu \nprofile softmax\n```\n")
    assert reply.looks == (LookReply("compile", ""), LookReply("read", "kernels/a.cu"), LookReply("profile", "softmax"))
    assert reply.files == ()
    with pytest.raises(Malformed, match="no fenced block"):
        DraftReply.from_text("```look\n\n```")


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


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "s", "n": {"x": 1}}',
        'Sure: {"summary": "s", "n": {"x": 1}} as you wished.',
        '```json\n{"summary": "s", "n": {"x": 1}}\n```',
        '{\'not\': \'this\'} {"other": 1} {"summary": "s", "n": {"x": 1}}',
        '{"summary": "s", "n": {"x": 1}} {"summary": "s", "n": {"x": 1}}',
        '{"summary": "s", // so\n "n": {"x": 1,},}',
        '# as asked\n{"summary": "s", /* all\nof it */ "n": {"x": 1}}',
    ],
)
def test_a_json_object_in_a_text(text: str) -> None:
    assert json_object(text, ("summary",)) == {"summary": "s", "n": {"x": 1}}


def test_an_object_inside_of_a_cut_one_is_not_taken_for_it() -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        json_object('{"summary": "s", "tasks": [{"name": "a"}, {"name"', ("summary", "tasks"))
    assert json_object('{"name": "a"}', ("summary",)) == {"name": "a"}, "whole, but another schema: pydantic says what it lacks"


def test_hostile_json_takes_no_time() -> None:
    for text in ('{"a":' * 200_000, "{" * 1_000_000, '[{"a": 1}, ' * 50_000):
        with pytest.raises(Malformed):
            PlanReply.from_text(text)


@pytest.mark.parametrize("line", ["base: program", "**Base: program**", "- base: the program now", "`base: program`."])
def test_a_base_beside_files_is_where_they_start_from(line: str) -> None:
    program: Files = {"model_new.py": "a\nb\n", "program.json": "{}"}
    last: Files = {"model_new.py": "a\nc\n", "kernels/old.cu": "x\n", "program.json": "{}"}
    draft = DraftInProgress(program, last)
    edit = "```model_new.py\n<<<<<<< SEARCH\nb\n=======\nd\n>>>>>>> REPLACE\n```\n"
    reply = draft.read(f"Anew.\n{line}\n{edit}")
    assert (reply.afresh, reply.note) == (True, "Anew.")
    assert draft.files == program | {"model_new.py": "a\nd\n"}


def test_a_base_that_is_not_clear_is_asked_again() -> None:
    block = "```kernels/a.cu\nint x;\n```\n"
    for said in ("base: program, but keep kernels/b.cu of my draft", "base: program\nbase: last draft"):
        with pytest.raises(Malformed, match="not clear from which files"):
            DraftReply.from_text(f"{said}\n{block}")
    assert not DraftReply.from_text(f"base: your last draft\n{block}").afresh
    assert DraftReply.from_text(f"Base: 256 threads.\n{block}").note == "Base: 256 threads."


@pytest.mark.parametrize("said", [[1, 3], "1, 3", ["#1", "3."], [{"number": 1}, 3.0], {"1": True, "3": True}])
def test_settled_suggestions_are_read_however_they_are_written(said: object) -> None:
    reply = {"bottleneck": "b", "suggestion": "none", "expected_gain": "", "route": "next_task", "citations": []}
    assert ReviewReply.from_text(json.dumps(reply | {"settled": said})).settled == [1, 3]
    assert ReviewReply.from_text(json.dumps(reply | {"settled": None, "read": "none"})).read == []
