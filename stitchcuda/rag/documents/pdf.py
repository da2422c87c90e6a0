"""A PDF, told to an outline page by page: titles from its bookmarks, citations with the page. Draws and runs nothing.

A page that cannot be read is a note, and the pages after it are read all the same; that, and no labels computed anew for each
page, is why pypdf is used directly and not through langchain-community's PyPDFLoader. Where to look next:
`rag/documents/outline.py`.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stitchcuda.rag.documents import symbols
from stitchcuda.rag.documents.decoding import Unreadable, opened, why
from stitchcuda.rag.documents.outline import KEPT, Outline

LARGEST = 400_000_000                      # bytes of a file
SEARCHED = 50_000_000                      # bytes of a file without a table at its end, which pypdf searches from end to end
PAGES = 20_000
SECONDS = 600.0                            # for one file, looked at between pages
TOLD = 5                                   # pages whose failure gets a sentence of its own
_END = 1 << 16                             # bytes at the end, where the table of a PDF's objects is
_EDGE = 2                                  # lines at the top and at the bottom that may be the same on every page

Bookmark = tuple[int, int, str]            # page from 0, level from 1, title


def tell(path: Path) -> tuple[Outline, list[str]]:
    """The outline of a file, and notes. Raises Unreadable, and ImportError without pypdf."""
    import pypdf

    # What pypdf says of a damaged file on stderr is said by notes here.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with opened(path) as file:
        size = file.seek(0, 2)
        if size > LARGEST:
            raise Unreadable(f"has more than {LARGEST // 1_000_000} MB: split it, or leave it out")
        file.seek(0)
        if b"%PDF-" not in file.read(1_024):
            raise Unreadable("is no PDF, whatever its name says: fetch or export it again, or leave it out")
        file.seek(max(size - _END, 0))
        if size > SEARCHED and b"startxref" not in file.read(_END):
            raise Unreadable("is cut short, or something was written behind its end: fetch or export it again")
        file.seek(0)
        notes: list[str] = []
        reader = _reader(pypdf, path, file)
        pages = list(_pages(reader, path, notes))
        outline = Outline(_title(reader) or path.stem.replace("_", " "))
        _tell_pages(outline, pages, _bookmarks(reader, path, notes))
    if not pages:
        raise Unreadable("has no text: if its pages are pictures, recognise their text first")
    return outline, notes


def _reader(pypdf: Any, path: Path, file: BinaryIO) -> Any:
    try:
        reader = pypdf.PdfReader(file)
        locked = reader.is_encrypted and not reader.decrypt("")
        if not locked and len(reader.pages) < 1:
            raise Unreadable("has no pages: fetch or export it again")
    except Unreadable:
        raise
    except Exception as error:             # pypdf raises whatever a damaged file leads it to
        raise Unreadable(f"is damaged or cannot be opened ({why(error)}): fetch or export it again") from error
    if locked:
        raise Unreadable("is encrypted: save a copy without a password")
    return reader


def _pages(reader: Any, path: Path, notes: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Number from 0 and lines of the pages that have text, within the limits."""
    until = time.monotonic() + SECONDS
    kept, failed = 0, 0
    count = len(reader.pages)
    for number in range(min(count, PAGES)):
        if kept > KEPT or time.monotonic() > until:
            notes.append(f"{path} was read up to page {number} of {count}: more is beyond the limits; split it to have all")
            break
        try:
            text = reader.pages[number].extract_text()
        except Exception as error:         # as above; the next page may be sound
            failed += 1
            if failed <= TOLD:
                notes.append(f"{path} p. {number + 1} cannot be read ({why(error)}): it was left out")
            continue
        kept += len(text)
        lines = [line.rstrip() for line in text.splitlines()]
        if any(lines):
            yield number, lines
    if failed > TOLD:
        notes.append(f"{path} has {failed - TOLD} more pages that cannot be read: they were left out")
    if count > PAGES:
        notes.append(f"{path} has {count} pages, {PAGES} were looked at: split it to have all")


def _title(reader: Any) -> str:
    try:
        return str(reader.metadata.title or "").strip()[:200] if reader.metadata else ""
    except Exception:                      # a title is a comfort: the name of the file serves as well
        return ""


def _bookmarks(reader: Any, path: Path, notes: list[str]) -> list[Bookmark]:
    """Bookmarks in the order of pages, at most 50,000."""
    found: list[Bookmark] = []
    try:
        todo: list[tuple[int, Any]] = [(1, entry) for entry in reversed(reader.outline)]
        while todo and len(found) < 50_000:
            level, entry = todo.pop()
            if isinstance(entry, list):
                todo += [(level + 1, inner) for inner in reversed(entry)]
                continue
            page = reader.get_destination_page_number(entry)
            if page is not None and page >= 0 and entry.title:
                found.append((page, level, str(entry.title)))
    except Exception as error:             # as above
        notes.append(f"{path} has bookmarks that cannot be read ({why(error)}): some of its titles are missing")
    return sorted(found, key=lambda bookmark: bookmark[0])


def _tell_pages(outline: Outline, pages: list[tuple[int, list[str]]], bookmarks: list[Bookmark]) -> None:
    """Paragraphs under their bookmarks: where a bookmark's words are a line, the section begins there, else with the page."""
    repeated = _repeated(pages)
    waiting = bookmarks[::-1]
    for number, lines in pages:
        anchor = f" p. {number + 1}"
        outline.turn(anchor)
        here: list[Bookmark] = []
        while waiting and waiting[-1][0] <= number:
            here.append(waiting.pop())
        body = [line for at, line in enumerate(lines) if not (_at_edge(at, lines) and _pattern(line) in repeated)]
        words = [_words(line) for line in body]
        paragraph: list[str] = []
        done = 0
        for page, level, title in here:
            wanted = _words(title)
            at = next((at for at in range(done, len(body)) if page == number and words[at] and words[at] == wanted), None)
            if at is not None:
                _tell_lines(outline, paragraph + body[done:at])
                paragraph, done = [], at + 1
            outline.heading(level, title, anchor, symbols.in_heading(title))
        _tell_lines(outline, paragraph + body[done:])
        if outline.full:
            return


def _tell_lines(outline: Outline, lines: list[str]) -> None:
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        outline.text(paragraph)


def _words(line: str) -> str:
    """A line to compare with a bookmark: no section number, no spaces, which pages and bookmarks write differently."""
    return re.sub(r"\W+", "", re.sub(r"^[\d.\s]+", "", line)).casefold()


def _at_edge(at: int, lines: list[str]) -> bool:
    return at < _EDGE or at >= len(lines) - _EDGE


def _pattern(line: str) -> str:
    return re.sub(r"\d+", "#", " ".join(line.split()))


def _repeated(pages: list[tuple[int, list[str]]]) -> set[str]:
    """Running heads and feet: lines at the edge of a third of the pages, numbers aside."""
    seen: Counter[str] = Counter()
    for _, lines in pages:
        seen.update({_pattern(line) for at, line in enumerate(lines) if line.strip() and _at_edge(at, lines)})
    return {pattern for pattern, count in seen.items() if count >= max(4, len(pages) / 3)}
