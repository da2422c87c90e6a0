"""What the printer writes is Python that means the same."""

from __future__ import annotations

import ast

import pytest

from stitchcuda.compiler.printing.idioms import quote


@pytest.mark.parametrize("text", ["plain", "it's", 'say "so"', "two\nlines", "back\\slash", "ünïcode 漢", "", "'\"\\'"])
def test_a_string_comes_back_as_it_was(text: str) -> None:
    assert ast.literal_eval(quote(text)) == text
    assert quote(text)[0] == quote(text)[-1] == '"'
