"""Reads our own pages on techniques (`rag/playbook/*.md`) and skeletons (`rag/skeletons/*.cu`) into chunks.

A page gives one chunk for each section, a skeleton, which is a file that compiles and runs, one. They need no toolkit.
Where to look next: `rag/playbook/` and `rag/skeletons/` (the texts), `rag/targets.py` (which of them hold for a target).
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


def skeletons() -> dict[str, str]:
    """Returns the skeletons' CUDA C++ by name (the file's without its suffix)."""
    folder = importlib.resources.files("stitchcuda.rag") / "skeletons"
    found = sorted((path for path in folder.iterdir() if path.name.endswith(".cu")), key=lambda path: path.name)
    return {path.name.removesuffix(".cu"): path.read_text("utf-8") for path in found}


def skeleton_title(text: str) -> str:
    """Returns what a skeleton is, by its first line: up to the colon."""
    return text.partition("\n")[0].removeprefix("// ").partition(":")[0].rstrip(".")


def chunks() -> list[Chunk]:
    """Returns a chunk for each section of each page, and for each skeleton. A page's first chunk is its introduction, which has
    the slug as a name; `inside` holds the API names in a section's text. A skeleton is found as `skeleton:NAME`, too."""
    return [*(chunk for slug, text in pages().items() for chunk in _page(slug, text)), *map(_skeleton, skeletons().items())]


def _skeleton(named: tuple[str, str]) -> Chunk:
    name, text = named
    title = skeleton_title(text)
    comment, _, code = text.partition("#include")          # where the code does not fit, its comment may be shown
    return Chunk(
        library=LIBRARY, version="", source=f"skeleton:{name}", kind="technique", title=f"Skeleton: {title}",
        text=f"{comment}```cuda\n#include{code.rstrip()}\n```", names=(f"skeleton:{name}", name), brief=title,
    )  # fmt: skip


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
