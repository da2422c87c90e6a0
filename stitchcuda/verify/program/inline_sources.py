"""Finds the line of a program's Python file that a line of an inline CUDA source comes from, for compiler messages.

`load_inline` gets a source as a string, which is written to a file that the author never saw. The line is looked for in the
string constants of the program's Python files, and counts as found when exactly one place holds it with the same line before
or after it. Else (a string put together at run time, or there twice) it is counted in the string given to `load_inline`.
It only reads files. Where to look next: `verify/program/builder_worker.py` (who asks).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module

_LONGEST = 2 * 2**20                       # bytes; longer Python files are not searched


def find_place(written: str, line: int, given: tuple[str, ...], root: Path, name: str) -> tuple[str, int] | None:
    """Returns (file, line) as the author knows them, or None where the line is in none of the given texts.

    `written`: the text of the file that the compiler read, with `line` counted from 1 in it. `given`: the strings that the
    program gave to `load_inline`, which are part of it. `root`: the program's folder. `name`: the library's.
    """
    whole = "\n".join(given)
    before = written.find(whole) if whole.strip() else -1
    inside = line - 1 - written.count("\n", 0, before)
    lines = whole.split("\n")
    if before < 0 or not 0 <= inside < len(lines):
        return None
    found = set(_find_in_strings(lines, inside, root))
    if len(found) == 1:
        return found.pop()
    return f"the source given to load_inline({name!r})", inside + 1


def _find_in_strings(lines: list[str], inside: int, root: Path) -> Iterator[tuple[str, int]]:
    """Yields (file, line) for each place in string constants below `root` that holds `lines[inside]` and a neighbour of it."""
    wanted = lines[inside].strip()
    for path in sorted(root.rglob("*.py")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST:
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        try:
            tree = parse_module(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        rows = source.split("\n")
        spans = {
            (node.lineno, node.end_lineno or node.lineno)  # for a part of an f-string, the lines of the whole f-string
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and wanted in node.value
        }
        for first, last in spans:
            for row in range(first, last + 1):
                if wanted in rows[row - 1] and _has_same_neighbour(lines, inside, rows, row - 1):
                    yield str(path.relative_to(root)), row


def _has_same_neighbour(lines: list[str], inside: int, rows: list[str], row: int) -> bool:
    """Whether the line before or after is the same too, if it has text: an equal line may be in another kernel."""
    near = [step for step in (-1, 1) if 0 <= inside + step < len(lines) and lines[inside + step].strip()]
    return not near or any(0 <= row + step < len(rows) and lines[inside + step].strip() in rows[row + step] for step in near)
