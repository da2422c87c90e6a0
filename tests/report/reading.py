"""A report's HTML as a test reads it: its text, its links and ids, what could run, what could be loaded. No browser."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

LOADING = {"src", "srcset", "action", "formaction", "data", "poster", "background", "ping"}


class Page(HTMLParser):
    """Elements and text of one page."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.loading: list[str] = []
        self.handlers: list[str] = []
        self._open: str | None = None
        self._text: list[str] = []
        self.feed(data.decode())

    @property
    def text(self) -> str:
        """What is read, without scripts and styles, white space put together."""
        return " ".join("".join(self._text).split())

    @property
    def drawings(self) -> dict[str, Any]:
        """What is drawn."""
        (found,) = [text for attributes, text in self.scripts if attributes.get("id") == "drawings"]
        drawings: dict[str, Any] = json.loads(found)
        return drawings

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.loading += [name for name in attributes if name in LOADING]
        self.handlers += [name for name in attributes if name.startswith("on")]
        if tag == "a":
            self.links.append(attributes.get("href") or "")
        if tag in ("script", "style"):
            self._open = tag
            self.scripts += [(attributes, "")] if tag == "script" else []

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = None
        if tag in ("td", "th", "dt", "dd", "p", "li", "span"):
            self._text.append(" ")

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data
        elif self._open is None:
            self._text.append(data)
