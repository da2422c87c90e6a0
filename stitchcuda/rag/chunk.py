"""Defines the record of one piece of documentation: what the index holds, a search returns and an engineer cites.

Where to look next: `rag/sources.py` (where pieces come from), `rag/index.py` (how they are found), `rag/excerpts.py` (how they
are shown).
"""

from __future__ import annotations

from typing import Literal

from stitchcuda.state import Record

Kind = Literal["function", "type", "enum", "value", "field", "variable", "macro", "section", "technique"]
"""The first seven are declarations of headers, `section` is a part of a document or note, `technique` one of the playbook."""

DECLARED: tuple[Kind, ...] = ("function", "type", "enum", "value", "field", "variable", "macro")


class Chunk(Record):
    """One declaration with all that is said of it, or one section of a document with its code."""

    library: str                           # such as "cuBLASLt"; what `--library` filters by
    version: str                           # of that library as its headers or the user's list say it; "" unknown
    source: str                            # header as an include names it, URL with anchor, or file name
    kind: Kind
    title: str                             # full name of a symbol; headings joined with " › "
    text: str                              # declarations or prose, code whole
    names: tuple[str, ...] = ()            # found exactly under these, the first is the main one
    brief: str = ""                        # one line
    inside: str = ""                       # of a value: its enum, of a member: its type
    comment: str = ""                      # of a declaration: what its header says of it

    @property
    def whole(self) -> str:
        """The declarations with their comment, or the prose."""
        return "\n".join(part for part in (self.text, self.comment) if part)

    @property
    def citation(self) -> str:
        """How reviews and reports name it: `cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)`."""
        return f"{self.title} ({self.library}{f' {self.version}' if self.version else ''}, {self.source})"
