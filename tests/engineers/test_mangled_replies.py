"""Replies whose form is wrong are read as they are meant or asked for again: nothing of them is lost, no attempt is counted."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stitchcuda.engineers.draft_in_progress import DraftInProgress
from stitchcuda.engineers.reply import Malformed, PlanReply, Reply, ReviewReply
from tests.engineers.mangling import MANGLINGS, Files, Mangled, case_of, generated_case, recorded, recorded_cases, written


def without_names(files: dict[str, Any]) -> Files:
    """The files without a comment at their begin that says their name."""
    plain = {}
    for path, text in files.items():
        first, _, rest = text.partition("\n")
        plain[path] = rest if path in first else text
    return plain


def assert_nothing_is_lost(name: str, mangled: Mangled, base: Files, honest: str, meant: Files) -> str:
    """Reads a mangled reply, and where it is asked for again the reply in good form; returns "read" or "asked"."""
    text, means = mangled
    draft = DraftInProgress(dict(base), None)
    try:
        draft.read(text)
    except Malformed:
        read_or_missing(draft, honest)
        assert without_names(draft.files) == without_names(meant), f"{name}: what was asked for again is not what came of it"
        return "asked"
    assert means is not None, f"{name}: read, though its meaning is not clear:\n{text[:2000]}"
    assert without_names(draft.files) == without_names(means), f"{name}: read as something else:\n{text[:2000]}"
    return "read"


def read_or_missing(draft: DraftInProgress, text: str) -> None:
    """Reads a reply in good form. Recorded ones may name files of a program that is not here: they are asked for."""
    with contextlib.suppress(Malformed):
        draft.read(text)


def mangle_drafts(seed: int, count: int) -> Counter[tuple[str, str]]:
    rng = random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        mangling: Callable[..., Mangled] = MANGLINGS[number % len(MANGLINGS)]
        case = rng.choice(recorded_cases()) if number % 5 == 0 else generated_case(rng)
        mangled = mangling(case, rng)
        honest, meant = case.text(), case.meant
        if mangling.__name__ == "nested" and mangled[1] is not None:
            parts = [(path, mangled[1].get(path, "") if path in mangled[1] else "") for path in dict(case.parts)]
            honest, meant = written(parts, "`````"), mangled[1]
        outcomes[mangling.__name__, assert_nothing_is_lost(mangling.__name__, mangled, case.base, honest, meant)] += 1
    return outcomes


def test_the_cases_are_read_as_they_are() -> None:
    assert len(recorded_cases()) > 20
    rng = random.Random(0)
    for case in (*recorded_cases(), *(generated_case(rng) for _ in range(100))):
        draft = DraftInProgress(dict(case.base), None)
        read_or_missing(draft, case.text())
        assert draft.files == case.meant


def test_mangled_drafts_are_read_as_meant_or_asked_again() -> None:
    outcomes = mangle_drafts(1, 250)
    for name, least in (("named_by_comment", "read"), ("named_above", "read"), ("unnamed", "asked"), ("line_ends", "read"),
                        ("the_same_twice", "read"), ("two_versions", "asked"), ("tildes", "read")):  # fmt: skip
        assert outcomes[name, least] == outcomes[name, "read"] + outcomes[name, "asked"] > 0, name


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_mangled_drafts(seed: int) -> None:
    assert mangle_drafts(seed, 1000).total() == 1000


def insert_before(text: str, closing: str, what: str, rng: random.Random) -> str:
    at = rng.choice([match.start() for match in re.finditer(re.escape(closing), text)])
    return text[:at] + what + text[at:]


BROKEN: dict[str, Callable[[str, random.Random], str]] = {
    "a comma before }": lambda text, rng: re.sub(r"\n?\}\s*\Z", ",\n}", text),
    "a comma before ]": lambda text, rng: re.sub(r"(\n\s*\])", r",\1", text),
    "a comment of a line": lambda text, rng: text.replace("{\n", "{ // the plan\n", 1),
    "a comment in between": lambda text, rng: text.replace("{\n", "{\n/* the\nplan, */\n", 1),
    "a comment of a shell": lambda text, rng: text.replace("{\n", "{\n# the plan\n", 1),
    "single quotes": lambda text, rng: re.sub(r'"(\w+)":', r"'\1':", text),
    "no quotes": lambda text, rng: re.sub(r'"(\w+)":', r"\1:", text),
    "no comma": lambda text, rng: re.sub(r",\n", "\n", text, count=1),
    "no closing brace": lambda text, rng: text.rstrip().removesuffix("}"),
    "two commas": lambda text, rng: re.sub(r",\n", ",,\n", text, count=1),
    "curly quotes": lambda text, rng: re.sub(r'"(\w+)":', "“\\1”:", text),
    "a key twice": lambda text, rng: text.replace("{\n", '{\n "summary": "x", "bottleneck": "x",\n', 1),
    "another key": lambda text, rng: text.replace("{\n", '{\n "remark": "x",\n', 1),
    "cut": lambda text, rng: text[: rng.randint(1, len(text) - 2)],
    "fenced": lambda text, rng: f"Here {{it}} is, don't \"miss it:\n```json\n{text}\n```\nDone.",
    "two versions": lambda text, rng: f"{text}\nOr rather:\n{text.replace(': ', ': ', 1).replace('e', 'E', 1)}",
    "a draft before, broken": lambda text, rng: f"{text.rstrip()[:-1]}\n\nOnce more:\n{text}",
    "raw newlines": lambda text, rng: re.sub(r"\. ", ".\n", text),
    "an array around": lambda text, rng: f"[{text}]",
    "bytes before": lambda text, rng: f"\ufeff{text}",
}


def broken_replies(seed: int, count: int) -> Counter[tuple[str, str]]:
    rng = random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    kinds: tuple[tuple[str, type[Reply]], ...] = (("planner", PlanReply), ("verifier", ReviewReply))
    texts = {role: [text for text in recorded(role) if "{" in text] for role, _ in kinds}  # one was no JSON and asked again
    for number in range(count):
        role, kind = kinds[number % 2]
        good = kind.from_text(rng.choice(texts[role]))
        name = list(BROKEN)[number // 2 % len(BROKEN)]
        mangled = BROKEN[name](json.dumps(good.model_dump(), indent=1, ensure_ascii=False), rng)
        try:
            read = kind.from_text(mangled)
        except Malformed:
            outcomes[name, "asked"] += 1
            continue
        same = json.dumps(read.model_dump()).replace("\\n", " ") == json.dumps(good.model_dump()).replace("\\n", " ")
        assert same, f"{name}: read as something else:\n{mangled[:1500]}"
        outcomes[name, "read"] += 1
    return outcomes


def test_broken_json_is_read_as_meant_or_asked_again() -> None:
    outcomes = broken_replies(1, 8 * len(BROKEN))
    for name in ("a comma before }", "a comma before ]", "a comment of a line", "a comment in between", "raw newlines"):
        assert outcomes[name, "asked"] == 0, name
    for name in ("a key twice", "cut", "no comma", "no closing brace"):
        assert outcomes[name, "read"] == 0, name


@pytest.mark.more
def test_much_broken_json() -> None:
    assert broken_replies(2, 1000).total() == 1000


def test_what_is_not_taken_is_asked_for_with_its_base_and_the_nearest_lines() -> None:
    base = {"model_new.py": "class ModelNew: ...\n", "kernels/a.cu": "int first;\nint second;\nint third;\n"}
    draft = DraftInProgress(dict(base), None)
    misspelt = "<<<<<<< SEARCH\nint secund;\n=======\nint fourth;\n>>>>>>> REPLACE\n"
    with pytest.raises(Malformed) as asked:
        draft.read(f"Both.\n```kernels/b.cu\n// b\n```\n```kernels/a.cu\n{misspelt}```\n")
    assert "'int secund;' is not in it. It was applied to the program now. Nearest are lines 1 to 3:" in str(asked.value)
    assert "int second;" in str(asked.value)
    assert "The rest of it was taken (kernels/b.cu)." in asked.value.again
    draft.read(f"Here it is.\n```kernels/a.cu\n{misspelt.replace('secund', 'second')}```\n")
    assert draft.files == base | {"kernels/b.cu": "// b\n", "kernels/a.cu": "int first;\nint fourth;\nint third;\n"}
    assert draft.note == "Both.", "what a draft does is said with the draft, not with its repair"


def test_files_beside_a_look_stay() -> None:
    last: dict[str, str | bytes] = {"model_new.py": "class ModelNew: ...\n", "kernels/a.cu": "int a;\n"}
    draft = DraftInProgress({"model_new.py": "class ModelNew: ...\n"}, last)
    draft.read("First.\n```kernels/b.cu\nint b;\n```\n```look\ncompile\n```\n")
    assert "kernels/b.cu" in draft.describe()
    with pytest.raises(Malformed, match="applied to your draft so far"):
        draft.read("```kernels/b.cu\n<<<<<<< SEARCH\nint c;\n=======\nint d;\n>>>>>>> REPLACE\n```")
    draft.read("```kernels/b.cu\n<<<<<<< SEARCH\nint b;\n=======\nint d;\n>>>>>>> REPLACE\n```\n```look\ncompile\n```\n")
    draft.read("It compiles; this is it.")
    assert draft.files == last | {"kernels/b.cu": "int d;\n"}
    draft.read("```kernels/a.cu\n<<<<<<< SEARCH\nint a;\n=======\nint b;\n>>>>>>> REPLACE\n```")
    draft.read("```kernels/a.cu\n<<<<<<< SEARCH\nint a;\n=======\nint c;\n>>>>>>> REPLACE\n```")
    assert draft.files["kernels/a.cu"] == "int c;\n", "the same lines again, of the file as it was: this replaces the edit"
    draft.read("```kernels/a.cu\n<<<<<<< SEARCH\nint c;\n=======\nint a;\n>>>>>>> REPLACE\n```")
    assert draft.files == last | {"kernels/b.cu": "int d;\n"}


def test_a_file_that_is_named_and_missing_is_asked_for_once() -> None:
    model = 'KERNELS = Path(__file__).parent / "kernels"\nx = load("x", cpp_files=[str(KERNELS / "x_binding.cc")])\n'
    binding = '#include "shared.cuh"\nextern "C" int x_launch(const float*, void*);\nint call() { return x_launch(0, 0); }\n'
    base: dict[str, str | bytes] = {"model_new.py": "class ModelNew: ...\n"}
    draft = DraftInProgress(base, None)
    with pytest.raises(Malformed, match=r"model_new\.py names x_binding\.cc, which is not in the draft"):
        draft.read(f"All.\n```model_new.py\n{model}```")
    draft = DraftInProgress(base, None)
    with pytest.raises(Malformed) as asked:
        draft.read(f"All.\n```model_new.py\n{model}```\n```kernels/x_binding.cc\n{binding}```")
    assert "declares x_launch(), which no file of the draft defines" in str(asked.value)
    assert "includes 'shared.cuh', which is not in the draft" in str(asked.value)
    draft.read("It is defined by a library.")
    assert draft.files["kernels/x_binding.cc"] == binding
    draft = DraftInProgress(base, None)
    with pytest.raises(Malformed, match=r"program\.json lists kernels/y\.cu, which is not in the draft"):
        draft.read('```kernels/z.cu\nz\n```\n```program.json\n{"kernels": [{"files": ["kernels/y.cu", ]}]} // mine\n```')


def test_a_case_of_edits_has_one_meaning() -> None:
    case = case_of([("kernels/a.cu", "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n")], {})
    assert (case.base, case.meant) == ({"kernels/a.cu": "a\n// between 0 0\n"}, {"kernels/a.cu": "b\n// between 0 0\n"})
