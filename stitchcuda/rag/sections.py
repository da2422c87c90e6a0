"""Splits LangChain documents into chunks: by headings, then by length, with what a citation shows.

HTML becomes Markdown first: the HTML splitters of langchain-text-splitters change the order of words and the lines of code,
and drop anchors. Where to look next: `rag/additions.py`, which keeps the chunks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.documents import Document

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.loaders import is_url
from stitchcuda.rag.playbook_pages import first_sentence

if TYPE_CHECKING:
    from bs4 import Tag

LONG = 1_800                               # characters of a chunk
_LEVELS = "123456"
_MARKDOWN = (".md", ".markdown")
_HTML = re.compile(r"\s*<(?:!doctype html|!--|\?xml|[a-z][a-z0-9]*[\s>])", re.I)
_FENCE = re.compile(r"^(?:```|~~~)", re.M)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.S)
_UNDERLINED = re.compile(r"^(\S.*)\n([=~-])\2{2,}[ \t]*$", re.M)
_ANCHOR = re.compile(r"\s*\{#([^\s}]+)[^}]*\}\s*$")
_NUMBER = re.compile(r"^(?:\d+\.)+(?:\d+\.?)?\s+(?=\S)")
_SYMBOL = re.compile(r"(?:^|[\s*&])(?P<called>[A-Za-z_][\w:]*)\(|^(?P<alone>[a-z]+[A-Z][a-z]\w*|[A-Za-z]\w*(?:_|::)[\w:.]+)$")
_CONTENT = ("article", "main", "[role=main]", "div.contents")
_FRAME = (
    "script, style, template, noscript, nav, form, button, footer, body > header, [role=navigation], [role=search], "
    ".headerlink, .permalink, .toctree-wrapper, .bd-toc"
)


class Section(NamedTuple):
    """A part of one document."""

    path: tuple[str, ...]                  # headings around it, from the outermost
    anchor: str                            # of the innermost heading, "" for none
    whole: bool                            # the path begins with the document's own title
    text: str


def chunks(
    documents: Iterable[Document], unread: list[str], *, library: str, version: str, within: str = ""
) -> list[Chunk]:
    """Returns the documents' sections as chunks of kind "section", in order; each is at most `LONG` characters.

    A citation has a document's `source` (relative to the folder `within`), its `page` or the section's anchor, and its `title`.
    HTML that nests too deep is left out and named in `unread`. Raises ImportError without the extra `documents`.
    """
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    by_length = RecursiveCharacterTextSplitter(chunk_size=LONG, chunk_overlap=0)
    found: list[Chunk] = []
    seen: Counter[tuple[str, str]] = Counter()
    for document in documents:
        source = str(document.metadata["source"])
        name = str(document.metadata.get("title") or "").strip() or Path(source).stem.replace("_", " ")
        try:
            sections = list(_sections(document))
        except RecursionError:
            unread.append(f"{source} nests too deep to be read: save it anew, as text")
            continue
        for section in sections:
            cited = f"{_shown(source, within)}{_page(document)}{f'#{section.anchor}' if section.anchor else ''}"
            title = " › ".join(section.path if section.whole else (name, *section.path))
            for text in by_length.split_text(section.text):
                seen[cited, title] += 1
                number = seen[cited, title]
                found.append(Chunk(
                    library=library,
                    version=version,
                    source=cited,
                    kind="section",
                    title=title if number == 1 else f"{title} ({number})",
                    text=text,
                    names=_names(section.path),
                    brief=first_sentence(text),
                ))  # fmt: skip
    return found


def _sections(document: Document) -> Iterator[Section]:
    text, suffix = document.page_content, Path(str(document.metadata["source"])).suffix.lower()
    if suffix in _MARKDOWN:
        yield from _by_headings(_FRONT_MATTER.sub("", text))
    elif _HTML.match(text):
        yield from _by_headings(markdown_of(text))
    elif suffix == ".rst":
        yield from _by_headings(_UNDERLINED.sub(lambda found: f"{'#' * ('=-~'.index(found[2]) + 1)} {found[1]}", text))
    else:
        yield Section((), "", False, text)


def _by_headings(text: str) -> Iterator[Section]:
    from langchain_text_splitters import ExperimentalMarkdownSyntaxTextSplitter  # the other one strips the lines of code

    if len(_FENCE.findall(text)) % 2:      # code that is never closed would be left out
        text += "\n```"
    splitter = ExperimentalMarkdownSyntaxTextSplitter([("#" * int(level), level) for level in _LEVELS])

    def headings(part: Document) -> list[tuple[str, str]]:
        return [(level, part.metadata[level]) for level in _LEVELS if level in part.metadata]

    for path, parts in groupby(splitter.split_text(text), headings):
        anchor = _ANCHOR.search(path[-1][1]) if path else None
        yield Section(
            tuple(_plain(heading) for _, heading in path), anchor[1] if anchor else "", bool(path) and path[0][0] == "1",
            "".join(part.page_content for part in parts).strip(),
        )  # fmt: skip


def markdown_of(html: str) -> str:
    """Returns a page's content as Markdown, code unchanged, with each heading's anchor behind it as `{#id}`.

    Raises RecursionError for HTML that nests too deep."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    page = BeautifulSoup(html, "lxml")
    marked = (found[0] for mark in _CONTENT if len(found := page.select(mark)) == 1)
    content = next(marked, page.body or page)
    for label in content.select("dd :is(h1, h2, h3, h4, h5, h6)"):
        label.name = "p"                   # such as "Parameters" in a description
    for term in content.select("dt[id]:not(.enumerator, dd *), dt.description:has(a[id])"):
        term.name = "h6"                   # what Sphinx and DITA declare in lists of definitions
        if description := term.find_next_sibling("dd"):
            description.name = "div"
    for heading in content.select("h1, h2, h3, h4, h5, h6"):
        anchor = _anchor(heading)
        heading.append(f" {{#{anchor}}}" if anchor else "")
    for tag in content.select(_FRAME):
        tag.decompose()
    converter = MarkdownConverter(escape_asterisks=False, escape_underscores=False, heading_style="ATX", strip=["a", "img"])
    return str(converter.convert_soup(content))


def _anchor(heading: Tag) -> str:
    """Returns the id that leads to a heading: its own, that of a link in it, or that of the section around it."""
    link, inside = heading.select_one('a[href^="#"]'), heading.select_one("a[id]")
    around = heading.find_parent(["section", "div"], id=True)
    found = heading.get("id") or (inside and inside["id"]) or (link and str(link["href"])[1:]) or (around and around["id"])
    return str(found or "")


def _plain(heading: str) -> str:
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", _ANCHOR.sub("", heading))
    return _NUMBER.sub("", " ".join(heading.replace("`", "").replace("**", "").strip("# ").split()))[:300]


def _names(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the symbol in a heading such as `cublasLtMatmul()` or `tile_copy`, by which the section is found as well."""
    found = _SYMBOL.search(path[-1]) if path else None
    return (found["called"] or found["alone"],) if found else ()


def _shown(source: str, within: str) -> str:
    if is_url(source) or not Path(source).is_absolute():
        return source
    return source.removeprefix(f"{within}/") if within and source.startswith(f"{within}/") else Path(source).name


def _page(document: Document) -> str:
    """Returns " p. N". Loaders of PDFs count pages from 0 in `page`; the printed number is `page_label`."""
    page = document.metadata.get("page")
    label = document.metadata.get("page_label") or (page + 1 if isinstance(page, int) else page)
    return f" p. {label}" if label else ""
