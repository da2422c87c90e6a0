"""Searches chunks by meaning with FAISS, and caches embeddings so that only new texts are embedded.

An index is a plain FAISS file, a row for each chunk and each phrase that people ask it by; the cache is one SQLite file for
all indexes of a user. It loads no model to open an index. Where to look next: `rag/embedding.py` (the model), `rag/building.py`
(when vectors are made).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from stitchcuda.rag import caches
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.embedding import Embedder
from stitchcuda.rag.ranking import best_owners
from stitchcuda.rag.words import TEXTS

BATCH = 256                                # texts between two commits of the cache
_TABLE = "embedding (model TEXT, key TEXT, row BLOB, PRIMARY KEY (model, key))"
_CHARACTERS = 500                          # of a chunk's text: what the model reads of it


def text_of(chunk: Chunk) -> str:
    """Returns the text that is embedded for a chunk: its title, comment and declaration."""
    if chunk.kind in ("section", "technique"):
        return f"{chunk.title}. {chunk.text}"[:_CHARACTERS]
    return f"{chunk.title} ({chunk.library}): {chunk.comment or chunk.brief}\n{chunk.text}"[:_CHARACTERS]


def build(
    chunks: Sequence[Chunk], asked: Sequence[tuple[int, str]], embedder: Embedder, cache: Path, target: Path,
    progress: Callable[[int, int], None],
) -> int:  # fmt: skip
    """Writes the index of all chunks, and of `asked` (place of a chunk, phrase), to `target`; returns how many texts were new.

    `progress(done, total)` counts texts. Embeddings are written to `cache` at once, so that a killed build goes on from there.
    Raises OSError, sqlite3.Error and what the embedder raises.
    """
    texts = [text_of(chunk) for chunk in chunks] + [phrase for _, phrase in asked]
    keys = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
    with closing(caches.open_cache(cache, _TABLE)) as store:
        known = {key: row for row, key in enumerate(dict.fromkeys(keys))}
        have = {key for (key,) in store.execute("SELECT key FROM embedding WHERE model = ?", (embedder.id,))}
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key not in have}
        # Texts of one length together: a batch is padded to its longest.
        todo = sorted(wanted.items(), key=lambda pair: len(pair[1]))
        done = len(known) - len(todo)
        progress(done, len(known))
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            rows = embedder.texts([text for _, text in batch])
            values = [(embedder.id, key, row.tobytes()) for (key, _), row in zip(batch, rows, strict=True)]
            with store:
                store.executemany("INSERT OR REPLACE INTO embedding VALUES (?, ?, ?)", values)
            progress(done + start + len(batch), len(known))
        matrix = _matrix(store, embedder.id, keys)
    index = faiss.IndexFlatIP(matrix.shape[1])
    index.add(matrix)
    faiss.write_index(index, str(target))
    return len(todo)


class Meaning:
    """An opened index, memory-mapped."""

    def __init__(self, path: Path, owners: NDArray[np.int32]) -> None:
        """`owners`: of each row beyond the chunks' own, its chunk. Raises RuntimeError for a file that is none."""
        faiss.omp_set_num_threads(1)       # a pool of its own would stand in the way of the model's
        self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        self._chunks = self.size - len(owners)
        self._owners = np.concatenate([np.arange(self._chunks, dtype=np.int32), owners])

    @property
    def size(self) -> int:
        return int(self._index.ntotal)

    def ranked(self, query: NDArray[np.float32], most: int, allowed: NDArray[np.bool_] | None) -> dict[str, list[int]]:
        """Ids of the chunks nearest in meaning, best first: by their own texts, and by what people ask. `query` is
        [1, dimension]."""
        parameters = None
        if allowed is not None:
            fits = np.flatnonzero(allowed[self._owners]).astype(np.int64)
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorBatch(fits))  # type: ignore[call-arg]
        scores, rows = self._index.search(query, min(TEXTS * most, self.size), params=parameters)
        found: dict[str, list[tuple[int, float]]] = {"meaning": [], "asked by meaning": []}
        for row, score in zip(rows[0], scores[0], strict=True):
            if row >= 0:
                found["meaning" if row < self._chunks else "asked by meaning"].append((int(self._owners[row]), float(score)))
        return {name: best_owners(those, most) for name, those in found.items()}


def _matrix(store: sqlite3.Connection, model: str, keys: Sequence[str]) -> NDArray[np.float32]:
    rows = {key: np.frombuffer(row, np.float32) for key, row in _all(store, model, set(keys))}
    return np.stack([rows[key] for key in keys])


def _all(store: sqlite3.Connection, model: str, keys: set[str]) -> Iterable[tuple[str, bytes]]:
    return ((key, row) for key, row in store.execute("SELECT key, row FROM embedding WHERE model = ?", (model,)) if key in keys)
