"""Calls of functions that a program does not declare itself, as far as its text alone says that the compiler will look them up.

Where that is not certain a call is none: under a condition, in a macro that nobody uses or that may drop or compose what it is
given, in front of what might be a declaration. One thing looks certain and is not: a template that nobody instantiates may
call what there is not. It knows no headers but the program's own. Where to look next: `api_names.py`, which asks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stitchcuda.simulator.source import opening
from stitchcuda.tools.building.header_names import NAME
from stitchcuda.tools.building.program_text import LOOKED_BACK, Macro, Text, last_word

_NAME = re.compile(NAME)
_CALLED = re.compile(rf"{NAME}(?=\s*\()")
_STRUCTURE = re.compile(rf"[()\[\]{{}};]|{NAME}(?=\s*\()")
_SPACE_OF_NAMES = re.compile(r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"[^"]*"\s*)\Z')
_BEFORE_CALLS = frozenset(("return", "else", "do", "case", "throw", "co_return", "co_await", "co_yield", "not", "and", "or"))
_BEFORE_STATEMENTS = frozenset(("if", "constexpr", "for", "while", "switch"))
_NO_CALL_INSIDE = frozenset(("assert", "decltype", "noexcept", "sizeof", "typeof", "__typeof__"))


class Call(NamedTuple):
    """The first of this name."""

    name: str
    file: Path
    line: int


def possible(texts: Iterable[Text]) -> frozenset[str]:
    """Names of these APIs that seem to be called, in comments too: a quick look."""
    return frozenset(name for text in texts for name in _CALLED.findall(text.written))


def certain(names: Collection[str], texts: Sequence[Text], sources: Collection[Path]) -> list[Call]:
    """The calls, among these names, that the program's compilation is sure to look up and does not declare itself.

    `texts` are its `sources` and its own headers.
    """
    macros = [macro for text in texts for macro in text.macros]
    if any(macro.composes() for macro in macros) or any(re.search(r"\brequires\b", text.plain) for text in texts):
        return []
    defined: dict[str, list[Macro]] = {}
    for macro in macros:
        defined.setdefault(macro.name, []).append(macro)
    sure = {name for name, given in defined.items() if len(given) == 1 and given[0].certain}
    drops = {name for name in defined if name not in sure or not defined[name][0].passes()} | _NO_CALL_INSIDE
    left = set(names) - _own(names, texts)
    found: dict[str, Call] = {}
    for text in _read(texts, sources):
        places = list(_calls(left, text.certain, drops, function=True))
        for macro in text.macros:
            if macro.name in sure and macro.name in text.words:
                places += [(name, macro.at + at) for name, at in _calls(left, macro.body, drops, function=False)]
        line, counted = 1, 0
        for name, at in sorted(places, key=lambda place: place[1]):
            line, counted = line + text.written.count("\n", counted, at), at
            found.setdefault(name, Call(name, text.file, line))
    return list(found.values())


def _own(names: Collection[str], texts: Sequence[Text]) -> set[str]:
    """Those that the program may declare, or hands about as a value: any use but a plain call."""
    own = set[str]()
    for text in texts:
        for part in (text.plain, *(macro.body for macro in text.macros)):
            inside = {at for _, at in _calls(names, part, (), function=part is text.plain)}    # `int a(), b();` is not
            for found in _NAME.finditer(part):
                name = found.group()
                if name in names and name not in own and not (found.start() in inside and _is_call(part, found)):
                    own.add(name)
        for directive in text.directives:
            if directive["word"] != "define":
                own.update(_NAME.findall(directive["rest"]))
        own.update(word for macro in text.macros for word in (macro.name, *macro.params))
    return own


def _is_call(text: str, found: re.Match[str]) -> bool:
    """Whether what is in front of a name, and behind it, makes it a call of a function that is declared elsewhere."""
    if re.match(r"\s*\(", text[found.end():found.end() + LOOKED_BACK]) is None:
        return False
    before = text[max(found.start() - LOOKED_BACK, 0):found.start()].rstrip(" \t\n\\")
    if before.endswith("::"):
        before = before[:-2].rstrip()
        if before.endswith(">") or last_word(before) not in ("", *_BEFORE_CALLS):
            return False                   # a name in some namespace or class
    if word := last_word(before):
        return word in _BEFORE_CALLS
    if before.endswith(")"):               # `(void)f()`, `if (x) f()`, or the end of attributes
        at = opening(before, len(before) - 1)
        if ahead := last_word(before[:max(at, 0)].rstrip()):
            return ahead in _BEFORE_STATEMENTS
        return re.fullmatch(r"\(\s*void\s*\)", before[max(at, 0):]) is not None
    return not before.endswith(("*", "&", ">", "]", "~", ".", '"', "'", "#"))


def _calls(names: Collection[str], text: str, drops: Collection[str], *, function: bool) -> Iterator[tuple[str, int]]:
    """(name, place) of those in functions, or anywhere, that nothing around them drops."""
    inside = {"function": 0 if function else 1, "drops": 0, "": 0}
    opened: list[str] = []
    statement = 0
    for found in _STRUCTURE.finditer(text):
        at, what = found.start(), found.group()
        if what in names:
            if inside["function"] and not inside["drops"]:
                yield what, at
        elif what in ("(", "[", "{"):
            kind = ""
            if what == "{" and _SPACE_OF_NAMES.search(text[max(statement, at - LOOKED_BACK):at]) is None:
                kind = "function"
            elif what == "(" and last_word(text[max(at - 200, 0):at].rstrip()) in drops:
                kind = "drops"
            opened.append(kind)
            inside[kind] += 1
        elif what in (")", "]", "}") and opened:
            inside[opened.pop()] -= 1
        if what in (";", "{", "}"):
            statement = found.end()


def _read(texts: Sequence[Text], sources: Collection[Path]) -> Iterator[Text]:
    """The files that are sure to be compiled: the sources, and what they include under no condition."""
    named: dict[str, list[Text]] = {}
    for text in texts:
        named.setdefault(text.file.name, []).append(text)
    waiting = [text for text in texts if text.file in sources]
    seen = {text.file for text in waiting}
    while waiting:
        text = waiting.pop(0)
        yield text
        for include in text.includes:
            near = named.get(Path(include.name).name, []) if include.name is not None else []
            if include.certain and len(near) == 1 and near[0].file not in seen:
                seen.add(near[0].file)
                waiting.append(near[0])
