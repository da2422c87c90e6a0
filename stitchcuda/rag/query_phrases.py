"""What people ask when a symbol is the answer, in our own words: `phrases/*.txt`, read into symbol → phrases.

Headers say little in the words that people use. A file has blocks: a line of symbols that answer alike, the main one first,
then a line `- phrase` each; `playbook:SLUG` stands for a page. It finds nothing itself. Where to look next: `rag/words.py`,
`rag/vectors.py`.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections import defaultdict
from collections.abc import Mapping, Sequence

from stitchcuda.rag.chunk import Chunk


@functools.cache
def texts() -> dict[str, str]:
    """File name → text."""
    folder = importlib.resources.files("stitchcuda.rag") / "phrases"
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".txt")), key=lambda one: one.name)
    return {one.name: one.read_text("utf-8") for one in found}


def read(text: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(symbols, phrases) of each block, in order. Raises ValueError for a line that is neither, with its number."""
    blocks: list[tuple[tuple[str, ...], list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("- "):
            if not blocks:
                raise ValueError(f"line {number}: a phrase before any symbol")
            blocks[-1][1].append(line[2:].strip())
        elif " " in line.replace(", ", ","):
            raise ValueError(f"line {number}: neither symbols nor a phrase: {line[:60]!r}")
        else:
            blocks.append((tuple(line.split(", ")), []))
    return [(symbols, tuple(phrases)) for symbols, phrases in blocks]


def by_symbol(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Symbol → its phrases in all files."""
    known: dict[str, list[str]] = defaultdict(list)
    for text in found.values():
        for symbols, phrases in read(text):
            for symbol in symbols:
                known[symbol] += phrases
    return known


def of(chunks: Sequence[Chunk]) -> list[tuple[int, str]]:
    """(place of a chunk, phrase): those of any of its own names, not of a type's fields. Of a document's section its title and
    its first sentence stand for what people ask."""
    known = by_symbol(texts())
    return [
        (at, phrase)
        for at, chunk in enumerate(chunks)
        for phrase in dict.fromkeys(_phrases(chunk, known))
    ]


def _phrases(chunk: Chunk, known: Mapping[str, Sequence[str]]) -> list[str]:
    if chunk.kind == "section":
        return [chunk.title, *([chunk.brief] if chunk.brief else [])]
    return [phrase for name in own_names(chunk) for phrase in known.get(name, ())]


def own_names(chunk: Chunk) -> tuple[str, ...]:
    """What a chunk is about. Of a name in a namespace only the whole, since others may end alike."""
    title = chunk.title.partition(" (")[0]
    return tuple(dict.fromkeys(name for name in (title, *chunk.names) if "::" not in title or "::" in name))
