"""Reads C++ just well enough to edit it: masking, matching brackets, scopes, statements.

All searches work on a masked copy, in which comments and the insides of literals are blank but every character keeps its place.
It never parses expressions or expands macros.
Where to look next: `simulator/rewrite.py`, `simulator/unsupported.py` and `tools/build/masks.py`, which are built on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A literal or comment that is never closed ends with its line or text, as for a compiler. If it did not match at all, the time
# would grow with the square of the text's length.
_TOKEN = re.compile(
    r'//(?:[^\\\n]+|\\\n?)*+'            # to the end of the line, continued by a backslash
    r'|/\*.*?(?:\*/|\Z)'
    r'|(?<![0-9A-Za-z_])(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?(?:\)(?P=mark)"|\Z)'
    r'|"(?:[^"\\\n]+|\\.)*+(?:"|(?=\n)|\Z)'
    r"|(?<![0-9A-Za-z_])'(?:[^'\\\n]+|\\.)++(?:'|(?=\n)|\Z)",  # not the separator in 1'000
    re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Edit:
    """Replaces text[start:end]. Edits of one text must not overlap."""

    start: int
    end: int
    text: str


def masked(text: str, *, literals: bool = True) -> str:
    """Returns `text` with comments blank, and with `literals` also the insides of literals. Newlines stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        keep = 0 if found[0] == "/" else 1
        if keep and (not literals or len(found) < 2):
            return found
        inside = re.sub(r"[^\n]", " ", found[keep : len(found) - keep])
        return found[:keep] + inside + found[len(found) - keep :]

    return _TOKEN.sub(blank, text)


def without_comments(text: str) -> str:
    """Returns `text` with one blank in place of each comment, however many lines it has."""
    return _TOKEN.sub(lambda match: " " if match[0][0] == "/" else match[0], text)


def apply(text: str, edits: list[Edit]) -> str:
    """Makes the edits; each replacement is padded so that the number of lines stays the same."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda change: (change.start, change.end)):
        lost = text.count("\n", edit.start, edit.end) - edit.text.count("\n")
        pieces += [text[at : edit.start], edit.text, "\n" * max(lost, 0)]
        at = edit.end
    return "".join(pieces) + text[at:]


def line_of(text: str, at: int) -> int:
    """Returns the line number of a position, from 1."""
    return text.count("\n", 0, at) + 1


def closing(text: str, at: int) -> int:
    """Returns the position of the bracket that closes the one at `at` in masked text, or -1."""
    depth = 0
    for i in range(at, len(text)):
        if text[i] in _OPEN:
            depth += 1
        elif text[i] in _CLOSE:
            depth -= 1
            if depth == 0:
                return i
    return -1


def opening(text: str, at: int) -> int:
    """Returns the position of the bracket that the one at `at` closes in masked text, or -1."""
    depth = 0
    for i in range(at, -1, -1):
        if text[i] in _CLOSE:
            depth += 1
        elif text[i] in _OPEN:
            depth -= 1
            if depth == 0:
                return i
    return -1


def find_outside_brackets(text: str, wanted: str, at: int) -> int:
    """Returns the first position of `wanted` from `at` that is not inside brackets opened after `at`, or -1."""
    i = at
    while i < len(text):
        if text.startswith(wanted, i):
            return i
        if text[i] in _OPEN:
            i = closing(text, i)
            if i < 0:
                return -1
        elif text[i] in _CLOSE:
            return -1
        i += 1
    return -1


def statement_start(text: str, at: int) -> int:
    """Returns where the statement that contains `at` begins: after the last `;`, brace or preprocessor line before it."""
    start = max(text.rfind(mark, 0, at) for mark in ";{}") + 1
    directives = re.finditer(r"^[ \t]*#(?:\\\n|[^\n])*\n", text[start:at], re.MULTILINE)
    return max([start, *(start + directive.end() for directive in directives)])


def directive_end(text: str, at: int) -> int | None:
    """Returns where the preprocessor directive that contains `at` ends, or None if there is none."""
    start = text.rfind("\n", 0, at) + 1
    while start > 1 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    if not text[start:].lstrip(" \t").startswith("#"):
        return None
    end = start
    while True:
        end = text.find("\n", end)
        if end < 0:
            return len(text)
        if text[end - 1] != "\\":
            return end
        end += 1


def in_function(text: str, at: int) -> bool:
    """Whether a position of masked text lies in a function body: in braces other than a namespace's or linkage block's."""
    for brace in re.finditer(r"\{", text[:at]):
        end = closing(text, brace.start())
        if end >= 0 and end < at:
            continue
        before = text[max(text.rfind(mark, 0, brace.start()) for mark in ";{}") + 1 : brace.start()]
        if not re.search(r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"[^"]*"\s*)$', before):
            return True
    return False
