"""Finds includes by which a source reads files from outside of its program, and says so as a compiler would.

A program is built from its own files and the headers of the toolkit, torch and tvm-ffi. The sandbox already hides all other
files from the compiler, also from includes that a macro composes, which are not seen here; this adds a sentence for the
reader.
Where to look next: `simulator/build.py`, `tools/build/nvcc.py` (who ask).
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


def find_foreign_include(text: str, file: Path, roots: Sequence[Path], shown: str = "") -> str | None:
    """Returns a compiler-like error for the first include in `text` of a file outside of the program, or None.

    `roots`: folders that it may read. `shown`: the file's name in the message.
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
