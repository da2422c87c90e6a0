"""Opens this machine's documentation index, makes one of names and words where there is none, answers a session's questions.

Nothing is downloaded, and no vectors are made (`stitchcuda docs build` makes them). faiss, bm25s and numpy are imported at the
first question. Where to look next: `rag/index.py`, `rag/building.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.rag import index_store, playbook_pages
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.excerpts import Count, fit
from stitchcuda.rag.relevance import is_named, is_relevant

if TYPE_CHECKING:
    from stitchcuda.rag.index import Docs

LOOK = 4                                   # entries in the answer to one question
DEEPER = 3                                 # times as many entries are looked at as may be shown: some do not fit
LINES = 5                                  # further titles behind them
BUILD_WAIT_S = 60.0                          # for the names and words of another process' build; they take some seconds


class DocsQuery(NamedTuple):
    """One question, and how many entries it may bring."""

    query: str
    most: int
    libraries: tuple[str, ...] = ()        # searches only these, as far as they are in the index
    error: bool = False                    # the query is an error message, and the entries that it names are cited


class Searched(NamedTuple):
    chunks: tuple[Chunk, ...]              # those of the first question first, each once
    named: tuple[Chunk, ...]               # of these, what an error names
    notes: tuple[str, ...]                 # what limits the search


class Opened(NamedTuple):
    docs: Docs | None
    notes: tuple[str, ...]                 # what limits it, or why there is none


_opened: list[Opened] = []
_opening = threading.Lock()


def of_this_machine() -> Opened:
    """Returns this machine's index, which is opened, and if necessary built, once in a process."""
    with _opening:
        if not _opened:
            opened = _open()
            if opened.docs is None:        # not remembered: it may be there at the next question
                return opened
            _opened.append(opened)
        return _opened[0]


def forget() -> None:
    """Closes the open index, so that the next question opens the current one."""
    with _opening:
        for opened in _opened:
            if opened.docs is not None:
                opened.docs.close()
        _opened.clear()


def _open() -> Opened:
    """Opens or builds the index; errors become notes. An existing index is used even if its sources have changed."""
    made: list[str] = []
    try:
        docs, notes = open_or_make(made.append)
    except (StitchError, OSError) as error:
        return Opened(None, (f"documentation cannot be searched: {error}",))
    try:
        from stitchcuda.rag import building

        if not made and not building.is_current(docs.manifest):
            notes.append("documentation has changed since its index was made (`stitchcuda docs build` brings it up to date)")
    except (StitchError, OSError) as error:
        notes.append(f"it cannot be told whether the documentation index is up to date: {error}")
    return Opened(docs, tuple(notes))


def open_or_make(say: Callable[[str], None]) -> tuple[Docs, list[str]]:
    """Opens this machine's index. Where none can be opened it `say`s so and makes one of names and words, or waits for another
    process that is making one. Returns the index, and a sentence for each thing that is wrong with it. Raises `StitchError`."""
    index_store.home()                           # raises where documentation is switched off, before anything is looked for
    from stitchcuda.rag import building
    from stitchcuda.rag.index import open_docs
    from stitchcuda.rag.sources import place_here

    place = place_here()
    try:
        return open_docs(place)
    except Unavailable as error:
        say(f"{error}; names and words are indexed now")
    until = time.monotonic() + BUILD_WAIT_S
    while building.build(model=None, wait=False) is None and not index_store.indexes(place) and time.monotonic() < until:
        time.sleep(0.2)
    return open_docs(place)


def answer(query: str, tokens: int, count: Count, holds: Callable[[Chunk], bool] = lambda chunk: True) -> str:
    """Returns the answer to a name or words: entries with their citations, at most `tokens` by `count`, then further titles; or
    one sentence if nothing is found. Entries for which `holds` is False are left out, unless they are named. Never raises."""
    opened = of_this_machine()
    if opened.docs is None:
        return "; ".join(opened.notes)
    asked = " ".join(query.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ").split())
    if not asked:
        return "there was no question"
    try:
        found = opened.docs.search(asked, LOOK + LINES)
    except StitchError as error:
        return str(error)
    if not found.hits:
        return _nothing(asked, opened.docs)
    exact = [hit for hit in found.hits if "names" in hit.by]
    fitting = [hit for hit in found.hits if holds(hit.chunk)]
    shown = (exact or fitting or found.hits)[:LOOK]
    rest = [hit for hit in fitting if hit not in shown][:LINES]
    text = fit([hit.chunk for hit in shown], tokens, count, asked)
    if rest and not opened.docs.names.whole(asked):
        text += "\n\nAlso: " + "; ".join(hit.chunk.citation for hit in rest)
    near = "" if exact or " " in asked else _nothing(asked, opened.docs)
    return "\n\n".join(part for part in (near, text) if part)


def search_all(asked: Sequence[DocsQuery], holds: Callable[[Chunk], bool] = lambda chunk: True) -> Searched:
    """Returns the best entries for several questions, those of the first question first. Entries that have nothing to do with
    their question are left out, and those for which `holds` is False, so that there may be none. Never raises."""
    opened = of_this_machine()
    docs = opened.docs
    if docs is None:
        return Searched((), (), opened.notes)
    found: dict[str, Chunk] = {}
    named: dict[str, Chunk] = {}
    notes = dict.fromkeys(opened.notes)
    for query in asked:
        if not query.query.replace("\x00", " ").strip():
            continue
        known = [library for library in query.libraries if library in docs.manifest.libraries]
        found_by = docs.search(query.query, DEEPER * query.most, libraries=known)
        notes |= dict.fromkeys(found_by.notes)
        pages = query.libraries == (playbook_pages.LIBRARY,)
        fits = (hit for hit in found_by.hits if is_relevant(query.query, hit.chunk, hit.by, pages_only=pages))
        for hit in [hit for hit in fits if holds(hit.chunk)][: query.most]:
            found.setdefault(hit.chunk.citation, hit.chunk)
            if query.error and is_named(query.query, hit.chunk, hit.by):
                named.setdefault(hit.chunk.citation, hit.chunk)
    return Searched(tuple(found.values()), tuple(named.values()), tuple(notes))


def _nothing(asked: str, docs: Docs) -> str:
    near = docs.near(asked)
    said = f"; nearest names: {', '.join(near)}" if near else ""
    lacking = "".join(f"; {note}" for note in docs.lacking(asked))
    return f"nothing is called {asked[:80]!r} in the documentation of this machine{lacking or said}"
