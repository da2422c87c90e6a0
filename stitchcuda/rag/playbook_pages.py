"""Reads our own pages on techniques (`rag/playbook/*.md`) into chunks, one for each section.

They belong to the package and need no toolkit.
Where to look next: `rag/playbook/` (the pages), `rag/loaders.py` (a user's documents).
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator

from stitchcuda.rag.chunk import Chunk

LIBRARY = "playbook"
_HEADING = re.compile(r"^(#{1,3}) +(.*)$")
_API = re.compile(
    r"`(?P<name>(?:cuda|cublas|cudnn|cu|CU|CUBLAS|CUDNN|__)\w{3,}|(?:cub|cooperative_groups|cuda|nvcuda)::[\w:]+)(?:\(\))?`"
)
_BRIEF = 160


def pages() -> dict[str, str]:
    """Returns the pages' Markdown by slug (the file's name without its suffix)."""
    folder = importlib.resources.files("stitchcuda.rag") / "playbook"
    found = sorted((path for path in folder.iterdir() if path.name.endswith(".md")), key=lambda page: page.name)
    return {page.name.removesuffix(".md"): page.read_text("utf-8") for page in found}


def chunks() -> list[Chunk]:
    """Returns a chunk for each section of each page. A page's first chunk is its introduction, which has the slug as a name;
    `inside` holds the API names in a section's text."""
    return [chunk for slug, text in pages().items() for chunk in _page(slug, text)]


def _page(slug: str, text: str) -> Iterator[Chunk]:
    title = next((found[2] for line in text.splitlines() if (found := _HEADING.match(line))), slug)
    for heading, body in _sections(text):
        yield Chunk(
            library=LIBRARY,
            version="",
            source=f"playbook:{slug}",
            kind="technique",
            title=title if heading == title else f"{title} › {heading}",
            text=body,
            names=(f"playbook:{slug}", slug) if heading == title else (),
            brief=first_sentence(body),
            inside=" ".join(dict.fromkeys(found["name"] for found in _API.finditer(body))),
        )


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields (heading, body) of each section; a `#` inside of a code fence is no heading."""
    heading, fenced = "", False
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        found = None if fenced else _HEADING.match(line)
        if found:
            if heading and "\n".join(lines).strip():
                yield heading, "\n".join(lines).strip()
            heading, lines = found[2], []
        else:
            lines.append(line)
    if heading and "\n".join(lines).strip():
        yield heading, "\n".join(lines).strip()


def first_sentence(body: str) -> str:
    """Returns the first sentence of a text, or its first `_BRIEF` characters."""
    words = " ".join(body.partition("```")[0].split())
    end = re.search(r"[.:](?=\s|$)", words)
    return words[: end.end() if end and end.end() <= _BRIEF else _BRIEF]
