"""Finds the line of a program's Python file that a line of an inline CUDA source comes from, for compiler messages.

`load_inline` gets a source as a string, which is written to a file that the author never saw. The line is looked for in the
string constants of the program's Python files, and counts as found when exactly one place holds it with the same line before
or after it. Else (a string put together at run time, or there twice) it is counted in the string given to `load_inline`.
It only reads files. Where to look next: `verify/program/builder_worker.py` (who asks).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.verify.messages.build_orders import BuildOrder

_LONGEST = 2 * 2**20                       # bytes; longer Python files are not searched
_ERROR = re.compile(
    r"(?P<file>[^\s:()][^:()]*)(?:\((?P<nvcc>\d+)\)|:(?P<gcc>\d+)(?::\d+)?): (?:\w+ )?error\b[^:]*: *(?P<what>.*)"
)
_LINKER = re.compile(r"(?:undefined reference to|multiple definition of) [^;]*")
_TWICE = ": the module is defined twice, as by PYBIND11_MODULE and by functions=..."
_LONGEST_ERROR = 400                       # characters


def first_error(log: str, order: BuildOrder, make_texts: Callable[[], Mapping[str, str]], root: Path) -> str:
    """Returns the first error in a compiler's or linker's log as one line that begins with the file and line the author knows.

    `make_texts`: makes the files, by name, that the order's inline sources were written to. `root`: the program's folder.
    """
    lines = log.strip().splitlines() or ["the compiler said nothing"]
    found = next(filter(None, map(_ERROR.match, lines)), None)
    if found is None:
        linked = next(filter(None, map(_LINKER.search, lines)), None)
        first = linked[0] if linked else next((line for line in lines if "error" in line.lower()), lines[0])
        return first.strip()[:_LONGEST_ERROR] + (_TWICE if linked and "PyInit_" in first else "")
    file, line = found["file"], int(found["nvcc"] or found["gcc"])
    return f"{describe_place(file, line, order, make_texts, root)}: {found['what'].strip()}"[:_LONGEST_ERROR]


def describe_place(file: str, line: int, order: BuildOrder, make_texts: Callable[[], Mapping[str, str]], root: Path) -> str:
    """Returns "FILE line N" as the author knows it of a line that a compiler names. The rest as for `first_error`."""
    place: tuple[str, int] | None = (file, line)
    if order.inline and Path(file).name in ("main.cpp", "cuda.cu"):
        place = find_author_place(Path(file).name, line, order, make_texts(), root)
    return f"{place[0]} line {place[1]}" if place else f"the bindings that load_inline({order.name!r}) writes"


def find_author_place(
    file: str, line: int, order: BuildOrder, texts: Mapping[str, str], root: Path
) -> tuple[str, int] | None:
    """Returns (file, line) as the author knows them of a line of a file, named `file` in `texts`, that inline sources were
    written to; None where no author wrote it."""
    given = {"cuda.cu": order.cuda, "main.cpp": order.cpp}.get(file, ())
    return find_place(texts[file], line, given, root, order.name) if given and file in texts else None


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
