"""Parses a coder's reply: a note, one fenced block per file (whole or as edits), looks, `exhausted: why`, `base: program`.

Whatever cannot be read in one way only raises `Malformed`, so that the model is asked again: no block, edit or line of a reply
is left out in silence. What the blocks do to a program is decided in `engineers/draft_files.py`.

Where to look next: `engineers/draft_blocks.py` (fences and names), `docs/models.md` (the grammar in words).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from stitchcuda.engineers.draft_blocks import LOOK, PATH, Block, split_blocks
from stitchcuda.engineers.reply import Malformed, without_thinking

EXHAUSTED = re.compile(r"^[ \t*`]*exhausted:(?P<why>.*)$", re.MULTILINE | re.IGNORECASE)
BASE = re.compile(r"^[ \t>*`-]*base:(?P<what>.*)$", re.MULTILINE | re.IGNORECASE)
PROGRAM = re.compile(r"(?:the )?(?:verified )?program(?: now| as it is)?", re.IGNORECASE)
LAST = re.compile(r"(?:the |my |your )?(?:last )?draft(?: so far)?", re.IGNORECASE)
NAMES_BASE = re.compile(r"\b(?:program|draft)\b", re.IGNORECASE)
MARKER = re.compile(r"^[ \t]*(?:<{5,}|>{5,})", re.MULTILINE)
"""A line that begins or ends an edit."""


@dataclass(frozen=True)
class LookReply:
    """One thing that a coder wants to look up before it writes: a tool and its argument."""

    tool: str
    argument: str


@dataclass(frozen=True)
class DraftReply:
    """A coder's reply. `files` are blocks with a path, in the order in which they were written."""

    note: str
    exhausted: str = ""                    # why there is nothing new to offer
    afresh: bool = False                   # edits start from the verified program, not from the last draft
    files: tuple[Block, ...] = ()
    looks: tuple[LookReply, ...] = ()

    @classmethod
    def from_text(cls, text: str, *, begun: bool = False) -> Self:
        """Parses a coder's text. Raises `Malformed` for one without a file, a look or an `exhausted` line, unless files were
        written before (`begun`): it hands those in."""
        text = without_thinking(text.replace("\r\n", "\n").replace("\r", "\n"))
        if not text:
            raise Malformed("the reply is empty")
        blocks, outside = split_blocks(text)
        looks = tuple(look for block in blocks if block.name == LOOK for look in _parse_looks(block.body))
        files = tuple(block for block in blocks if block.name not in ("", LOOK))
        if MARKER.search("\n".join([outside, *(block.body for block in blocks if not block.name)])):
            raise Malformed("an edit stands outside of the fenced block of a file: write it in a block with the file's path")
        match = EXHAUSTED.search(outside)
        afresh = _starts_afresh(outside)
        note = BASE.sub(_without_base, outside if files or looks else EXHAUSTED.sub("", outside))
        note = " ".join(line for line in note.splitlines() if line.strip() and not PATH.fullmatch(line.strip(" *`#:")))
        exhausted = match["why"].strip(" \t*`") if match and not files and not looks else ""
        if not files and not looks and not exhausted and not begun:
            raise Malformed("there is no fenced block with a file in the reply, and no line `exhausted: why`")
        return cls(note=" ".join(note.split()), exhausted=exhausted, afresh=afresh, files=files, looks=looks)


def _starts_afresh(outside: str) -> bool:
    """Whether a line says `base: program`. Raises `Malformed` for a line that names a base in other words, or two bases."""
    named = [what for match in BASE.finditer(outside) if NAMES_BASE.search(what := match["what"].strip(" \t*`.\"'"))]
    afresh = {bool(PROGRAM.fullmatch(what)) for what in named if PROGRAM.fullmatch(what) or LAST.fullmatch(what)}
    unclear = [what for what in named if not PROGRAM.fullmatch(what) and not LAST.fullmatch(what)]
    if unclear or len(afresh) > 1:
        said = unclear[0] if unclear else "both"
        raise Malformed(
            f"it is not clear from which files the draft starts (base: {said[:80]}): the line `base: program`, with nothing "
            "else in it, starts from the verified program; without it the blocks go on from your last draft"
        )
    return True in afresh


def _without_base(match: re.Match[str]) -> str:
    """Returns "" for a line that names the base, else the line: it belongs to the note."""
    return "" if NAMES_BASE.search(match["what"]) else match[0]


def _parse_looks(body: str) -> list[LookReply]:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    return [LookReply(tool=tool, argument=argument.strip()) for tool, _, argument in (line.partition(" ") for line in lines)]
