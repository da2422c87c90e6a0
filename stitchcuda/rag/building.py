"""Builds the documentation index: names and words first, which can be searched at once, then vectors.

Parsed headers and embeddings are cached by content, so that only what has changed is read again. One build runs at a time; the
index before stays in use until the new one is complete.
Where to look next: `rag/sources.py` (what is read), `rag/index_store.py` (where indexes are), `rag/vectors.py` (vectors).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from stitchcuda.counts import counted
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import (
    added_files,
    caches,
    embedding,
    index_store,
    playbook_pages,
    query_phrases,
    symbol_table,
    vectors,
    words,
)
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.embedding import Embedder
from stitchcuda.rag.headers import chunks as header_chunks
from stitchcuda.rag.headers import places, reading
from stitchcuda.rag.index_store import Manifest, MeaningOf, Part
from stitchcuda.rag.sources import Source, Sources, digests_of, discover, place_here, state_of
from stitchcuda.state import Digest
from stitchcuda.version import VERSION

_PARSED = TypeAdapter(tuple[list[Chunk], list[str]])


class BuildProgress(NamedTuple):
    """One message of a build about its progress."""

    step: str                              # wait, note, read, words, ready, meaning
    text: str = ""
    done: int = 0
    total: int = 0


class Built(NamedTuple):
    """The result of a build."""

    at: Path                               # the index
    manifest: Manifest
    changed: bool                          # False: the index was up to date
    meaning: MeaningOf | None              # its vectors
    without_meaning: str                   # why there are no vectors, one sentence; "" if there are, or none were wanted
    words_s: float                         # seconds until names and words could be searched
    meaning_s: float


def build(
    *, model: str | None = embedding.CARRIED, wait: bool = True, tell: Callable[[BuildProgress], None] = lambda progress: None
) -> Built | None:
    """Brings the index up to date. `model`: of the embeddings, None for names and words alone.

    None if another build is at work and `wait` is false. Raises `BadInput` where there is nothing to read, `Unavailable` where
    nothing can be written.
    """
    sources = discover()
    if not any(source.files for source in sources.found if source.kind != "playbook") and sources.missing:
        tell(BuildProgress("note", f"only the playbook can be indexed: {'; '.join(sources.missing.values())}"))
    waiting = (lambda who: tell(BuildProgress("wait", f"another build is at work ({who}): waiting for it"))) if wait else None
    with index_store.lock(sources.place, waiting) as alone:
        if not alone:
            return None
        try:
            return _built(sources, model, tell)
        except (OSError, sqlite3.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise Unavailable(f"the documentation index cannot be written to {sources.place} ({why})") from error


def known_model() -> str | None:
    """The model of the current index' vectors; None where it has none."""
    index = next(iter(index_store.indexes(place_here())), None)
    meaning = index_store.meaning_of(index) if index else None
    return meaning.model if meaning else None


def is_current(manifest: Manifest) -> bool:
    """Whether a build now would make the same index. Reads all sources."""
    sources = discover()
    return manifest.state == _state(sources, digests_of(sources.found))


def _state(sources: Sources, digests: Mapping[Path, Digest]) -> Digest:
    """A digest of all that an index is made of: the sources, our phrases, and the code that reads them."""
    return hashlib.sha256(f"{_readers()}\0{query_phrases.texts()}\0{state_of(sources.found, digests)}".encode()).hexdigest()


def _built(sources: Sources, model: str | None, tell: Callable[[BuildProgress], None]) -> Built:
    began = time.monotonic()
    place = sources.place
    tell(BuildProgress("read", "looking at what there is"))
    digests = digests_of(sources.found)
    state = _state(sources, digests)
    index, manifest = _current(place, state)
    changed = index is None
    if index is None or manifest is None:
        folder = index_store.new_folder(place)
        try:
            index, manifest = _words(sources, digests, state, folder, tell)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    words_s = time.monotonic() - began
    ready = f"{counted(manifest.chunks, 'entry')} can be searched by name and words"
    tell(BuildProgress("ready", ready, manifest.chunks, manifest.chunks))
    index_store.prune(place)
    meaning, why = index_store.meaning_of(index), ""
    if model is not None:
        meaning, why = _meaning(index, model, meaning, tell)
    return Built(index, manifest, changed, meaning, why, words_s, time.monotonic() - began - words_s)


def _current(place: Path, state: str) -> tuple[Path | None, Manifest | None]:
    """The current index if it is of this state and whole."""
    for index in index_store.indexes(place)[:1]:
        manifest = index_store.manifest_of(index)
        if manifest is not None and manifest.state == state and not index_store.damage(index, manifest):
            return index, manifest
    return None, None


