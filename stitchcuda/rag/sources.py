"""What there is to read on this machine: headers, documents in folders, downloaded pages, the user's notes and our playbook.

It lists files and hashes them; nobody has parsed anything yet. Where to look next: `rag/listing.py` (the user's list),
`rag/headers/places.py` (which headers), `rag/building.py` (what becomes of them).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from stitchcuda.rag import documents, index_store, listing, playbook_pages
from stitchcuda.rag.copies import index_of
from stitchcuda.rag.headers import places
from stitchcuda.tools.device.toolkit import find_toolkit, missing

Kind = Literal["headers", "document", "playbook"]
DOWNLOADED = "pages"                       # folder of downloaded pages, below `shelf.home()`


class File(NamedTuple):
    """One file to read."""

    path: Path
    name: str                              # as citations show it: header, URL, path below the listed folder
    library: str = ""
    version: str = ""


class Source(NamedTuple):
    """Files that are read together."""

    name: str                              # such as "CUDA headers", "playbook", a folder
    kind: Kind
    files: tuple[File, ...]
    where: str
    notes: tuple[str, ...] = ()            # of files that cannot be listed


class Sources(NamedTuple):
    found: tuple[Source, ...]
    missing: dict[str, str]                # by what is not here, one sentence with the remedy

    @property
    def place(self) -> Path:
        """Where their index lies: one for each environment, told by its folders of headers."""
        return index_store.place_of([source.where for source in self.found if source.kind == "headers"])


def place_here() -> Path:
    """The place of this machine's index, also where the user's list cannot be read."""
    return Sources(tuple(_headers({})), {}).place


def discover() -> Sources:
    """Looks at the toolkit, Python's packages and the user's list. Raises `BadInput` for a list that cannot be read."""
    lacking: dict[str, str] = {}
    found = _headers(lacking)
    listed = listing.read()
    for folder in listed.folders:
        found.append(_folder(folder))
    pages = _downloaded(index_store.home() / DOWNLOADED)
    if pages:
        found.append(Source("downloaded pages", "document", pages, str(index_store.home() / DOWNLOADED)))
    elif listed.pages:
        count = len(listed.pages)
        lacking["manuals"] = f"{count} of NVIDIA's are listed, none is downloaded (`stitchcuda docs build --download`)"
    texts = playbook_pages.pages()
    files = tuple(File(Path(f"{slug}.md"), f"playbook:{slug}") for slug in texts)
    found.append(Source("playbook", "playbook", files, "package"))
    return Sources(tuple(found), lacking)


def state_of(sources: Iterable[Source], notes: list[str]) -> str:
    """A digest of all that is to be read, by content. Files that cannot be read are noted and left out."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.kind}\0{source.name}\0".encode())
        for name, content in contents(source, notes):
            digest.update(f"{name}\0{content}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def contents(source: Source, notes: list[str]) -> Iterator[tuple[str, str]]:
    """(name with library and version, SHA-256 of its content) of each file."""
    if source.kind == "playbook":
        for slug, text in playbook_pages.pages().items():
            yield slug, hashlib.sha256(text.encode()).hexdigest()
        return
    for file in source.files:
        try:
            yield f"{file.name}|{file.library}|{file.version}", index_store.digest_of(file.path)
        except OSError as error:
            notes.append(f"{file.path} cannot be read ({error.strerror or error})")


def _headers(lacking: dict[str, str]) -> list[Source]:
    """The headers of the toolkit and its libraries; what is missing is added to `lacking`."""
    kit = find_toolkit()
    if kit is None:
        lacking["CUDA"] = missing()
        return []
    headers = places.headers(kit)
    lacking |= headers.missing
    folders = sorted({str(path.parent) for name, path in headers.files.items() if "/" not in name})
    files = tuple(File(path, name) for name, path in headers.files.items())
    return [Source("CUDA headers", "headers", files, " ".join(folders))]


def _folder(folder: listing.Folder) -> Source:
    root = Path(folder.path).expanduser()
    if not root.exists():
        return Source(str(folder.path), "document", (), str(root), (f"{root}, which is listed, is not there",))
    paths, notes = documents.documents_in(root)
    names = [_printable(str(path.relative_to(root) if path != root else path.name)) for path in paths]
    files = tuple(File(path, name, folder.library, folder.version) for path, name in zip(paths, names, strict=True))
    return Source(str(folder.path), "document", files, str(root), tuple(notes))


def _printable(name: str) -> str:
    """A file's name as text, whatever its bytes are."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _downloaded(folder: Path) -> tuple[File, ...]:
    return tuple(
        File(folder / name, str(page["url"]), str(page.get("library", "")), str(page.get("version", "")))
        for name, page in sorted(index_of(folder).items())
        if "url" in page
    )
