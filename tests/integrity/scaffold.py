"""Makes complete programs of cases: files in `attacks/` and `honest/` that hold only what makes them one.

A case names its base among its first lines (`# base: softmax.py`, a program in `bases/`) and is laid over it: what the case
defines (a variable, a function, an imported name, a method of `ModelNew`) takes the place of what the base defines under that
name, and may use what the base defines above it. Other statements stay in their order: before the next one that takes a
place, or else before `ModelNew`; other methods come last. A base may have a base itself. A file that names none is a complete
program.

    python -m tests.integrity.scaffold tests/integrity/attacks/a12_own_view.py     prints the complete program
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from pathlib import Path

BASES = Path(__file__).resolve().parent / "bases"
_BASE = re.compile(r"^# base:\s*(\S+)", re.MULTILINE)
_MODEL = "ModelNew"
_Parts = list[tuple[str, str]]


def complete(case: Path) -> str:
    """The text of the complete program. Raises FileNotFoundError for a base that is not there."""
    text = case.read_text()
    named = _BASE.search(text)
    if not named:
        return text
    base = complete(BASES / named[1])
    given, own = _statements(base), _statements(text)
    if _MODEL in dict(own):
        head, methods = _class(base)
        model = "\n".join([head, *_laid_over(methods, _class(text)[1])])
        own = [(name, model if name == _MODEL else part) for name, part in own]
    else:
        own.append((_MODEL, dict(given)[_MODEL]))
    return _heading(text) + "\n".join(_laid_over(given, own)) + "\n"


def _laid_over(given: _Parts, own: _Parts) -> list[str]:
    """The parts of a base, those of a case in their places and between them."""
    places = dict(given)
    between: list[str] = []
    for name, text in own:
        between.append(text)
        if name in places:
            places[name] = "\n".join(between)
            between = []
    return [*places.values(), *between]


def _statements(text: str) -> _Parts:
    return _parts(text, ast.parse(text).body, _heading(text).count("\n"))


def _class(text: str) -> tuple[str, _Parts]:
    """The first line of `ModelNew`, and its methods."""
    [model] = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == _MODEL]
    return "\n\n" + text.splitlines()[model.lineno - 1], _parts(text, model.body, model.lineno)


def _parts(text: str, nodes: Sequence[ast.stmt], start: int) -> _Parts:
    """Name and lines of each statement, with the comments before it. What defines no single name has its text for a name."""
    lines, parts = text.splitlines(), []
    for node in nodes:
        end = node.end_lineno or start
        if end > start:                    # else it shares a line with the one before
            part = "\n".join(lines[start:end])
            parts.append((_name(node) or part, part))
            start = end
    return parts


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.ImportFrom):
        return ", ".join(alias.asname or alias.name for alias in node.names)
    return ""


def _heading(text: str) -> str:
    """The comments that a file begins with."""
    return re.match(r"(#.*\n)*", text)[0]  # type: ignore[index]


if __name__ == "__main__":
    print(complete(Path(sys.argv[1])), end="")
