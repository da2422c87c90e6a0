"""Documents on this machine as chunks: HTML, PDF, Markdown, reStructuredText and plain text.

It reads one file at a time, follows no link, runs nothing, and fetches nothing (`rag/download.py` does). HTML needs lxml and
PDF needs pypdf, both in the extra `documents`; text needs neither. Where to look next: `rag/documents/web_page.py`,
`rag/documents/outline.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.documents import markdown, pdf, restructured, web_page
from stitchcuda.rag.documents.decoding import Unreadable, text_of, why
from stitchcuda.rag.documents.outline import KEPT, Outline

__all__ = ["SUFFIXES", "Unreadable", "documents_in", "read_document"]

WEB_PAGES = {".html", ".htm", ".xhtml"}
MARKDOWN = {".md", ".markdown"}
SUFFIXES = WEB_PAGES | MARKDOWN | {".pdf", ".rst", ".txt"}
LARGEST_PAGE = 50_000_000                  # bytes of HTML that are read
LARGEST_TEXT = KEPT                        # bytes of other text
MOST_FILES = 20_000                        # of a folder


def read_document(path: Path, *, library: str, version: str, source: str) -> tuple[list[Chunk], list[str]]:
    """Sections of one document as chunks of kind "section", and notes: sentences on what of it could not be read.

    `source` is what citations show: HTML appends `#anchor`, PDF ` p. N`. Raises Unreadable, and nothing else, when there is
    nothing to be had of the file; its message says why and what to do, and goes behind the file's name.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise Unreadable(f"is no kind of document that is read: convert it to one of {', '.join(sorted(SUFFIXES))}")
    try:
        outline, notes = _told(path, suffix)
    except ImportError as error:
        kind = "PDF" if suffix == ".pdf" else "HTML"
        raise Unreadable(f"needs a reader of {kind}: run pip install 'stitchcuda[documents]'") from error
    if outline.full:
        notes.append(f"{path} has more than {KEPT // 1_000_000} million characters: the rest is left out; split it to have all")
    chunks = list(outline.chunks(library=library, version=version, source=source))
    if not chunks:
        raise Unreadable("has no text to find: if a script writes this page, save it from a browser, else leave it out")
    return chunks, notes


def documents_in(folder: Path) -> tuple[list[Path], list[str]]:
    """Documents below a folder, sorted, and notes on what could not be looked into; without hidden ones and linked folders.

    Where `folder` is a document itself, it is the only one. At most MOST_FILES.
    """
    if folder.is_file():
        return [folder], []
    notes: list[str] = []
    found: list[Path] = []

    def cannot(error: OSError) -> None:
        notes.append(f"{error.filename or folder} cannot be looked into ({why(error)}): check its name and its permissions")

    for place, folders, files in os.walk(folder, onerror=cannot):
        # A link to a folder is not followed, so a loop of them cannot be.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in files if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES]
        if len(found) > MOST_FILES:
            notes.append(f"{folder} has more than {MOST_FILES} documents: the rest was left out; name smaller folders")
            break
    return sorted(found)[:MOST_FILES], notes


def _told(path: Path, suffix: str) -> tuple[Outline, list[str]]:
    if suffix == ".pdf":
        return pdf.tell(path)
    page = suffix in WEB_PAGES
    text, notes = text_of(path, LARGEST_PAGE if page else LARGEST_TEXT, declares=page)
    if not text.strip():
        raise Unreadable("is empty: fetch or save it again, or leave it out")
    name = path.stem.replace("_", " ")
    if page:
        outline, whole = web_page.tell(text, name)
        return outline, notes if whole else [*notes, f"{path} nests too deep: what comes after was left out; save it anew"]
    if suffix == ".rst":
        return restructured.tell(text, name), notes
    return markdown.tell(text, name, plain=suffix == ".txt"), notes
