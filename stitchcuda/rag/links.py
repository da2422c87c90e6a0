"""The title and the links of a page, for manuals of several pages. It fetches nothing; HTML is read by the standard library.

Where to look next: `rag/download.py`, which decides what is followed.
"""

from __future__ import annotations

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

LARGEST = 20_000_000                       # bytes of a page that are searched for links
_NOT_FOLLOWED = {"search.html", "genindex.html", "py-modindex.html"}


def of(path: Path, url: str) -> tuple[str, list[str]]:
    """Title of a page, and whole addresses of the pages that it links to, each once; nothing of what is no HTML."""
    if path.suffix != ".html":
        return "", []
    reader = _Reader()
    with path.open("rb") as file:
        reader.feed(file.read(LARGEST).decode("utf-8", "replace"))
    found: dict[str, None] = {}
    for link in reader.links:
        address = _whole(url, link)
        if address:
            found[address] = None
    return " ".join(reader.title.split())[:200], list(found)


def folder_of(url: str) -> str:
    """What the addresses of all pages beside and below `url` begin with."""
    parts = urlsplit(url)
    folder = parts.path.rsplit("/", 1)[0] + "/"
    return urlunsplit((parts.scheme, parts.netloc, folder, "", ""))


def _whole(url: str, link: str) -> str:
    """The address of a page that a link leads to; "" if it leads to none."""
    try:
        parts = urlsplit(urljoin(url, link.strip()))
    except ValueError:
        return ""
    name = posixpath.basename(parts.path)
    is_page = posixpath.splitext(name)[1].lower() in {"", ".html", ".htm"} and name not in _NOT_FOLLOWED
    if parts.scheme not in {"http", "https"} or not is_page or not parts.hostname or not link.isprintable():
        return ""
    # A query makes endless pages of one.
    return urlunsplit((parts.scheme, parts.netloc, quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/", "", ""))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.title = ""
        self._titled = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._titled = tag == "title" and not self.title
        if tag == "a":
            self.links += [value for name, value in attributes if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        self._titled = False

    def handle_data(self, data: str) -> None:
        if self._titled:
            self.title += data
