"""Reads the phrases that people ask for a symbol by: `rag/phrases/*.txt` as symbol → phrases.

Headers rarely use the words that people ask with. A file has blocks: a line of symbols with one answer, the main one first,
then a line `- phrase` for each phrase; `playbook:SLUG` stands for a page.
Where to look next: `rag/words.py`, `rag/vectors.py` (search the phrases).
"""

from __future__ import annotations

import functools
import importlib.resources
from collections import defaultdict
from collections.abc import Mapping, Sequence

from stitchcuda.rag.chunk import Chunk


@functools.cache
def texts() -> dict[str, str]:
    """Returns the texts of the phrase files by file name."""
    folder = importlib.resources.files("stitchcuda.rag") / "phrases"
    found = sorted((path for path in folder.iterdir() if path.name.endswith(".txt")), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found}


def read(text: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Returns (symbols, phrases) of each block, in order. Raises ValueError, with the line's number, for any other line."""
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


def phrases_of(chunks: Sequence[Chunk]) -> list[tuple[int, str]]:
    """Returns (index into `chunks`, phrase) for every phrase of a chunk: the phrases of its names; for a section of a document
    its title and first sentence."""
    known: dict[str, list[str]] = defaultdict(list)        # symbol → its phrases in all files
    for text in texts().values():
        for symbols, phrases in read(text):
            for symbol in symbols:
                known[symbol] += phrases
    return [(at, phrase) for at, chunk in enumerate(chunks) for phrase in dict.fromkeys(_phrases(chunk, known))]


def _phrases(chunk: Chunk, known: Mapping[str, Sequence[str]]) -> list[str]:
    if chunk.kind == "section":
        return [chunk.title, *([chunk.brief] if chunk.brief else [])]
    title = chunk.title.partition(" (")[0]
    # Of a name in a namespace only the whole counts: names of other namespaces may end alike.
    names = dict.fromkeys(name for name in (title, *chunk.names) if "::" not in title or "::" in name)
    return [phrase for name in names for phrase in known.get(name, ())]
