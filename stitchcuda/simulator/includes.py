"""Reads what a source wants from outside of its program: a second line behind the sandbox, and the sentence a reader gets.

A program is built from its own files and the headers of the toolkit, torch and tvm-ffi. Includes that a macro composes are
not seen here: to the compiler, in its sandbox, such files do not exist. Where to look next: `simulator/build.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from stitchcuda.simulator.source import line_of

_COMMENT = re.compile(
    r'//[^\n]*(?:\\\n[^\n]*)*|/\*.*?(?:\*/|\Z)'
    r'|(?P<kept>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*")',
    re.DOTALL,
)  # fmt: skip
_INCLUDE = re.compile(
    r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import)[ \t]*"
    r'(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)',
    re.MULTILINE,
)  # fmt: skip
_DATA = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*embed\b|\.incbin\b", re.MULTILINE)


def foreign(text: str, file: Path, roots: Sequence[Path], shown: str = "") -> str | None:
    """The first line of `text` that takes in what is not the program's, as a compiler would say it; None where there is none.

    `roots` are the folders that it may read; `shown` is the file's name in the message.
    """
    code = _COMMENT.sub(lambda found: found["kept"] or re.sub(r"[^\n]", " ", found.group()), text)
    at, wanted = -1, ""
    if (data := _DATA.search(code)) is not None:
        at, wanted = data.start(), "data out of a file"
    for found in _INCLUDE.finditer(code):
        name = found["quoted"] or found["angled"]
        if (name.startswith("/") or ".." in Path(name).parts) and not _inside(name, file, roots):
            at, wanted = found.start(), f'"{name}"'
            break
    if at < 0:
        return None
    rule = "a program is built from its own sources and the toolkit's headers"
    return f"{shown or file}:{line_of(code, at)}:1: error: takes in {wanted} from outside of the program; {rule}"


def inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a file, followed through its links, lies in one of the folders."""
    real = path.resolve()
    return any(real.is_relative_to(root.resolve()) for root in roots)


def _inside(wanted: str, file: Path, roots: Sequence[Path]) -> bool:
    if wanted.startswith("/"):
        return inside(Path(wanted), roots)
    return any(inside(folder / wanted, roots) for folder in (file.parent, *roots))
