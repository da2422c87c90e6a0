"""Searches chunks by words (BM25): how identifiers and abbreviations are split into words.

Identifiers are cut where their parts begin, so `cublasLtMatmulDescSetAttribute` is found by "set the attribute of a matmul
descriptor"; abbreviations are replaced by what they stand for (`_MEANS`), common words are left out (`_LITTLE`).
Where to look next: `rag/vectors.py` (search by meaning), `rag/index.py` (fuses both).
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import Stemmer
from numpy.typing import NDArray

from stitchcuda.rag.chunk import DECLARED, Chunk
from stitchcuda.rag.ranking import best_owners

_jax = sys.modules.get("jax")
sys.modules["jax"] = None                  # type: ignore[assignment]  # else bm25s starts JAX, which takes most of a GPU's memory
import bm25s  # noqa: E402

if _jax is None:
    del sys.modules["jax"]
else:
    sys.modules["jax"] = _jax

FIELDS = ("head", "body", "asked", "near")
"""Each is an index of its own: names and first sentences; everything; phrases that people ask by (`rag/query_phrases.py`);
names in pieces of three characters, for queries with names that do not exist."""
TEXTS = 8                                  # texts that are ranked for each chunk that is wanted
MOST = 60                                  # different words of a query that are searched

_WORD = re.compile(r"[A-Za-z0-9_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_IDENTIFIER = re.compile(r"\b\w*(?:_|[a-z][A-Z])\w*\b")
_PHRASES = (
    (re.compile(r"\bmatrix[- ](?:matrix[- ])?(?:multipl\w+|products?)\b", re.IGNORECASE), " matmul "),
    (re.compile(r"\bleading[- ]dimensions?\b", re.IGNORECASE), " leading dimension ld "),
    (re.compile(r"\b(?:streaming )?multi-?processors?\b", re.IGNORECASE), " multiprocessor sm "),
    (re.compile(r"\bbfloat16\b|\bbf16\b", re.IGNORECASE), " bfloat16 "),
    (re.compile(r"\bfp16\b|\bfloat16\b|\bhalf[- ]precision\b", re.IGNORECASE), " half fp16 "),
    (re.compile(r"\b[Tt]ensor [Mm]emory [Aa]ccelerator\b|\bTMA\b"), " tma tensormap bulk "),
    (re.compile(r"\b16[- ]bytes?\b"), " 16 bytes "),
)
_MEANS = {                                 # what NVIDIA's names and people abbreviate
    "addr": "address", "algo": "algorithm", "alloc": "allocate", "arr": "array", "async": "asynchronous", "attr": "attribute",
    "attrs": "attribute", "attribs": "attribute", "buf": "buffer", "cfg": "configuration", "config": "configuration",
    "coop": "cooperative", "ctx": "context", "desc": "descriptor", "dev": "device", "dim": "dimension", "dims": "dimension",
    "elem": "element", "elems": "element", "err": "error", "func": "function", "gemm": "matmul", "idx": "index",
    "init": "initialize", "initialise": "initialize", "lib": "library", "max": "maximum", "mem": "memory",
    "memcpy": "copy", "min": "minimum",
    "mul": "multiply", "num": "number", "occ": "occupancy", "param": "parameter", "params": "parameter",
    "perf": "performance", "pref": "preference", "prio": "priority", "prop": "property", "props": "property", "ptr": "pointer",
    "ptrs": "pointer", "rand": "random", "reg": "register", "regs": "register", "sched": "schedule", "shmem": "shared",
    "smem": "shared", "str": "string", "sync": "synchronize", "synchronise": "synchronize", "synchronous": "synchronize",
    "temp": "temporary", "tex": "texture", "val": "value", "vec": "vector", "vectorised": "vectorize",
    "vectorized": "vectorize",
    "colour": "color", "normalisation": "normalization", "optimise": "optimize", "behaviour": "behavior",
}  # fmt: skip
_LITTLE = frozenset({
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "do", "does", "doing", "for",
    "from", "get", "gets", "give", "given", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "just",
    "like", "make", "many", "me", "much", "must", "my", "need", "needs", "of", "on", "one", "or", "our", "out", "should",
    "so", "some", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "use", "used",
    "uses", "using", "want", "was", "we", "what", "when", "where", "which", "while", "who", "why", "will", "with",
    "without", "would", "you", "your",
})  # fmt: skip
logging.getLogger("bm25s").setLevel(logging.WARNING)      # else it logs each step
_stem = Stemmer.Stemmer("english")


def tokens(text: str) -> list[str]:
    """Returns the words of a text in order, as they are indexed: lower-case stems, an identifier whole and in its parts."""
    for pattern, plain in _PHRASES:
        text = pattern.sub(f"{plain} ", text)
    return [token for word in _WORD.findall(text) for token in _of_word(word)]


def spoken(text: str) -> str:
    """Returns a text with identifiers split into words, such as "cuda stream wait event", for the embedding model."""
    return _IDENTIFIER.sub(lambda found: " ".join(_PART.findall(found.group())).lower(), text)


@functools.lru_cache(maxsize=1 << 17)
def _of_word(word: str) -> tuple[str, ...]:
    parts = _PART.findall(word)
    small = word.lower()
    found = [small] if len(parts) > 1 or "_" in word else []
    for part in parts:
        plain = _MEANS.get(part.lower(), part.lower())
        if plain not in _LITTLE or len(parts) > 1:
            found.append(_stem.stemWord(plain))
    return tuple(found)


def _head(chunk: Chunk) -> str:
    return f"{chunk.title} {' '.join(chunk.names[:6])} {chunk.brief} {chunk.inside}"


def _body(chunk: Chunk) -> str:
    return f"{chunk.title} {chunk.library} {' '.join(chunk.names)} {chunk.inside} {chunk.comment} {chunk.text}"


def build(chunks: Sequence[Chunk], asked: Sequence[tuple[int, str]], folder: Path) -> None:
    """Writes one index for each field below `folder`. `asked`: (place of a chunk, phrase). Raises OSError."""
    each = list(enumerate(chunks))
    names = [(at, name.rpartition("::")[2]) for at, chunk in each for name in chunk.names[:8] if chunk.kind in DECLARED]
    _index(folder / "head", [(at, tokens(_head(chunk))) for at, chunk in each])
    _index(folder / "body", [(at, tokens(_body(chunk))) for at, chunk in each])
    _index(folder / "asked", [(at, tokens(phrase)) for at, phrase in asked])
    _index(folder / "near", [(at, pieces(name)) for at, name in names], k1=0.2, b=0.9)


def pieces(name: str) -> list[str]:
    """Returns the overlapping pieces of three characters of a name, with its ends marked."""
    padded = f"^{name.lower()}$"
    return [padded[at : at + 3] for at in range(len(padded) - 2)]


def _index(folder: Path, texts: Sequence[tuple[int, list[str]]], *, k1: float = 1.2, b: float = 0.6) -> None:
    folder.mkdir()
    np.save(folder / "owners.npy", np.array([at for at, _ in texts], dtype=np.int32))
    if not any(words for _, words in texts):
        return
    vocabulary: dict[str, int] = {}
    ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words] for _, words in texts]
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index(bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary), show_progress=False)
    index.save(folder, show_progress=False)


class _Field:
    def __init__(self, folder: Path) -> None:
        self.owners = np.load(folder / "owners.npy")
        empty = not (folder / "params.index.json").exists()
        self.index = None if empty else bm25s.BM25.load(folder, mmap=True, show_progress=False)

    def best(self, wanted: Iterable[str], most: int, allowed: NDArray[np.bool_] | None) -> list[int]:
        """Returns chunks in the order of their best texts."""
        known = [word for word in wanted if word in self.index.vocab_dict] if self.index is not None else []
        if self.index is None or not known:
            return []
        scores = self.index.get_scores(known)
        if allowed is not None:
            scores = np.where(allowed[self.owners], scores, 0.0)
        count = min(TEXTS * most, len(scores))
        first = np.argpartition(-scores, count - 1)[:count]
        ordered = first[np.lexsort((first, -scores[first]))]
        return best_owners(((int(self.owners[place]), float(scores[place])) for place in ordered if scores[place] > 0), most)


class Words:
    """The opened indexes of all fields, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self._fields = {field: _Field(folder / field) for field in FIELDS}

    def near(self, name: str, most: int) -> list[int]:
        """Returns chunks with names spelled like `name`, the most alike first."""
        return self._fields["near"].best(pieces(name), most, None)

    def ranked(self, query: str, most: int, allowed: NDArray[np.bool_] | None) -> dict[str, list[int]]:
        """Returns, by field, the ids of at most `most` of the `allowed` chunks that have the query's words, best first."""
        wanted = list(dict.fromkeys(tokens(query)))[:MOST]
        return {field: self._fields[field].best(wanted, most, allowed) for field in FIELDS if field != "near"}
