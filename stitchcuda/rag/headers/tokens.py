"""Splits a header's text into tokens: comments, directives, literals, marks and code.

It knows nothing of declarations. Where to look next: `rag/headers/declarations.py`, which reads the tokens.
"""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)"
    r"|(?P<directive>^[ \t]*\#(?:[^\n\\/]|\\[ \t]*\r?\n|\\.|/(?![/*])|/\*[^\n*]*\*/(?=[^\n]*\\\r?\n))*)"
    r"|(?P<literal>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)')"
    r"|(?P<mark>[{}();,])"
    r"|(?P<code>(?:[^/\"'{}();,\n]|\n(?![ \t]*\#))+|.)",
    re.DOTALL | re.MULTILINE,
)
_BODY = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'|^[ \t]*\#[ \t]*(?P<condition>if|el|endif)|(?P<brace>[{}])",
    re.DOTALL | re.MULTILINE,
)
_EMPTY_OR_END = re.compile(r"(?<=\))[ \t]*__DEF_IF_HOST\b")     # of CUDA: `;`, or an empty body
_RAW = re.compile(r"\bR\"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\"", re.DOTALL)    # a program in a string
_PASTED = re.compile(r"\b_CONCAT\w*\((\w{2,}),\s*(\w{2,})\)")    # `_CONCAT_OUTER(CUdevResource_v, RESOURCE_ABI_VERSION)`
_VALUE = re.compile(r"^#define[ \t]+(\w+)[ \t]+(\d+)$", re.MULTILINE)


def prepared(source: str) -> str:
    """Returns a header with programs in strings removed, pasted names joined, and `;` in place of CUDA's macro for it."""
    values: dict[str, str] = dict(_VALUE.findall(source))
    source = _PASTED.sub(lambda found: f"{found[1]}{values.get(found[2], found[2])}", _RAW.sub('""', source))
    return _EMPTY_OR_END.sub(";", source)


def behind_brace(source: str, at: int) -> int:
    """Returns the position behind the brace that closes the one before `at`; of a condition's branches only one counts."""
    depth = 1
    branches: list[int] = []
    for found in _BODY.finditer(source, at):
        if found["condition"] == "if":
            branches.append(depth)
        elif found["condition"] == "el" and branches:
            depth = branches[-1]
        elif found["condition"] == "endif" and branches:
            branches.pop()
        elif found["brace"] is not None:
            depth += 1 if found["brace"] == "{" else -1
            if depth == 0:
                return found.end()
    return len(source)
