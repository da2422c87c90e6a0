"""Numbers in sentences, and that nobody writes "1 tasks"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stitchcuda.counts import counted

PACKAGE = Path(__file__).resolve().parent.parent / "stitchcuda"


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "task", "1 task"), (0, "task", "0 tasks"), (2, "access", "2 accesses"), (1, "access", "1 access"),
        (1200, "entry", "1,200 entries"), (2, "launch", "2 launches"), (2, "copy", "2 copies"), (2, "key", "2 keys"),
        (3, "fresh secret input set", "3 fresh secret input sets"),
    ],
)  # fmt: skip
def test_a_number_of_things(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said


COUNT = re.compile(
    r"\{(?:len\([^{}]*\)|[\w.]*(?:attempts|count|number|tasks|calls|chunks|launches)(?::,)?)\} (?:more |own |kinds? of )?"
    r"(?:attempts|tasks|calls|entries|files|kernels|lessons|rows|accesses|launches|copies|variants|lines|arguments|parameters)\b"
)
NEVER_ONE = {                              # where the code before has looked
    "{launches} launches", "{len(body)} lines", "{len(tried)} tasks", "{len(rest)} more kernels", "{len(launched)} kernels",
    "{profile.calls} calls",
}  # fmt: skip


def test_counts_in_sentences_go_through_the_function() -> None:
    found = {match.group() for path in PACKAGE.rglob("*.py") for match in COUNT.finditer(path.read_text())}
    assert found == NEVER_ONE