def _words(
    sources: Sources, digests: Mapping[Path, Digest], state: Digest, folder: Path, tell: Callable[[BuildProgress], None]
) -> tuple[Path, Manifest]:
    """Parses what is new, writes the names and words of everything to `folder` and publishes it."""
    chunks: list[Chunk] = []
    parts: list[Part] = []
    for source in sources.found:
        tell(BuildProgress("read", source.name))
        found, notes = _parse(source, digests)
        parts += _parts(source, found, (*source.notes, *notes))
        chunks += found
    if not chunks:
        raise BadInput(f"there is no documentation to index: {'; '.join(sources.missing.values()) or 'all sources are empty'}")
    tell(BuildProgress("words", f"indexing {len(chunks):,} entries"))
    phrases = query_phrases.phrases_of(chunks)
    symbol_table.write(chunks, {at for at, _ in phrases}, folder / "chunks.db")
    words.build(chunks, phrases, folder)
    manifest = Manifest(
        format=index_store.FORMAT,
        made_by=VERSION,
        state=state,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        chunks=len(chunks),
        libraries=dict(sorted(Counter(chunk.library for chunk in chunks).items())),
        parts=tuple(parts),
        notes=tuple(sources.missing.values()),
    )
    return index_store.publish(sources.place, folder, manifest)


def _parts(source: Source, found: list[Chunk], notes: tuple[str, ...]) -> Iterator[Part]:
    """Headers by their libraries, since each has a version; other sources whole."""
    if source.kind != "headers":
        library = source.files[0].library if source.files else ""
        version = source.files[0].version if source.files else ""
        yield Part(
            name=source.name, kind=source.kind, library=library, version=version, where=source.where,
            files=source.origins or len(source.files), chunks=len(found), notes=notes,
        )  # fmt: skip
        return
    files = Counter(places.library_of(file.name) for file in source.files)
    held = Counter((chunk.library, chunk.version) for chunk in found)
    for number, ((library, version), count) in enumerate(sorted(held.items())):
        where = next((str(file.path.parent) for file in source.files if places.library_of(file.name) == library), source.where)
        yield Part(
            name=library, kind="headers", library=library, version=version, where=where, files=files[library], chunks=count,
            notes=notes if number == 0 else (),
        )  # fmt: skip


def _meaning(
    index: Path, model: str, known: MeaningOf | None, tell: Callable[[BuildProgress], None]
) -> tuple[MeaningOf | None, str]:
    if why := embedding.missing(model):
        return None, why
    embedder = Embedder(model)
    if known is not None and known.id == embedder.id and index_store.has_vectors(index, known):
        return known, ""
    with closing(symbol_table.SymbolTable(index / "chunks.db")) as names:
        chunks = [names.chunk(at) for at in range(len(names.facts()))]
    phrases = query_phrases.phrases_of(chunks)
    made = index / f"{index_store.VECTORS}.new"

    def progress(done: int, total: int) -> None:
        tell(BuildProgress("meaning", "search by meaning", done, total))

    try:
        cache = index_store.home() / "embeddings.db"
        try:
            embedded = vectors.build(chunks, phrases, embedder, cache, made, progress)
        except sqlite3.Error as error:
            if not caches.is_damaged(error):
                raise
            tell(BuildProgress("note", f"the cache of embeddings is damaged and made anew ({error})"))
            caches.remove(cache)
            embedded = vectors.build(chunks, phrases, embedder, cache, made, progress)
        found = MeaningOf(model=model, id=embedder.id, digest="", embedded=embedded)
        return index_store.add_vectors(index, made, found), ""
    finally:
        made.unlink(missing_ok=True)


def _parse(source: Source, digests: Mapping[Path, Digest]) -> tuple[list[Chunk], list[str]]:
    """Returns a source's chunks, and a sentence for each part of it that cannot be read."""
    if source.kind == "playbook":
        return playbook_pages.chunks(), []
    if source.kind == "headers":
        return _parse_headers(source, digests)
    try:
        return [chunk for file in source.files for chunk in added_files.chunks(file.path)], []
    except (OSError, ValueError) as error:
        return [], [f"what was added of {source.name} is damaged ({type(error).__name__}): add it again"]


def _parse_headers(source: Source, digests: Mapping[Path, Digest]) -> tuple[list[Chunk], list[str]]:
    """Parses headers, or reads what an earlier build has parsed of the same text with the same code. Raises OSError."""
    key = hashlib.sha256(f"{_readers()}\n{state_of([source], digests)}".encode()).hexdigest()
    cached = index_store.home() / "parsed" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):       # there is none, or it is damaged
        return _PARSED.validate_json(cached.read_bytes())
    files = {file.name: file.path for file in source.files}
    unread: list[str] = []
    entries = reading.read(files, unread)
    found = header_chunks.chunks(entries, places.versions(files)), [f"{header} could not be read" for header in unread]
    cached.parent.mkdir(parents=True, exist_ok=True)
    index_store.write_text(cached, _PARSED.dump_json(found).decode())
    for old in sorted(cached.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[: -index_store.PLACES]:
        old.unlink(missing_ok=True)
    return found


@functools.cache
def _readers() -> str:
    """Returns a digest of the code that reads sources: what other code has parsed is not used again."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
