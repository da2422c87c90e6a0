"""Lists what there is to index on this machine: headers, the user's documents, and our playbook.

It lists files and hashes them; it parses nothing.
Where to look next: `rag/added_files.py` (added documents), `rag/headers/places.py` (which headers), `rag/building.py` (parses).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from stitchcuda.rag import added_files, index_store, playbook_pages
from stitchcuda.rag.headers import places
from stitchcuda.state import Digest
from stitchcuda.tools.device.toolkit import find_toolkit, missing

Kind = Literal["headers", "document", "playbook"]


class File(NamedTuple):
    """One file to read."""

    path: Path
    name: str                              # as in citations: of a header, a page of the playbook, or an added source
    library: str = ""
    version: str = ""


class Source(NamedTuple):
    """Files that are read together: all headers, one added source, or the playbook."""

    name: str                              # such as "CUDA headers", "playbook", a folder
    kind: Kind
    files: tuple[File, ...]
    where: str
    notes: tuple[str, ...] = ()            # what could not be read when it was added
    origins: int = 0                       # number of files that an added source had


class Sources(NamedTuple):
    found: tuple[Source, ...]
    missing: dict[str, str]                # by what is not here, one sentence with the remedy

    @property
    def place(self) -> Path:
        """The folder of their index: one for each environment, by its folders of headers."""
        return index_store.place_of([source.where for source in self.found if source.kind == "headers"])


def place_here() -> Path:
    """Returns the folder of this machine's index."""
    return Sources(tuple(_headers({})), {}).place


def discover() -> Sources:
    """Lists the sources: headers of the toolkit and of Python's packages, added documents, the playbook."""
    lacking: dict[str, str] = {}
    found = _headers(lacking)
    for added, path in added_files.list_additions(lacking):
        file = File(path, added.source, added.library, added.version)
        found.append(Source(added.source, "document", (file,), added.source, added.notes, added.files))
    texts = playbook_pages.pages()
    files = tuple(File(Path(f"{slug}.md"), f"playbook:{slug}") for slug in texts)
    found.append(Source("playbook", "playbook", files, "package"))
    return Sources(tuple(found), lacking)


def digests_of(sources: Iterable[Source]) -> dict[Path, Digest]:
    """Returns the SHA-256 of each file's content. Files that cannot be read are left out; the parser reports them."""
    found: dict[Path, Digest] = {}
    for source in sources:
        if source.kind == "playbook":
            for file, text in zip(source.files, playbook_pages.pages().values(), strict=True):
                found[file.path] = hashlib.sha256(text.encode()).hexdigest()
            continue
        for file in source.files:
            with contextlib.suppress(OSError):
                found[file.path] = index_store.digest_of(file.path)
    return found


def state_of(sources: Iterable[Source], digests: Mapping[Path, Digest]) -> str:
    """Returns one digest of these sources: of each file's name, library, version and content."""
    whole = hashlib.sha256()
    for source in sources:
        whole.update(f"{source.kind}\0{source.name}\0".encode())
        for file in source.files:
            line = f"{file.name}|{file.library}|{file.version}\0{digests.get(file.path, '')}\0"
            whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _headers(lacking: dict[str, str]) -> list[Source]:
    """Lists the headers of the toolkit and its libraries; missing libraries are added to `lacking`."""
    kit = find_toolkit()
    if kit is None:
        lacking["CUDA"] = missing()
        return []
    headers = places.headers(kit)
    lacking |= headers.missing
    folders = sorted({str(path.parent) for name, path in headers.files.items() if "/" not in name})
    files = tuple(File(path, name) for name, path in headers.files.items())
    return [Source("CUDA headers", "headers", files, " ".join(folders))]

