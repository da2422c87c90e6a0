"""From a document's headings, paragraphs and code, in order, to the chunks that an index holds. Knows no file format.

A reader of a format tells an `Outline` what comes next; `chunks()` then splits what is long at paragraphs, puts what is tiny
to what follows, and never splits code. Where to look next: `rag/documents/web_page.py` (the richest reader),
`rag/documents/symbols.py` (names).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from stitchcuda.rag.chunk import Chunk

LONG = 1_800                               # characters of a chunk, code aside
TINY = 80                                  # characters of a section that does not stand alone
DEEPEST = 30                               # headings around a section; no manual has as many
KEPT = 20_000_000                          # characters of a document
BRIEF = 160                                # characters of a brief

Form = Literal["text", "row", "code"]
_SECTION_NUMBER = re.compile(r"^(?:\d+(?:\.\d+)*\.|\d+(?:\.\d+)+|[A-Z](?:\.\d+)+\.?)\s+(?=\S)")
_SENTENCE_END = re.compile(r"[.!?](?=\s+[^a-z\s])")
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Heading:
    """Where a section begins. `level` counts from 1; two headings of the same words are two headings."""

    level: int
    title: str
    anchor: str                            # what a citation's source ends with, such as "#id" or " p. 3"
    names: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class Piece:
    form: Form
    text: str


@dataclass
class Section:
    path: tuple[Heading, ...]
    anchor: str
    names: list[str] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    brief: str = ""                        # of its own words, not of what was merged into it

    @property
    def tiny(self) -> bool:
        return sum(len(piece.text) for piece in self.pieces) < TINY and not any(piece.form == "code" for piece in self.pieces)

    @property
    def parent(self) -> tuple[Heading, ...]:
        return self.path[:-1]


class Outline:
    """A document while it is read. `full` says that no more is kept, and that a reader may stop."""

    def __init__(self, title: str) -> None:
        self.title = visible(title)
        self.full = False
        self._kept = 0
        self._path: list[Heading] = []
        self._sections: list[Section] = [Section((), "")]
        self._now = self._sections[0]
        self._latest = {0: self._now}      # by the number of its heading

    def heading(self, level: int, title: str, anchor: str = "", names: tuple[str, ...] = ()) -> None:
        """Begins a section; those at this level or deeper end. `anchor` as in Heading."""
        title = _SECTION_NUMBER.sub("", " ".join(visible(title).split()))[:300]
        self._cut(level)
        del self._path[DEEPEST - 1 :]
        if title:
            self._path.append(Heading(level, title, anchor, names, len(self._sections)))
            self._begin(Section(tuple(self._path), anchor, list(names)))

    def close(self, level: int) -> None:
        """Ends the sections at `level` or deeper: what follows goes on with the one around them."""
        if self._cut(level):
            self._now = self._latest[self._path[-1].number if self._path else 0]

    def turn(self, anchor: str) -> None:
        """What follows is in the same section, cited by `anchor`: a page was turned."""
        self._begin(Section(tuple(self._path), anchor))

    def named(self, *names: str) -> None:
        """The section of now also declares these symbols."""
        self._now.names += [name for name in names if name not in self._now.names]

    @property
    def empty(self) -> bool:
        """Nothing but declarations is in the section of now."""
        return not any(piece.form != "code" for piece in self._now.pieces)

    def text(self, text: str, *, row: bool = False) -> None:
        """A paragraph, or a row of a table or list."""
        self._keep("row" if row else "text", visible(text).strip())

    def code(self, text: str) -> None:
        """Code or a declaration: it stays whole."""
        self._keep("code", visible(text).expandtabs(4).strip("\n").rstrip())

    def chunks(self, *, library: str, version: str, source: str) -> Iterator[Chunk]:
        """All that was told, as chunks in order."""
        parts: dict[tuple[int, ...], int] = {}
        for section in _with_tiny_ones_merged(self._sections):
            title = self._title_of(section)
            for pieces in _parts(section.pieces or [Piece("text", section.path[-1].title)]):
                where = tuple(heading.number for heading in section.path)
                number = parts[where] = parts.get(where, 0) + 1
                yield Chunk(
                    library=library,
                    version=version,
                    source=source + section.anchor,
                    kind="section",
                    title=title if number == 1 else f"{title} ({number})",
                    text=_joined(pieces),
                    names=tuple(section.names) or (section.path[-1].names if section.path else ()),
                    brief=(section.brief if number == 1 else "") or _brief(pieces),
                )

    def _begin(self, section: Section) -> None:
        self._sections.append(section)
        self._now = self._latest[section.path[-1].number if section.path else 0] = section

    def _title_of(self, section: Section) -> str:
        titles = [heading.title for heading in section.path]
        if titles and titles[0].casefold() == self.title.casefold():
            titles = titles[1:]
        return " › ".join([title for title in (self.title, *titles[-3:]) if title])

    def _cut(self, level: int) -> bool:
        before = len(self._path)
        while self._path and self._path[-1].level >= level:
            self._path.pop()
        return len(self._path) < before

    def _keep(self, form: Form, text: str) -> None:
        if not text.strip() or self.full:
            return
        if self._kept + len(text) > KEPT:
            self.full = True
            return
        self._kept += len(text)
        self._now.pieces.append(Piece(form, text))


def visible(text: str) -> str:
    """`text` without characters that cannot be seen or stored, lines ended by \\n."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " "))


