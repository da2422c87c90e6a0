"""Loads a file, a folder or a URL as LangChain documents, by langchain-community's loaders (extra `documents`).

Nothing else in `rag/` reads a user's files or touches a network, and this does so only for `stitchcuda docs add`.
Where to look next: `rag/additions.py` (what becomes of the documents), `rag/sections.py` (how they are split).
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langchain_core.documents import Document

from stitchcuda import remedies
from stitchcuda.errors import BadInput, Unavailable

TEXT, PDF, PAGE = "TextLoader", "PyPDFium2Loader", "RecursiveUrlLoader"
BY_SUFFIX = dict.fromkeys((".htm", ".html", ".markdown", ".md", ".rst", ".txt", ".xhtml"), TEXT) | {".pdf": PDF}
"""HTML is loaded as it is: BSHTMLLoader drops headings and anchors. PyPDFLoader stops at the first page that is damaged."""
_OPTIONS: dict[str, dict[str, Any]] = {
    TEXT: {"encoding": "utf-8-sig"},
    PDF: {},
    PAGE: {"max_depth": 1, "timeout": 60, "check_response_status": True, "continue_on_failure": False},
}


def is_url(source: str) -> bool:
    return bool(re.match(r"https?://", source))


def load(source: str, loader: str = "") -> tuple[list[Document], list[str]]:
    """Loads `source` (a file, a folder or a URL). Returns its documents, and a sentence for each file that cannot be read.

    `loader`: the name of a class of `langchain_community.document_loaders` that is given `source`; "": chosen by suffix, and a
    URL is one page. Raises `BadInput` if nothing can be read, `Unavailable` if a package for it is missing.
    """
    if loader:
        return _loaded(loader, source, {}), []
    if is_url(source):
        name = PDF if urlsplit(source).path.lower().endswith(".pdf") else PAGE
        documents = _loaded(name, source, _OPTIONS[name])
        if name == PAGE and any(document.page_content.startswith("%PDF-") for document in documents):
            raise BadInput(f"{source} is a PDF: add it with --loader {PDF}")
        return documents, []
    if Path(source).is_dir():
        return _folder(Path(source))
    return _file(Path(source)), []


def _file(path: Path) -> list[Document]:
    if not path.is_file():
        raise BadInput(f"{path} is {'no regular file' if path.exists() else 'not here'}: name a file, a folder or a URL")
    name = BY_SUFFIX.get(path.suffix.lower())
    if name is None:
        raise BadInput(
            f"no loader is known for {path.name}: name one of langchain_community.document_loaders with --loader, or convert "
            f"it to one of {', '.join(BY_SUFFIX)}"
        )
    return _loaded(name, str(path), _OPTIONS[name])


def _folder(folder: Path) -> tuple[list[Document], list[str]]:
    """Loads all files with a known suffix below a folder, except hidden files and linked folders."""
    documents: list[Document] = []
    notes: list[str] = []

    def unlisted(error: OSError) -> None:
        notes.append(f"{error.filename} cannot be looked into ({error.strerror})")

    for place, folders, files in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() in BY_SUFFIX:
                try:
                    documents += _file(path)
                except BadInput as error:
                    notes.append(str(error))
    if not documents:
        raise BadInput("; ".join(notes) or f"there is nothing to read below {folder}: it reads {', '.join(BY_SUFFIX)}")
    return documents, notes


def _loaded(name: str, source: str, options: dict[str, Any]) -> list[Document]:
    try:
        from langchain_community import document_loaders
    except ImportError as error:
        raise Unavailable(f"reading {source} needs langchain-community: {remedies.extra('documents')}") from error
    if name not in document_loaders.__all__:
        near = ", ".join(difflib.get_close_matches(name, document_loaders.__all__, 3, 0.5)) or "none"
        raise BadInput(f"langchain_community.document_loaders has no {name!r}; nearest: {near}")
    try:
        return list(getattr(document_loaders, name)(source, **options).load())
    except ImportError as error:
        raise Unavailable(
            f"{name} needs a package that is not installed: install it, or name another --loader ({_line(error)})"
        ) from error
    except Exception as error:             # loaders raise whatever their libraries raise
        if "://" in source:
            why = _line(_first_cause(error))
            raise BadInput(f"{source} cannot be fetched ({why}): check the address and the network") from error
        raise BadInput(
            f"{source} cannot be read by {name} ({_line(error.__cause__ or error)}): repair it, or name another --loader"
        ) from error


def _first_cause(error: BaseException) -> BaseException:
    while earlier := error.__cause__ or error.__context__:
        error = earlier
    return error


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
