"""Markdown and plain text, told to an outline: headings, fenced and indented code, lists and tables as they are written.

It renders nothing and needs no library; what it does not know stays text. Where to look next: `rag/documents/restructured.py`,
`rag/documents/outline.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stitchcuda.rag.documents import symbols
from stitchcuda.rag.documents.outline import Outline

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_ROW = re.compile(r"[ \t]*\|")
_RULE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*$")
_CODE = re.compile(r"`{1,3}([^`\n]{1,300})`")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\([^()\n]{0,1000}\)")


def tell(text: str, name: str, *, plain: bool = False) -> Outline:
    """The outline of `text`, whose first heading is its title, or `name` is. `plain`: only underlined lines are headings."""
    lines = text.splitlines() if plain else _without_front_matter(_without_remarks(text).splitlines())
    outline = Outline(name if plain else _title(lines) or name)
    paragraph: list[str] = []
    at = 0
    while at < len(lines) and not outline.full:
        line = lines[at]
        at += 1
        fence = None if plain else _FENCE.match(line)
        heading = None if plain else _HEADING.match(line)
        if fence:
            _end(outline, paragraph, plain)
            at = _fenced(outline, lines, at, fence[1])
        elif heading:
            _end(outline, paragraph, plain)
            _head(outline, len(heading[1]), (heading[2] or "").rstrip("# \t") or (heading[2] or ""))
        elif _underlines(line, paragraph):
            title = paragraph.pop()
            _end(outline, paragraph, plain)
            _head(outline, 1 if "=" in line else 2, title)
        elif not line.strip():
            _end(outline, paragraph, plain)
        else:
            paragraph.append(line)
    _end(outline, paragraph, plain)
    return outline


def _fenced(outline: Outline, lines: list[str], at: int, fence: str) -> int:
    """Tells code up to its closing fence, or to the end where it was never closed; returns where to go on."""
    start = at
    while at < len(lines) and not (lines[at].strip().startswith(fence) and not lines[at].strip(f" \t{fence[0]}")):
        at += 1
    outline.code("\n".join(lines[start:at]))
    return at + 1


def _underlines(line: str, paragraph: list[str]) -> bool:
    """`line` makes the one line above a heading. A line of text under dashes only is no table."""
    if not _UNDERLINE.match(line) or len(paragraph) != 1 or len(line.strip()) < 2:
        return False
    return not (_ITEM.match(paragraph[0]) or _ROW.match(paragraph[0]) or len(paragraph[0]) > 200)


def _head(outline: Outline, level: int, title: str) -> None:
    shown = _shown(title)
    outline.heading(level, shown, names=symbols.in_heading(shown, tuple(_CODE.findall(title))))


def _end(outline: Outline, paragraph: list[str], plain: bool) -> None:
    """Ends a paragraph: it is code if it is indented, rows if it is a table or list, else text."""
    if not paragraph:
        return
    if all(line.startswith(("    ", "\t")) for line in paragraph) and not _ITEM.match(paragraph[0]):
        outline.code(_dedented(paragraph))
    elif plain:
        outline.text("\n".join(paragraph))
    elif any(_ROW.match(line) or _ITEM.match(line) for line in paragraph):
        for line in paragraph:
            if not _RULE.match(line):
                outline.text(_row(line), row=True)
    else:
        outline.text(_shown(" ".join(line.strip() for line in paragraph)))
    paragraph.clear()


def _row(line: str) -> str:
    return _shown(" | ".join(cell.strip() for cell in line.strip().strip("|").split("|"))) if _ROW.match(line) else _shown(line)


def _dedented(lines: Iterable[str]) -> str:
    return "\n".join(line[1:] if line.startswith("\t") else line[4:] for line in lines)


def _shown(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")


def _title(lines: list[str]) -> str:
    found = next((heading for line in lines[:50] if (heading := _HEADING.match(line)) and len(heading[1]) == 1), None)
    return _shown((found[2] or "").rstrip("# \t")) if found else ""


def _without_remarks(text: str) -> str:
    """Without HTML's remarks; one that is never closed is text."""
    at = 0
    pieces: list[str] = []
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        pieces.append(text[at:start])
        at = end + 3
    return "".join(pieces) + text[at:]


def _without_front_matter(lines: list[str]) -> list[str]:
    """Without the YAML that some tools set before the text."""
    if not lines or lines[0].strip() != "---":
        return lines
    end = next((at for at, line in enumerate(lines[1:60], 1) if line.strip() in {"---", "..."}), None)
    return lines if end is None or not any(":" in line for line in lines[1:end]) else lines[end + 1 :]
