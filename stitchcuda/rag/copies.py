"""The files of a download: how they are named, and what is known of each, in a small JSON file beside it. It asks no network.

Where to look next: `rag/transfer.py`, which fills them.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from stitchcuda.state import Record
from stitchcuda.store import write_atomically

INDEX = "pages.json"                       # which file is which page of the list


class Copy(Record):
    """What is known of a file, kept as JSON beside it."""

    url: str                               # as it was asked for
    final: str = ""                        # where redirects led
    file: str = ""                         # "" while no whole file is there
    size: int = 0                          # bytes
    etag: str = ""
    modified: str = ""
    part: str = ""                         # validator of the unfinished `.part`: a strong ETag or a date


def index_of(folder: Path) -> dict[str, dict[str, Any]]:
    """What `pages.json` says of each file; of a damaged one what can be made out."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    entries = index.items() if isinstance(index, dict) else ()
    return {file: entry for file, entry in entries if isinstance(entry, dict)}


def name_of(url: str) -> str:
    """A file's name without its suffix: readable, and another one for every address."""
    parts = urlsplit(url)
    words = re.sub(r"[^A-Za-z0-9.]+", "_", unquote(f"{parts.hostname or ''}{parts.path}")).strip("_.")
    words = re.sub(r"\.(html?|pdf|md|rst|txt)$", "", words)[:100]
    return f"{words}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def known(stem: Path, url: str) -> Copy:
    """What is known of the file here; a file that is gone or was changed since is asked for anew."""
    try:
        copy = Copy.model_validate_json(stem.with_name(f"{stem.name}.json").read_bytes())
    except (OSError, ValidationError, ValueError):
        return Copy(url=url)
    if copy.file and size_of(stem.with_name(copy.file)) != copy.size:
        return Copy(url=url, part=copy.part)
    # Somebody else may have written the note: it names no file but its own.
    return copy if copy.url == url and copy.file in ("", Path(copy.file).name) else Copy(url=url)


def remember(stem: Path, copy: Copy) -> None:
    """Writes it down, all or nothing."""
    write_atomically(stem.with_name(f"{stem.name}.json"), copy.model_dump_json(indent=1).encode())


def part_of(stem: Path) -> Path:
    """The file while it is not whole."""
    return stem.with_name(f"{stem.name}.part")


def size_of(path: Path) -> int:
    """Bytes; 0 for a file that is not there."""
    with suppress(OSError):
        return path.stat().st_size
    return 0
