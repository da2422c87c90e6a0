"""The program in an answer: a whole one, or what its blocks make of the program that the prompt shows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stitchcuda.engineers.reply import Malformed
from stitchcuda.errors import Unavailable
from stitchcuda.training.completion_program import program_in, shown_files
from stitchcuda.training.reward_service.trainers import compute_score, trl_reward
from tests.training.reward_server import ScriptedPool, program, serving

SHOWN = {"model_new.py": "class ModelNew: ...\n", "kernels/a.cu": "int i = 0;\nint j = 0;\n", "kernels/b.cu": "// b\n"}


def edit(path: str, old: str, new: str) -> str:
    return f"```{path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"


def test_files_in_blocks_with_their_paths_are_the_program() -> None:
    said = "```kernels/a.cu\nold\n```\nBetter:\n```kernels/a.cu\nnew\n```\n```model_new.py\nclass ModelNew: ...\n```\n"
    assert program_in(said) == {"kernels/a.cu": "new\n", "model_new.py": "class ModelNew: ...\n"}
    assert program_in(f"```python\ndraft\n```\n{said}") == program_in(said)
    assert program_in("```kernels/a.cu\nnew\n```\n```python\nx\n```") == "x\n", "without model_new.py it is one file"


def test_the_last_block_of_python_is_the_program() -> None:
    assert program_in("a\n```python\nfirst\n```\nb\n```py\nlast\n```\nc\n```cuda\nno\n```") == "last\n"
    assert program_in("class ModelNew: ...") == "class ModelNew: ..."
    assert program_in([{"role": "assistant", "content": "```\nx\n```"}]) == "x\n"
    assert program_in([]) == program_in([{"role": "assistant", "content": None}]) == ""


def test_a_program_is_its_files_whatever_was_thought_before() -> None:
    files = {"model_new.py": "class ModelNew: ...\n", "kernels/a.cu": "// a\n"}
    text = "Here:\n" + "\n".join(f"```{name}\n{body}```" for name, body in files.items())
    assert program_in(text) == files
    assert program_in(f"<think>```kernels/a.cu\nhm\n```</think>\n{text}") == files
    assert program_in("<think>hm</think>\n```python\nclass ModelNew: ...\n```") == "class ModelNew: ...\n"
    assert program_in("words") == "words"


def test_blocks_are_applied_to_the_program_that_is_shown() -> None:
    assert program_in(edit("kernels/a.cu", "int i = 0;", "int i = 1;"), SHOWN) == SHOWN | {
        "kernels/a.cu": "int i = 1;\nint j = 0;\n"
    }
    assert program_in("```kernels/b.cu\n// new\n```\n```kernels/c.cu\n// c\n```", SHOWN) == SHOWN | {
        "kernels/b.cu": "// new\n", "kernels/c.cu": "// c\n",
    }  # fmt: skip
    removed = program_in("```kernels/b.cu\n```", SHOWN)
    assert removed == {name: text for name, text in SHOWN.items() if name != "kernels/b.cu"}
    assert program_in('```program.json\n{"host": []}\n```', SHOWN) == SHOWN | {"program.json": '{"host": []}\n'}
    assert program_in("```python\nclass ModelNew: 1\n```", SHOWN) == "class ModelNew: 1\n", "one file without a path"
    assert program_in("I would rather not.", SHOWN) == "I would rather not."


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (edit("kernels/a.cu", "int k = 0;", ""), r"^an edit of kernels/a.cu does not fit: 'int k = 0;' is not in it\. It was"),
        (edit("kernels/a.cu", " = 0;", ""), "does not fit: '= 0;' is in it 2 times"),
        (edit("kernels/c.cu", "x", "y"), r"^kernels/c.cu cannot be edited: there is no such file in the program that"),
        ("```kernels/a.cu\n<<<<<<< SEARCH\nint i = 0;\n```", "is not closed"),
        (edit("", "int i = 0;", "int i = 1;"), "does not say which file it is"),
        (edit("program.json", "{}", "[]"), "program.json cannot be edited: write it whole"),
        ("```model_new.py\n```", "model_new.py cannot be removed"),
        ("```../a.cu\n// a\n```", "is not inside the program's folder"),
    ],
)
def test_an_edit_that_does_not_apply_says_why(answer: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        program_in(answer, SHOWN)


def test_the_files_of_a_row_are_a_mapping_or_json() -> None:
    assert shown_files(json.dumps(SHOWN)) == shown_files(SHOWN) == SHOWN
    assert shown_files({"model_new.py": "x", "kernels/a.cu": None}) == {"model_new.py": "x"}, "of parquet"
    assert shown_files(None) == shown_files("") == shown_files("{}") == {}
    with pytest.raises(ValueError, match="a row's program is list"):
        shown_files("[1]")


def test_both_trainers_have_edits_judged_and_a_wrong_one_fails_without_the_service(tmp_path: Path) -> None:
    shown = {"model_new.py": program("draft")}
    right, wrong = edit("model_new.py", "# draft", "# better"), edit("model_new.py", "# nothing", "# better")
    logged: dict[str, list[object]] = {}
    with serving(tmp_path, ScriptedPool()) as server:
        info = {"task": "relu", "program": json.dumps(shown)}
        scores = [compute_score("x", text, "", info, url=server.url, must_judge=True) for text in (right, wrong)]
        rewards = asyncio.run(trl_reward(server.url, schema="log-speedup/1")(
            [right, wrong], task=["relu"] * 2, program=[shown, json.dumps(shown)], log_extra=logged.__setitem__
        ))  # fmt: skip
        assert set(server.pool.judged) == {"better"}
    assert [(score["score"], score["judged"], score["kind"]) for score in scores] == [(1.0, 1.0, ""), (0.0, 1.0, "no_program")]
    assert rewards == [1.0, -1.0]
    assert logged["stitchcuda_state"] == ["ok", "candidate_error"]
    with pytest.raises(Unavailable, match="is not known"):
        compute_score("x", wrong, "", info, url=server.url, schema="nobody/1", must_judge=True)
