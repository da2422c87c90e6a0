"""One file of a program as its text: comments and literals blank, directives apart, what a condition may leave out set aside.

It evaluates no condition and expands no macro: what is under a condition is uncertain, but for the one that keeps a header from
being read twice. Where to look next: `tools/build/api_calls.py`, which looks for calls in it; `simulator/source.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from stitchcuda.simulator.source import masked

_DIRECTIVE = re.compile(r"(?m)^[ \t]*(?:#|%:|\?\?=)[ \t]*(?P<word>\w*)(?P<rest>(?:[^\\\n]+|\\(?:[ \t]*\n)?)*+)")
_DEFINITION = re.compile(r"\s+(?P<name>\w+)(?:\((?P<params>[^()]*)\))?")
_UNDEFINED = {"ifndef": re.compile(r"\s+(\w+)\s*"), "if": re.compile(r"\s*!\s*defined\s*\(?\s*(\w+)\s*\)?\s*")}
_INCLUDED = re.compile(r'\s*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)')

LOOKED_BACK = 2000
"""Characters: what is in front of a name, wherever that is asked."""


class Include(NamedTuple):
    """`name` as it is written; None where a macro composes it."""

    name: str | None
    certain: bool                          # under no condition


class Macro(NamedTuple):
    """What a program defines."""

    name: str
    params: tuple[str, ...]
    body: str
    at: int                                # of the body
    certain: bool

    def passes(self) -> bool:
        """Whether something that it is given is code afterwards."""
        names = "|".join(map(re.escape, ("__VA_ARGS__", *self.params)))
        return re.search(rf"(?<![\w#])(?<!#\s)(?:{names})\b", self.body) is not None

    def composes(self) -> bool:
        """Whether it may make one of the APIs' names out of pieces: `cuda##name`, not `tile_##name` or `, ##__VA_ARGS__`."""
        for found in re.finditer("##", self.body):
            before = self.body[max(found.start() - LOOKED_BACK, 0):found.start()].rstrip()
            left = last_word(before)
            if left in self.params or left.startswith("c") or not (left or before.endswith(",")):
                return True
        return False


@dataclass(frozen=True)
class Text:
    """One file of a program, its comments and literals blank, with every character in its place."""

    file: Path
    written: str

    @cached_property
    def blank(self) -> str:
        return masked(self.written)

    @cached_property
    def directives(self) -> list[re.Match[str]]:
        return list(_DIRECTIVE.finditer(self.blank))

    @cached_property
    def plain(self) -> str:
        """Without directives."""
        return _without(self.blank, [found.span() for found in self.directives])

    @cached_property
    def certain(self) -> str:
        """`plain` without what is under a condition."""
        return _without(self.plain, self._conditions[0])

    @cached_property
    def words(self) -> frozenset[str]:
        """Of `certain`."""
        return frozenset(re.findall(r"\w+", self.certain))

    @cached_property
    def includes(self) -> list[Include]:
        made = []
        for found, certain in zip(self.directives, self._conditions[1], strict=True):
            if found["word"] in ("include", "include_next", "import"):
                name = _INCLUDED.match(self.written, found.start("rest"))
                made.append(Include((name["quoted"] or name["angled"]) if name else None, certain))
        return made

    @cached_property
    def macros(self) -> list[Macro]:
        made = []
        for found, certain in zip(self.directives, self._conditions[1], strict=True):
            name = _DEFINITION.match(found["rest"]) if found["word"] == "define" else None
            if name is not None:
                params = tuple(filter(None, (part.strip(" \t\\\n.") for part in (name["params"] or "").split(","))))
                body, at = found["rest"][name.end():], found.start("rest") + name.end()
                made.append(Macro(name["name"], params, body, at, certain))
        return made

    @cached_property
    def _conditions(self) -> tuple[list[tuple[int, int]], list[bool]]:
        """What is under a condition, and of each directive whether it is not."""
        spans, certain, opened, start, doubtful = [], list[bool](), list[bool](), 0, 0
        for number, found in enumerate(self.directives):
            word, before = found["word"], doubtful
            if word.startswith("if"):
                opened.append(not self._is_guard(number))
                doubtful += opened[-1]
            elif word.startswith("el") and opened:
                doubtful += not opened[-1]
                opened[-1] = True
            elif word == "endif" and opened:
                doubtful -= opened.pop()
            certain.append(not doubtful)
            if doubtful and not before:
                start = found.end()
            elif before and not doubtful:
                spans.append((start, found.start()))
        return ([*spans, (start, len(self.blank))] if doubtful else spans), certain

    def _is_guard(self, number: int) -> bool:
        """Whether a condition only keeps a header from being read twice: it is the first thing in it, and defines its name."""
        found, following = self.directives[number], self.directives[number + 1:number + 2]
        if number > 5 or not following or following[0]["word"] != "define" or found["word"] not in _UNDEFINED:
            return False
        name, defined = _UNDEFINED[found["word"]].fullmatch(found["rest"]), _DEFINITION.match(following[0]["rest"])
        first = all(one["word"] == "pragma" for one in self.directives[:number]) and not self.plain[:found.start()].strip()
        return first and name is not None and defined is not None and defined["name"] == name[1]


def last_word(text: str) -> str:
    """What it ends with, if that is a word; a search for the end of one would begin at every letter."""
    start = len(text)
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return text[start:]


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], re.sub(r"[^\n]", " ", text[start:end])]
        at = end
    return "".join((*pieces, text[at:]))
