"""Fetches the listed pages into a folder, on request only; a second run transfers what changed and nothing else.

It reads no document but for the links of a page that is followed, and removes no file. `pages.json` in the folder says which
file is which page. Where to look next: `rag/listing.py` (what is listed), `rag/transfer.py` (how one page comes),
`rag/links.py`.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.rag import links
from stitchcuda.rag.copies import INDEX, index_of
from stitchcuda.rag.listing import Page
from stitchcuda.rag.politeness import Failed, Unreachable, site
from stitchcuda.rag.transfer import Got, Transfer
from stitchcuda.state import Record
from stitchcuda.store import write_atomically


class Report(Record):
    """What a download came to."""

    fetched: tuple[str, ...] = ()          # URLs that are new or changed
    unchanged: tuple[str, ...] = ()        # URLs whose copy here is the newest
    failed: tuple[str, ...] = ()           # sentences; older copies stay
    transferred: int = 0                   # bytes


def download(
    pages: Iterable[Page],
    into: Path,
    on_event: Callable[[str], None],
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Report:
    """Brings the copies of `pages` in the folder `into` up to date; `on_event` gets a line per page, `wait` sleeps (seconds).

    A page that cannot be had is a sentence in the report, one for all pages of a host that cannot be reached. Raises
    Unavailable where nothing can be written, or while another download writes there.
    """
    with _alone(into):
        return _Download(into, on_event, wait).all(tuple(pages))


class _Download:
    """One run over the list."""

    def __init__(self, into: Path, on_event: Callable[[str], None], wait: Callable[[float], None]) -> None:
        self._into = into
        self._on_event = on_event
        self._transfer = Transfer(into, on_event, wait)
        self._index = _index(into)
        self._got: dict[str, Got] = {}
        self._failed: dict[str, str] = {}
        self._lost: dict[str, tuple[str, int]] = {}  # by site that cannot be reached: why, and pages that were not asked for

    def all(self, pages: tuple[Page, ...]) -> Report:
        listed = {page.url for page in pages}
        self._index = {file: entry for file, entry in self._index.items() if entry.get("listed") in listed}
        for page in pages:
            self._entry(page)
            # After every entry, so that a run that is interrupted leaves what it has.
            write_atomically(self._into / INDEX, json.dumps(self._index, indent=1, sort_keys=True).encode())
        lost = tuple(f"{why} ({count} pages were left as they are)" if count > 1 else why for why, count in self._lost.values())
        return Report(
            fetched=tuple(url for url, got in self._got.items() if got.fresh),
            unchanged=tuple(url for url, got in self._got.items() if not got.fresh),
            failed=(*self._failed.values(), *lost),
            transferred=sum(got.transferred for got in self._got.values()),
        )

    def _entry(self, page: Page) -> None:
        """A page of the list, and those it leads to."""
        waiting, seen, complete = [page.url], {page.url}, True
        below, taken = "", 0
        entries: dict[str, dict[str, Any]] = {}
        while waiting and taken < (page.most if page.follow else 1):
            url = waiting.pop(0)
            taken += 1
            got = self._fetched(url)
            if got is None:
                complete = False
                continue
            path = self._into / got.copy.file
            title, found = links.of(path, got.copy.final) if page.follow else ("", [])
            below = below or links.folder_of(got.copy.final)
            own = url == page.url
            entries[got.copy.file] = {
                "url": got.copy.final, "library": page.library, "version": page.version,
                "title": page.name if own else title or page.name, "listed": page.url,
            }  # fmt: skip
            seen.add(got.copy.final)
            for link in found:
                if link not in seen and link.startswith(below):
                    seen.add(link)
                    waiting.append(link)
        if waiting and page.follow:
            self._on_event(f"{page.name}: {len(waiting)} more pages are linked; `most` in the list allows {page.most}")
        # What is no longer linked from anywhere is no longer part of the manual, if all of it was seen.
        kept = {} if complete else {file: entry for file, entry in self._index.items() if entry["listed"] == page.url}
        others = {file: entry for file, entry in self._index.items() if entry["listed"] != page.url}
        self._index = others | kept | entries

    def _fetched(self, url: str) -> Got | None:
        """The page, asked for once a run; None if it cannot be had."""
        if url in self._got or url in self._failed:
            return self._got.get(url)
        where = site(url)
        if where in self._lost:
            why, count = self._lost[where]
            self._lost[where] = why, count + 1
            return None
        try:
            got = self._got[url] = self._transfer.get(url)
        except Unreachable as error:
            why, count = self._lost.get(error.site, (str(error), 0))
            self._lost[error.site] = why, count + 1
            return None
        except Failed as error:
            self._failed[url] = str(error)
            return None
        self._on_event(f"{url}: {got.copy.size / 1e6:.1f} MB" if got.fresh else f"{url}: unchanged")
        return got


def _index(into: Path) -> dict[str, dict[str, Any]]:
    """What `pages.json` says; a damaged one is made anew from this run."""
    return {file: entry for file, entry in index_of(into).items() if "listed" in entry and (into / file).is_file()}


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    """One download at a time writes to a folder; what the system refuses becomes a sentence."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        with (into / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(f"another download is writing to {into}: wait for it to end") from error
            yield
    except StitchError:
        raise
    except OSError as error:
        raise Unavailable(f"cannot write to {into} ({error.strerror or error}): make room there, or name another") from error
