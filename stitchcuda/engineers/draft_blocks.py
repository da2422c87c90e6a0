"""Splits a coder's text into its fenced blocks and finds the file that each block belongs to.

A fence is three or more backticks or tildes at the begin of a line, indented or not; the next line of the same kind, at least
as long and with nothing behind it, closes it. A block is named by its opening line, by its first line if that is a comment with
a path alone, or by the line above it. Text that can be read in two ways raises `Malformed`. No file is looked at here.

Where to look next: `engineers/draft_reply.py` (a whole reply), `docs/models.md` (this grammar in words).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stitchcuda.engineers.reply import Malformed

LOOK = "look"
NOT_FILES = ("sh", "bash", "shell", "console", "text", "txt", "output", "log", "latex", "math", "mermaid", "markdown", "md")
"""Languages of blocks that are no files of a program: without a path of their own they are part of the note."""
LANGUAGES = {
    "py": {"python", "py", "python3"},
    "json": {"json", "jsonc", "json5"},
    "c": {"cuda", "cu", "cuh", "c", "cc", "cpp", "c++", "cxx", "h", "hpp"},
}
ABOVE = 120  # the most characters of a line that names the block below it
_PATH = r"[\w./-]+\.(?:py|cuh|cu|cc|cpp|hpp|h|json)\b(?!\.\w)"
PATH = re.compile(_PATH)
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>.*)")
_NAMING = re.compile(
    rf"[ \t]*(?P<mark>//+|\#+|/\*+|<!--)?[ \t]*(?:file|filename|path)?[ \t]*:?[ \t]*[`'\"*]*(?P<path>{_PATH})[`'\"*]*"
    r"[ \t]*:?[ \t]*(?:\*+/|-->)?[ \t]*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `name`: a path as written, LOOK, or "" for a block that is no file. `line` counts from 1."""

    name: str
    language: str
    body: str
    line: int


def split_blocks(text: str) -> tuple[tuple[Block, ...], str]:
    """Returns the blocks in order, and the text outside of them. Raises `Malformed` where a block is not closed, holds what
    could be the begin of another one, or does not say which file it is."""
    lines = text.split("\n")
    blocks: list[Block] = []
    outside: list[str] = []
    above, at = "", 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        if opening is None:
            outside.append(lines[at])
            above = lines[at] if lines[at].strip() else above
            at += 1
            continue
        end = _find_end(lines, at, opening)
        body = "".join(f"{_outdented(line, opening['indent'])}\n" for line in lines[at + 1 : end])
        blocks += _read_block(opening["info"].strip(), above, body, at + 1)
        above, at = "", end + 1
    return tuple(blocks), "\n".join(outside)


def _find_end(lines: list[str], at: int, opening: re.Match[str]) -> int:
    ticks, deepest = opening["ticks"], len(opening["indent"]) + 3
    if ticks[0] in opening["info"]:
        raise Malformed(f"line {at + 1} of the reply begins with {ticks} and has more {ticks[0]}: a fence has its own line")
    for number in range(at + 1, len(lines)):
        found = _FENCE.fullmatch(lines[number])
        if found is None or not found["ticks"].startswith(ticks) or len(found["indent"]) > deepest:
            continue
        if not found["info"].strip():
            return number
        raise Malformed(
            f"inside of the fenced block of line {at + 1}, line {number + 1} begins with {ticks}: close the block before it, "
            f"or write {ticks[0] * (len(ticks) + 1)} around it if that line belongs to the file"
        )
    longer = ticks[0] * (len(ticks) + 1)
    raise Malformed(f"a fenced block is not closed (line {at + 1}), or a line in it closes one too early: use {longer}")


def _read_block(info: str, above: str, body: str, line: int) -> list[Block]:
    """Returns the block; those inside of it, where it is Markdown with fences around them."""
    language = info.split()[0].partition(":")[0].lower() if info else ""
    if info.lower() == LOOK:
        return [Block(LOOK, "", body, line)]
    if language in ("markdown", "md") and any(_FENCE.fullmatch(inner) for inner in body.split("\n")):
        blocks, _ = split_blocks(body)
        return list(blocks)
    named, shown = _name_inside(body)
    inside = PATH.findall(info)
    over = _name_above(above) if language not in NOT_FILES else ""
    if len(inside) > 1:
        raise Malformed(f"the fenced block of line {line} names several files: one block per file")
    if not inside and named and over and _plain(named) != _plain(over):
        raise Malformed(f"the fenced block of line {line} is {over} by the line above, {named} by its first line: which is it?")
    if named and not inside and not body.partition("\n")[2].strip():
        raise Malformed(f"the fenced block of line {line} has nothing but a name: to remove {named}, write it after the fence")
    name = inside[0] if inside else named or over
    if name == over and name and not inside and not named and not _fits(language, over):
        raise Malformed(f"the fenced block of line {line} is {language}, and the line above it names {over}: which file is it?")
    if not name and language not in NOT_FILES:
        begin = " ".join(body.split())[:60]
        raise Malformed(
            f"the fenced block of line {line} ({begin!r}) does not say which file it is: write the path after the opening "
            "fence, as in ```kernels/NAME.cu"
        )
    return [Block(_plain(name), language, body if inside or not named else shown, line)]


def _name_inside(body: str) -> tuple[str, str]:
    """Returns the path that stands alone in the body's first line, and the body: without that line where it is no comment in
    the file's language."""
    first, _, rest = body.partition("\n")
    found = _NAMING.fullmatch(first)
    if found is None:
        return "", body
    path, mark = found["path"], found["mark"] or ""
    comment = mark.startswith("#") if path.endswith(".py") else mark.startswith("/") and not path.endswith(".json")
    return path, body if comment else rest


def _name_above(line: str) -> str:
    """Returns the path that a line ends or begins with, "" where it names none or several."""
    found = PATH.findall(line) if len(line) < ABOVE else []
    bare = re.sub(r"[\s*`#:>()\[\]\"'.,]+$", "", re.sub(r"^[\s*`#>()\[\]\"'\d.-]+(?=[\w/])", "", line))
    if len(set(found)) != 1:
        return ""
    path: str = found[0]
    return path if bare.endswith(path) or bare.startswith(path) else ""


def _fits(language: str, path: str) -> bool:
    suffix = path.rpartition(".")[2]
    kind = suffix if suffix in LANGUAGES else "c"
    return not any(language in names for names in LANGUAGES.values()) or language in LANGUAGES[kind]


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _outdented(line: str, indent: str) -> str:
    return line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t")
