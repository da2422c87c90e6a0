"""reStructuredText, told to an outline: underlined headings, literal blocks, Sphinx's directives of code and declarations.

It runs no directive, includes no file and needs no docutils, which would. Where to look next: `rag/documents/markdown.py`,
`rag/documents/outline.py`.
"""

from __future__ import annotations

import re

from stitchcuda.rag.documents import symbols
from stitchcuda.rag.documents.outline import Outline

_DEFINITION = 100                          # level of a declaration that is not indented, below every heading
_LINE = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*$")
_DIRECTIVE = re.compile(r"([ \t]*)\.\.[ \t]+([\w:+-]+?)::[ \t]*(.*)$")
_REMARK = re.compile(r"[ \t]*\.\.(?:[ \t]|$)")
_OPTION = re.compile(r"[ \t]+:[\w -]+:(?:[ \t]|$)")
_ROLE = re.compile(r"(?::[\w:+-]{1,40}:)?`{1,2}~?([^`<\n]{1,300}?)(?:[ \t]*<[^>`\n]{0,1000}>)?`{1,2}_{0,2}")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|#\.|\d{1,9}[.)])[ \t]")
_DECLARES = re.compile(r"(?:c|cpp|py|cuda)?:?(?:c:|cpp:|py:)?"
                       r"(?:function|type|struct|class|enum|enum-class|enum-struct|enumerator|macro|member|var|method|data|attribute)")
_CODE = {"code-block", "code", "sourcecode", "parsed-literal", "literalinclude", "prompt", "doctest", "testcode"}
_DROPPED = {"image", "figure", "toctree", "contents", "include", "index", "highlight", "default-role", "raw", "meta",
            "only", "module"}


def tell(text: str, name: str) -> Outline:
    """The outline of `text`; its first heading is its title, or `name` is."""
    lines = text.splitlines()
    outline = Outline(_title(lines) or name)
    levels: list[str] = []
    paragraph: list[str] = []
    at = 0
    while at < len(lines) and not outline.full:
        line = lines[at]
        directive = _DIRECTIVE.match(line)
        if line.strip() and not paragraph:
            outline.close(_DEFINITION + _indent(line))
        over = _is_overlined(lines, at)
        if over or _is_heading(lines, at):
            _end(outline, paragraph)
            style = line.strip()[0] * 2 if over else lines[at + 1].strip()[0]
            if style not in levels:
                levels.append(style)
            title = lines[at + over].strip()
            names = symbols.in_heading(_shown(title), tuple(found[1] for found in _ROLE.finditer(title)))
            outline.heading(levels.index(style) + 1, _shown(title), names=names)
            at += 3 if over else 2
        elif directive:
            _end(outline, paragraph)
            at = _direct(outline, lines, at, directive)
        elif _REMARK.match(line):
            _end(outline, paragraph)
            at = _block_end(lines, at + 1, _indent(line))
        elif line.rstrip().endswith("::"):
            paragraph.append(line.rstrip()[:-1] if line.strip() != "::" else "")
            _end(outline, paragraph)
            end = _block_end(lines, at + 1, _indent(line))
            outline.code(_dedented(lines[at + 1 : end]))
            at = end
        else:
            if line.strip():
                paragraph.append(line)
            else:
                _end(outline, paragraph)
            at += 1
    _end(outline, paragraph)
    return outline


def _direct(outline: Outline, lines: list[str], at: int, found: re.Match[str]) -> int:
    """Tells a directive; returns where to go on: behind it, or at its text, which is read as text."""
    kind, argument = found[2].lower(), found[3].strip()
    indent = len(found[1].expandtabs())
    if kind in _DROPPED:
        return _block_end(lines, at + 1, indent)
    start, last = at + 1, len(lines)
    while start < last and _OPTION.match(lines[start]):
        start += 1
    if kind in _CODE:
        end = _block_end(lines, start, indent)
        outline.code(_dedented(lines[start:end]))
        return end
    if _DECLARES.fullmatch(kind):
        while start < last and argument.endswith("\\"):
            argument, start = argument[:-1] + lines[start].strip(), start + 1
        declared = symbols.of_declaration(argument, certain=True)
        outline.heading(_DEFINITION + indent, declared or argument, names=(declared,) if declared else ())
        outline.code(argument)
    elif argument or kind in {"note", "warning", "important", "tip", "caution", "seealso"}:
        outline.text(f"{kind.capitalize()}: {_shown(argument)}" if argument else f"{kind.capitalize()}:")
    return start


def _is_heading(lines: list[str], at: int) -> bool:
    """A line of words over a line of one sign that is as long."""
    if at + 1 >= len(lines) or not lines[at].strip() or lines[at][0].isspace() or _LINE.match(lines[at]):
        return False
    if at and lines[at - 1].strip() and not _LINE.match(lines[at - 1]):
        return False
    under = lines[at + 1].rstrip()
    return bool(_LINE.match(under)) and len(under) >= min(len(lines[at].rstrip()), 200) - 2 and len(under) > 2


def _is_overlined(lines: list[str], at: int) -> bool:
    if at + 2 >= len(lines) or not _LINE.match(lines[at]) or len(lines[at].rstrip()) < 3:
        return False
    return lines[at].rstrip() == lines[at + 2].rstrip() and bool(lines[at + 1].strip()) and not _LINE.match(lines[at + 1])


def _block_end(lines: list[str], at: int, indent: int) -> int:
    """Where a block ends that is indented deeper than `indent`."""
    last = at
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
        last = at + 1 if lines[at].strip() else last
        at += 1
    return last


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _dedented(lines: list[str]) -> str:
    least = min((_indent(line) for line in lines if line.strip()), default=0)
    return "\n".join(line.expandtabs()[least:] for line in lines).strip("\n")


def _end(outline: Outline, paragraph: list[str]) -> None:
    if any(_ITEM.match(line) or line.lstrip().startswith(("|", "+-")) for line in paragraph):
        for line in paragraph:
            if line.strip(" \t+-=|"):
                outline.text(_shown(line).strip().strip("|"), row=True)
    elif paragraph:
        outline.text(_shown(" ".join(line.strip() for line in paragraph)))
    paragraph.clear()


def _shown(text: str) -> str:
    return _ROLE.sub(r"\1", text).replace("**", "")


def _title(lines: list[str]) -> str:
    for at in range(min(len(lines), 100)):
        if _is_overlined(lines, at):
            return _shown(lines[at + 1]).strip()
        if _is_heading(lines, at):
            return _shown(lines[at]).strip()
    return ""