def first_sentence(text: str) -> str:
    """The first sentence, at most BRIEF characters."""
    line = " ".join(text[:1_000].split())
    end = _SENTENCE_END.search(line)
    line = line[: end.end()] if end else line
    return line if len(line) <= BRIEF else line[: BRIEF - 1].rsplit(" ", 1)[0].rstrip() + "…"


def _brief(pieces: list[Piece]) -> str:
    """The first sentence, of prose if there is any, not of a label."""
    said = [piece for piece in pieces if piece.form != "code"]
    said.sort(key=lambda piece: (piece.text.endswith(":"), piece.form == "row"))
    return first_sentence(said[0].text) if said else ""


def _with_tiny_ones_merged(sections: list[Section]) -> Iterator[Section]:
    """What is tiny goes to what follows under the same parent, with its heading; a symbol's section stays its own."""
    filled = [section for section in sections if section.pieces or (section.path and section.names)]
    for section, after in zip(filled, [*filled[1:], None], strict=False):
        depth = len(section.path)
        if after is None or not section.tiny or len(after.path) < depth or after.path[: max(depth - 1, 0)] != section.parent:
            yield section
            continue
        inside = after.path[:depth] == section.path
        if section.names and not inside:
            yield section
            continue
        head = [] if inside or not section.path else [Piece("text", section.path[-1].title)]
        after.brief = _brief(after.pieces)
        after.pieces = [*head, *section.pieces, *after.pieces]
        after.names += [name for name in section.names if name not in after.names]


def _parts(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Pieces in parts of about LONG characters; only code makes a longer one."""
    part: list[Piece] = []
    size = 0
    for piece in pieces:
        for small in [piece] if piece.form == "code" else [Piece(piece.form, text) for text in _broken(piece.text)]:
            if part and size + len(small.text) > LONG:
                yield part
                part, size = [], 0
            part.append(small)
            size += len(small.text) + 2
    if part:
        yield part


def _broken(text: str) -> Iterator[str]:
    """A paragraph in pieces of at most LONG characters, broken at a line, a sentence, a word, whichever is there."""
    start = 0
    while len(text) - start > LONG:
        window = text[start : start + LONG]
        ends = [found.end() for found in _SENTENCE_END.finditer(window, LONG // 2)]
        end = max(window.rfind("\n", LONG // 2), ends[-1] if ends else 0) or window.rfind(" ", LONG // 2)
        end = end if end > 0 else LONG
        yield window[:end].strip()
        start += end
    if text[start:].strip():
        yield text[start:].strip()


def _joined(pieces: list[Piece]) -> str:
    text = ""
    before: Form = "text"
    for piece in pieces:
        between = "" if not text else "\n" if piece.form == before == "row" else "\n\n"
        fence = "~~~~" if "```" in piece.text else "```"
        text += between + (f"{fence}\n{piece.text}\n{fence}" if piece.form == "code" else piece.text)
        before = piece.form
    return text
