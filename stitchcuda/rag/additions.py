"""Adds a user's LangChain documents to the documentation index, and removes them again.

Documents are split, kept in one file for each source (`rag/added_files.py`), and the index is built anew with them.
Where to look next: `rag/loaders.py` (from paths and URLs to documents), `rag/sections.py` (from documents to chunks),
`rag/building.py` (the index).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from stitchcuda import remedies
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import added_files
from stitchcuda.rag.added_files import Addition
from stitchcuda.rag.chunk import Chunk

if TYPE_CHECKING:
    from stitchcuda.rag.building import BuildProgress, Built


def add_documents(
    documents: Iterable[Document],
    *,
    source: str = "",
    library: str = "notes",
    version: str = "",
    notes: Sequence[str] = (),
    tell: Callable[[BuildProgress], None] = lambda progress: None,
) -> Built:
    """Adds LangChain documents to the index, in place of earlier ones of the same source, and stores them for later builds.

    `source`: the name under which all are listed, replaced and removed; "": the `source` in each one's metadata. `library` and
    `version` are cited and can be searched by; `notes`: what could not be read. Names and words are indexed, and vectors if the
    index has some. Raises `BadInput` for documents without a source or text, `Unavailable` where nothing can be written.
    """
    groups: dict[str, list[Document]] = {}
    for number, document in enumerate(documents, 1):
        own = document.metadata.get("source") or source
        if not own:
            raise BadInput(f"document {number} has no 'source' in its metadata, which citations show: set it, or give source=")
        metadata = {name: _printable(value) if isinstance(value, str) else value for name, value in document.metadata.items()}
        metadata["source"] = _printable(str(own))
        readable = Document(_printable(document.page_content), metadata=metadata)
        groups.setdefault(_printable(source or str(own)), []).append(readable)
    if not groups:
        raise BadInput(f"there are no documents{f' in {source}' if source else ''}: nothing was added")
    ready = [_split(name, group, library, version, notes) for name, group in groups.items()]
    for addition, found in ready:
        added_files.write(addition, found)
    return _indexed(tell)


def remove(source: str, tell: Callable[[BuildProgress], None] = lambda progress: None) -> Built:
    """Removes the documents that were added as `source`. Raises `BadInput` if there are none."""
    there = {addition.source for addition, _ in added_files.list_additions({})}
    found = next((name for name in (source, os.path.abspath(source)) if name in there), None)
    if found is None:
        raise BadInput(f"{source} was not added; these were: {', '.join(sorted(there)) or 'none'}")
    added_files.delete(found)
    return _indexed(tell)


def _split(
    source: str, documents: list[Document], library: str, version: str, notes: Sequence[str]
) -> tuple[Addition, list[Chunk]]:
    from stitchcuda.rag import sections

    unread = list(notes)
    try:
        found = sections.chunks(documents, unread, library=library, version=version, within=source)
    except ImportError as error:
        raise Unavailable(f"splitting {source} needs LangChain's splitters: {remedies.extra('documents')}") from error
    if not found:
        why = "; ".join(unread) or f"{source} has no text to find: if it is pictures or made by a script, save its text first"
        raise BadInput(why)
    files = len({document.metadata["source"] for document in documents})
    return Addition(source=source, library=library, version=version, files=files, notes=tuple(unread)), found


def _indexed(tell: Callable[[BuildProgress], None]) -> Built:
    from stitchcuda.rag import building, lookup

    built = building.build(model=building.known_model(), tell=tell)
    assert built is not None               # it waits for other builds
    lookup.forget()                        # this process may have the old index open
    return built


def _printable(text: str) -> str:
    """Replaces lone surrogates, which names of files and pages of PDFs can have and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
