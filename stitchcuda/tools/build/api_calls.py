"""Calls of functions that a program does not declare itself, as far as its text alone says that the compiler will look them up.

Where that is not certain a call is none: under a condition, in a macro that nobody uses or that may drop or compose what it is
given, in a template that nobody names, where something might be a declaration. It knows no headers but the program's own.
Where to look next: `tools/build/api_names.py`, which asks; `tools/build/program_text.py`, how a file is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stitchcuda.simulator.source import opening
from stitchcuda.tools.build.header_names import NAME
from stitchcuda.tools.build.program_text import LOOKED_BACK, Macro, Text, last_word

_NAME = re.compile(NAME)
_CALLED = re.compile(rf"{NAME}(?=\s*\()")
_STRUCTURE = re.compile(rf"[()\[\]{{}};]|\bif\s+constexpr\b|{NAME}(?=\s*\()")
_SPACE_OF_NAMES = re.compile(r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"[^"]*"\s*)\Z')
_TEMPLATE = re.compile(r"\btemplate\s*<|\([^()]*\bauto\b")
_LAMBDA = re.compile(r"\]\s*\([^()]*\bauto\b|\]\s*<")
_CONTROL = re.compile(r"\s*(?:if|else|for|while|do|switch|try|catch)\b")
_FUNCTION = re.compile(r"\b(?!(?:alignas|decltype|noexcept|operator|__\w+__)\b)[A-Za-z_]\w*(?=\s*\()")
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
    words = Counter(word for text in texts for word in re.findall(r"\w+", text.blank)) if left else Counter[str]()
    once = {word for word, number in words.items() if number == 1}
    found: dict[str, Call] = {}
    for text in _read(texts, sources):
        places = list(_calls(left, text.certain, drops, once=once))
        for macro in text.macros:
            if macro.name in sure and macro.name in text.words:
                places += [(name, macro.at + at) for name, at in _calls(left, macro.body, drops, anywhere=True)]
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
            inside = {at for _, at in _calls(names, part, anywhere=part is not text.plain)}    # `int a(), b();` is not
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


def _calls(
    names: Collection[str],
    text: str,
    drops: Collection[str] = (),
    *,
    once: Collection[str] | None = None,
    anywhere: bool = False,
) -> Iterator[tuple[str, int]]:
    """(name, place) of those in functions, or anywhere, that nothing around them drops.

    `once` are words that the program has once: a template of such a name is never instantiated. None: templates are functions.
    """
    inside = Counter({"function": 1}) if anywhere else Counter[str]()
    opened: list[str] = []
    statement = template = chosen = 0      # where the last statement ended, the outermost template and `if constexpr` began
    for found in _STRUCTURE.finditer(text):
        at, what = found.start(), found.group()
        if what in names:
            discarded = inside["template"] and chosen > template
            if inside["function"] + inside["template"] and not inside["drops"] and not discarded:
                yield what, at
        elif what in ("(", "[", "{"):
            kind = ""
            if what == "{":
                kind = _kind(text[max(statement, at - LOOKED_BACK):at], once, inside["template"] > 0)
                template = at if kind == "template" and not inside["template"] else template
            elif last_word(text[max(at - 200, 0):at].rstrip()) in drops:
                kind = "drops"
            opened.append(kind)
            inside[kind] += 1
        elif what in (")", "]", "}") and opened:
            inside[opened.pop()] -= 1
        elif what.startswith("if"):
            chosen = at
        if what in (";", "{", "}"):
            statement = found.end()


def _kind(head: str, once: Collection[str] | None, within: bool) -> str:
    """Of a brace, by what is in front of it: "" for a namespace, "drops" where it is a template that is never instantiated."""
    if _SPACE_OF_NAMES.search(head) is not None:
        return ""
    statement = _CONTROL.match(head) is not None or head.count(")") > head.count("(")      # `for (…; …; i++) {`
    if once is None or statement or not (within or _TEMPLATE.search(head)):
        return "function"
    named = _FUNCTION.findall(head)
    unused = named and all(name in once for name in named)
    return "drops" if unused or _LAMBDA.search(head) else "template"


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
