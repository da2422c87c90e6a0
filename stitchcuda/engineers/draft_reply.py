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
AFRESH = re.compile(r"^[ \t*`]*base:[ \t]*program[ \t*`.]*$", re.MULTILINE | re.IGNORECASE)
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
        note = AFRESH.sub("", outside if files or looks else EXHAUSTED.sub("", outside))
        note = " ".join(line for line in note.splitlines() if line.strip() and not PATH.fullmatch(line.strip(" *`#:")))
        exhausted = match["why"].strip(" \t*`") if match and not files and not looks else ""
        if not files and not looks and not exhausted and not begun:
            raise Malformed("there is no fenced block with a file in the reply, and no line `exhausted: why`")
        afresh = bool(AFRESH.search(outside))
        return cls(note=" ".join(note.split()), exhausted=exhausted, afresh=afresh, files=files, looks=looks)


def _parse_looks(body: str) -> list[LookReply]:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    return [LookReply(tool=tool, argument=argument.strip()) for tool, _, argument in (line.partition(" ") for line in lines)]
