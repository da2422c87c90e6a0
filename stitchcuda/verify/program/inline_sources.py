"""Where a line of an inline source stands in the program's own Python files: the author never saw the file it was written to.

Pure functions on texts. A place is looked for among the strings of the sources and never guessed: where none holds the line (it
was put together at run time, or stands twice), the line is counted in the text that was given.
Where to look next: `verify/program/builder_worker.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 2 * 2**20                       # bytes of a Python file that is read for this


def find_place(written: str, line: int, given: tuple[str, ...], root: Path, name: str) -> tuple[str, int] | None:
    """(file, line) as the author knows them, for a line of a file that was `written` around the texts that were `given`.

    None where the line is none of theirs. `root` is the program's folder, `name` the library's.
    """
    whole = "\n".join(given)
    before = written.find(whole) if whole.strip() else -1
    inside = line - 1 - written.count("\n", 0, before)
    lines = whole.split("\n")
    if before < 0 or not 0 <= inside < len(lines):
        return None
    found = set(_among_strings(lines, inside, root))
    if len(found) == 1:
        return found.pop()
    return f"the source given to load_inline({name!r})", inside + 1


def _among_strings(lines: list[str], inside: int, root: Path) -> Iterator[tuple[str, int]]:
    """Places of a line in strings that the text is made of, in the Python files of a program."""
    wanted = lines[inside].strip()
    for path in sorted(root.rglob("*.py")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST:
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        rows = source.split("\n")
        spans = {
            (node.lineno, node.end_lineno or node.lineno)  # parts of a formatted string have the whole's
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and wanted in node.value
        }
        for first, last in spans:
            for row in range(first, last + 1):
                if wanted in rows[row - 1] and _around(lines, inside, rows, row - 1):
                    yield str(path.relative_to(root)), row


def _around(lines: list[str], inside: int, rows: list[str], row: int) -> bool:
    """Whether a line before or after is the same too, as far as these have any: one like it may stand in another kernel."""
    near = [step for step in (-1, 1) if 0 <= inside + step < len(lines) and lines[inside + step].strip()]
    return not near or any(0 <= row + step < len(rows) and lines[inside + step].strip() in rows[row + step] for step in near)
