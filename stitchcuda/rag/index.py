"""Searches an opened index by names, words and meaning, fused into one ranking with citations.

It reads what `rag/building.py` has published and changes nothing. Without vectors or without a model it goes by names and words
and says so. Where to look next: `rag/ranking.py` (how rankings become one), `rag/excerpts.py` (how hits are shown).
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import index_store, ranking, status_names
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.embedding import Embedder, no_vectors
from stitchcuda.rag.index_store import Manifest, MeaningOf
from stitchcuda.rag.symbol_table import SymbolTable
from stitchcuda.rag.vectors import Meaning
from stitchcuda.rag.words import Words, spoken
from stitchcuda.tools.build.nearest_names import nearest

Mode = Literal["hybrid", "words", "meaning"]
WEIGHTS = {
    "names": 1.35, "statuses": 5.6, "near": 1.77, "head": 0.6, "body": 1.4, "asked": 2.1, "meaning": 0.7,
    "asked by meaning": 1.1,
}  # fmt: skip
"""The weights of the rankings that are fused, tuned by benchmarks/docs_search.py."""
DEEP = 50                                  # chunks of each ranking that are fused
QUERY = 2_000                              # characters of a query that are searched by words and meaning
_NOT_BY_MEANING = "documentation is searched by names and words, not by meaning"
_OF_A_LIBRARY = re.compile(r"\b(cu(?:da|dnn|blas|sparse|solver|rand|fft|tlass)|nvrtc)", re.IGNORECASE)
_UNKNOWN = 3                               # names that do not exist of one query that are compared with those that do
_ALIKE = 40                                # names that are compared with one that does not exist
_FIRST = 10.0                              # added to the score of an entry whose name is the whole query


class Hit(NamedTuple):
    """One answer."""

    chunk: Chunk
    score: float                           # comparable within one search only
    by: tuple[str, ...]                    # the rankings that found it, by their names in WEIGHTS


class Found(NamedTuple):
    hits: tuple[Hit, ...]
    notes: tuple[str, ...]                 # what limits the answer, one sentence each


class Docs:
    """One index. Threads may share it; close it when done."""

    def __init__(self, index: Path, manifest: Manifest) -> None:
        """Opens a whole index. Raises what its parts raise when they cannot be read: `open_docs` goes on to another one."""
        self.manifest = manifest
        self.names = SymbolTable(index / "chunks.db")
        self._words = Words(index)
        self.meaning = index_store.meaning_of(index)
        self._vectors, self._without = _vectors(index, self.meaning)
        rows = self.names.facts()
        self._libraries = np.array([library.lower() for library, _, _ in rows])
        self._versions = np.array([version for _, version, _ in rows])
        self._priors = [prior for _, _, prior in rows]
        self._embedder: Embedder | None = None
        self._loading = threading.Lock()

    def search(
        self, query: str, k: int = 5, *, libraries: Sequence[str] = (), version: str = "", mode: Mode = "hybrid"
    ) -> Found:
        """The `k` best chunks, best first. `libraries` as their names begin, whatever their capitals; `version` likewise.

        Raises `BadInput` for an empty query, a filter that nothing fits, and `k` below 1.
        """
        query = query.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ")
        if not query.strip():
            raise BadInput("there is no question: give a name such as cublasLtMatmul, or some words")
        if k < 1:
            raise BadInput(f"-k is {k}: ask for at least one result")
        allowed = self._allowed(libraries, version)
        rankings: dict[str, list[int]] = {}
        notes = []
        whole = [at for at in self.names.whole(query.strip()) if _fits(allowed, at)] if len(query) <= QUERY else []
        if mode == "hybrid":
            rankings["names"] = whole or [at for at in self.names.named_in(query) if _fits(allowed, at)]
            rankings["statuses"] = [at for at in status_names.find_statuses(query, self.names) if _fits(allowed, at)]
        cut = _shortened(query)
        if len(cut) < len(query.strip()):
            notes.append(f"the query has {len(query):,} characters: of its words and meaning the first {len(cut):,} counted")
        if mode != "meaning":
            unknown = [] if whole else self.names.unknown(cut)[:_UNKNOWN]
            near = [at for name in unknown for item in self.near(name) for at in self.names.whole(item)]
            rankings["near"] = [at for at in dict.fromkeys(near) if _fits(allowed, at)]
            rankings |= self._words.ranked(cut, DEEP, allowed)
        if mode == "meaning" or (mode == "hybrid" and not whole):
            by_meaning, why = self._nearest(cut, allowed)
            rankings |= by_meaning
            if why:
                notes.append(why)
        scored = ranking.fuse(rankings, WEIGHTS, self._priors.__getitem__)
        if whole:
            first = {at: _FIRST * self._priors[at] for at in whole}
            scored = sorted(((at, score + first.get(at, 0.0)) for at, score in scored), key=lambda item: -item[1])
        return Found(tuple(self._distinct(scored, k, rankings)), tuple(notes))

    def near(self, name: str) -> tuple[str, ...]:
        """At most three names that are spelled like one that does not exist, the nearest first."""
        alike = [other for at in self._words.near(name, _ALIKE) for other in self.names.chunk(at).names[:8]]
        return nearest(name, dict.fromkeys(alike))

    def lacking(self, query: str) -> tuple[str, ...]:
        """A sentence with the remedy for each library that the query names and whose headers were not here."""
        named = {found.lower() for found in _OF_A_LIBRARY.findall(query)}
        return tuple(note for note in self.manifest.notes if any(name in note.lower()[:12] for name in named))

    def close(self) -> None:
        self.names.close()

    def _distinct(self, scored: Sequence[tuple[int, float]], k: int, rankings: dict[str, list[int]]) -> list[Hit]:
        hits: list[Hit] = []
        seen: set[tuple[str, str]] = set()
        for at, score in scored:
            chunk = self.names.chunk(at)
            if ranking.duplicate_key(chunk) in seen:
                continue
            seen.add(ranking.duplicate_key(chunk))
            hits.append(Hit(chunk, score, tuple(name for name, those in rankings.items() if at in those)))
            if len(hits) == k:
                break
        return hits

    def _allowed(self, libraries: Sequence[str], version: str) -> NDArray[np.bool_] | None:
        if not libraries and not version:
            return None
        allowed = np.ones(len(self._libraries), dtype=np.bool_)
        if libraries:
            allowed = np.zeros_like(allowed)
            for library in libraries:
                fits = np.char.startswith(self._libraries, library.strip().lower())
                if not fits.any():
                    known = ", ".join(sorted(self.manifest.libraries))
                    raise BadInput(f"no documentation of {library!r} in the index; there is: {known}")
                allowed |= fits
        if version:
            allowed &= np.char.startswith(self._versions, version.strip())
            if not allowed.any():
                what = f" of {', '.join(libraries)}" if libraries else ""
                raise BadInput(f"no documentation of version {version!r}{what} in the index (see: stitchcuda docs sources)")
        return allowed

    def _nearest(self, query: str, allowed: NDArray[np.bool_] | None) -> tuple[dict[str, list[int]], str]:
        if self._vectors is None or self.meaning is None:
            return {}, f"{_NOT_BY_MEANING}: {self._without}"
        with self._loading:
            try:
                if self._embedder is None:
                    self._embedder = Embedder(self.meaning.model)
                    if self._embedder.id != self.meaning.id:
                        self._vectors = None
                        self._without = (
                            f"the model {self.meaning.model} has changed since the vectors were made "
                            "(`stitchcuda docs build` makes them anew)"
                        )
                        return {}, f"{_NOT_BY_MEANING}: {self._without}"
                vector = self._embedder.query(spoken(query).strip() or query)
            except Unavailable as error:
                return {}, f"{_NOT_BY_MEANING}: {error}"
        return self._vectors.ranked(vector, DEEP, allowed), ""


def open_docs(place: Path) -> tuple[Docs, list[str]]:
    """Opens the index at a place, or the one before it if the current one is damaged. Returns it with notes for the user.

    Raises `Unavailable` with the remedy if none can be used.
    """
    notes: list[str] = []
    for index in index_store.indexes(place):
        manifest = index_store.manifest_of(index)
        why = "the documentation index has no readable manifest" if manifest is None else index_store.damage(index, manifest)
        if manifest is not None and not why:
            try:
                docs = Docs(index, manifest)
            except (OSError, ValueError, RuntimeError, sqlite3.Error) as error:
                why = f"the documentation index cannot be opened ({error})"
            else:
                if notes:
                    notes.append(f"the one of {manifest.created[:16].replace('T', ' ')} is used")
                return docs, ["; ".join(notes) + ": `stitchcuda docs build` makes it anew"] if notes else []
        notes.append(why)
    if notes:
        raise Unavailable(f"{notes[0]}, and there is none before it: `stitchcuda docs build` makes it anew")
    others = index_store.other_formats()
    said = f" (there is one of another version of stitchcuda, {', '.join(others)})" if others else ""
    raise Unavailable(f"there is no documentation index of what is on this machine{said}: `stitchcuda docs build` makes one")


def _vectors(index: Path, meaning: MeaningOf | None) -> tuple[Meaning | None, str]:
    """Opens an index' vectors; returns None with the reason if there are none or they are damaged."""
    if meaning is None:
        return None, f"the index has no vectors: {no_vectors()}"
    damaged = f"{index_store.VECTORS} of the index has been changed (`stitchcuda docs build` makes it anew)"
    if not index_store.has_vectors(index, meaning):
        return None, damaged
    try:
        return Meaning(index / index_store.VECTORS, np.load(index / "asked" / "owners.npy")), ""
    except (OSError, RuntimeError, ValueError):
        return None, damaged


def _fits(allowed: NDArray[np.bool_] | None, at: int) -> bool:
    return allowed is None or bool(allowed[at])


def _shortened(query: str) -> str:
    """Its first characters, to the end of a word."""
    query = query.strip()
    return query if len(query) <= QUERY else query[:QUERY].rsplit(None, 1)[0]


