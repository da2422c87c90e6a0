"""Finds the names that one C or C++ declaration declares, from its text alone.

It compiles nothing, and what it cannot make out it leaves out. Where to look next: `rag/headers/declarations.py`, which cuts
headers into declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Kind = Literal["function", "type", "enum", "value", "field", "variable", "macro"]

_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|/\*.*?\*/")
_LOUD = re.compile(r"_*[A-Z][A-Z0-9_]*")   # a macro by its looks: CUDARTAPI, __CUDA_ALIGN__, _CCCL_REQUIRES
_REMARK = re.compile(r"_*[A-Z0-9_]*(?:DEPRECATED|ALIGN|UNUSED)[A-Z0-9_]*")
_TAGGED = re.compile(r"\b(?:enum(?:\s+(?:class|struct))?|class|struct|union)\b\s*(?P<rest>(?:[^:{]|::)*)")
_ALIAS = re.compile(r"(?:template\b.*?\s)?using\s+(?P<name>\w+)\s*(?:\w+\s*|\[\[.*?\]\]\s*)?=")
_POINTER = re.compile(r"\(\s*(?:\w+\s+)?(?:\w+::)?\*\s*(?P<name>\w+)\s*\)\s*\(")
_ELSEWHERE = re.compile(r"\w(?:<[^()]*>)?::(\w+)\s*\(")
_FORWARD = re.compile(
    r"(?:enum\s+)?(?:class|struct|union|enum)\s+\w+(?:\s*:\s*\w+)?|typedef\s+(?:struct|union|enum)\s+(?P<name>\w+)\s+(?P=name)"
)
_CALLS = {                                 # what stands in front of parentheses and names nothing
    "__attribute__", "__declspec", "__align__", "__builtin_align__", "__launch_bounds__", "__dv", "alignas", "asm", "decltype",
    "defined", "explicit", "for", "if", "noexcept", "requires", "return", "sizeof", "static_assert", "switch", "throw", "while",
}  # fmt: skip
_NO_NAMES = {
    "const", "default", "delete", "enum", "final", "int", "noexcept", "override", "struct", "void", "volatile", "__THROW",
}  # fmt: skip


def named(text: str) -> tuple[Kind, list[str]]:
    """Returns (kind, names) of a declaration without its `;` or body. A variable's kind is "field"."""
    if (alias := _ALIAS.match(text)) is not None:
        return "type", [alias["name"]]
    plain = unattributed(_without_signatures(text), loud=False)
    typedef = re.match(r"(?:extern\s+)?typedef\b", plain) is not None
    if typedef and (pointer := _POINTER.search(plain)) is not None:
        return "type", [pointer["name"]]
    plain = _before_value(plain)
    if not typedef:
        called = []
        for start, _, word in _groups(plain):
            if (pointer := _POINTER.match(plain, start)) is not None:
                return "field", [pointer["name"]]
            called.append(word)
        if called:
            name = next((word for word in called if word and not _LOUD.fullmatch(word)), "")
            name = name or [called[0], *(word for word in called[1:] if not _REMARK.fullmatch(word))][-1]
            elsewhere = name in _ELSEWHERE.findall(plain)                    # its class has declared it
            return "function", [name] if name and name[0] != "~" and name not in _NO_NAMES and not elsewhere else []
    if _FORWARD.fullmatch(plain.strip()):
        return "type", []                  # it is defined elsewhere
    names = []
    for part in re.split(r",(?![^<(]*[>)])", plain):
        words = [word for word in re.findall(r"\w+", re.sub(r"\[.*|(?<!:):(?!:).*", "", part)) if not _REMARK.fullmatch(word)]
        if words and words[-1] not in _NO_NAMES and not words[-1][0].isdigit():
            names.append(words[-1])
    return "type" if typedef else "field", names


def tag(text: str) -> str:
    """Returns a type's name from the text in front of its members; "" if there is none."""
    found = _TAGGED.search(text)
    words = re.findall(r"\w+", re.sub(r"<.*", "", found["rest"])) if found else []
    words = [word for word in words if word != "final" and not re.fullmatch(r"__\w+__", word)]
    return words[-1] if words else ""


def aliases(text: str) -> list[str]:
    """Returns a type's names from the text behind its members. One in capitals counts if there is no other."""
    found = []
    for part in unattributed(text).split(","):
        words = [word for word in re.findall(r"\w+", part) if not _REMARK.fullmatch(word)]
        found += [next((word for word in words if not _LOUD.fullmatch(word)), words[0])] if words else []
    return found


def unattributed(text: str, *, loud: bool = True) -> str:
    """Removes comments, template parameters, attributes, and, if `loud`, macros in capitals that look like calls."""
    text = _untemplated(_ATTRIBUTE.sub(" ", text))
    for start, end, word in reversed(list(_groups(text))):
        if word in _CALLS or (loud and _LOUD.fullmatch(word)):
            text = f"{text[:text.rindex(word, 0, start)]} {text[end:]}"
    return " ".join(text.split())


def _without_signatures(text: str) -> str:
    """Removes the arguments of `std::function<int(float)>`, which look like a function's."""
    for found in reversed(list(re.finditer(r"\bfunction\s*<", text))):
        text = f"{text[:found.end() - 1]} {_behind_angles(text, found.end())}"
    return text


def _groups(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields (start, end, the word before) of each outermost pair of parentheses."""
    depth, start = 0, 0
    for found in re.finditer(r"[()]", text):
        if found.group() == "(":
            start = found.start() if depth == 0 else start
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0:
                before = re.search(r"(~?\w+)\s*(?:<[^()]*>\s*)?$", text[max(start - 200, 0):start])
                yield start, found.end(), before[1] if before else ""


def _before_value(text: str) -> str:
    """Returns the text before `= value`; default arguments do not count."""
    depth = 0
    for found in re.finditer(r"[()]|(?<![=!<>])=(?!=)", text):
        if found.group() == "=" and depth == 0:
            return text[:found.start()]
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
    return text


def _untemplated(text: str) -> str:
    while (found := re.match(r"(?:.*?\s)??template\s*<", text)) is not None:
        text = _behind_angles(text, found.end()).lstrip()
    return text


def _behind_angles(text: str, at: int) -> str:
    depth = 1
    while depth and at < len(text):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        at += 1
    return text[at:]
