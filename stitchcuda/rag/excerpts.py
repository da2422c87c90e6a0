"""Fits search results into a budget of tokens: declarations first, then their comments.

Nothing is cut inside a declaration: one that does not fit is left out, and its title says that it exists. It counts with
whatever counter it is given. Where to look next: `engineers/tokens.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stitchcuda.rag.chunk import DECLARED, Chunk

Count = Callable[[str], int]
_CITATION = re.compile(r"^\[(.+\))\]$", re.MULTILINE)


def fit(chunks: Sequence[Chunk], tokens: int, count: Count, about: str = "") -> str:
    """Returns a text of at most `tokens` by `count`: each chunk's citation and declaration in this order, as far as they fit;
    then their comments, line by line, the best hit's first. A skeleton that `about` names comes before all others; prose of
    which no line fits is left out. Members of a type that does not fit follow, first those that `about` names. "" if not even
    one citation fits."""
    words = set(re.findall(r"\w{4,}", about))
    shown: list[list[str]] = []
    chunks = sorted(chunks, key=lambda chunk: not _asked_for(chunk, about))
    left = tokens
    for chunk in chunks:
        head = f"[{chunk.citation}]"
        declared = chunk.text if chunk.kind in DECLARED else ""
        whole = chunk.text if _asked_for(chunk, about) else declared
        tries = ("\n".join(part for part in (head, text) if part) for text in (whole, _first(declared), ""))
        part = next((candidate for candidate in tries if count(candidate) + 2 <= left), None)
        if part is None:
            break
        shown.append([part])
        left -= count(part) + 2
    for chunk, parts in zip(chunks, shown, strict=False):
        said = chunk.comment if chunk.kind in DECLARED or chunk.text in parts[0] else chunk.text
        lines = said.splitlines()
        if chunk.kind in DECLARED and chunk.text not in parts[0]:
            members = chunk.text.splitlines()[1:]
            lines = [*sorted(members, key=lambda line: words.isdisjoint(re.findall(r"\w+", line))), *lines]
        left -= _added(parts, lines, left, count)
        if chunk.kind not in DECLARED and len(parts) == 1 and lines:
            left += count(parts.pop()) + 2     # a title alone is of no use: the next one gets its room
    return "\n\n".join("\n".join(parts) for parts in shown if parts)


def citations_in(text: str) -> list[str]:
    """The citations of the entries that `fit` has shown."""
    return _CITATION.findall(text)


def is_citation(text: str) -> bool:
    """Whether it names an entry, as `Chunk.citation` does: title (library version, source)."""
    return re.fullmatch(r".+ \([^()]+, \S.*\)", text) is not None


def _asked_for(chunk: Chunk, about: str) -> bool:
    """Whether it is the skeleton that the task names."""
    kind, _, name = chunk.source.partition(":")
    return kind == "skeleton" and re.search(rf"\b{re.escape(name)}\b", about.replace("-", "_")) is not None


def _first(declared: str) -> str:
    """Of several declarations, or of a type with its members, the first line."""
    lines = declared.splitlines()
    return f"{lines[0]} …" if len(lines) > 1 else ""


def _added(parts: list[str], lines: Sequence[str], left: int, count: Count) -> int:
    """Adds whole lines as long as they fit; code in fences stays whole. Returns the tokens they took."""
    taken = 0
    for block in _blocks(lines):
        cost = count(block) + 1
        if taken + cost > left:
            if len(parts) > 1 and "…" not in parts and taken + 2 <= left:
                parts.append("…")
                taken += 2
            break
        parts.append(block)
        taken += cost
    return taken


def _blocks(lines: Sequence[str]) -> list[str]:
    blocks: list[str] = []
    fenced: list[str] | None = None
    for line in lines:
        if line.lstrip().startswith("```"):
            if fenced is None:
                fenced = [line]
            else:
                blocks.append("\n".join((*fenced, line)))
                fenced = None
        elif fenced is not None:
            fenced.append(line)
        else:
            blocks.append(line)
    return blocks if fenced is None else [*blocks, "\n".join(fenced)]
