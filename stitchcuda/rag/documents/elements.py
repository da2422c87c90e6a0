"""What an element of a page is for: its words, its anchor, and whether it is the page's frame and not its content.

It judges one element at a time by tag, class and neighbours, and tells no outline. Elements are lxml's. Where to look next:
`rag/documents/web_page.py`, which walks over them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from stitchcuda.rag.documents import symbols
from stitchcuda.rag.documents.outline import KEPT

HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
SHORT = 300                                # characters of a member's description that needs no section
_LEFT_OUT = {
    "audio", "button", "canvas", "dialog", "footer", "form", "head", "iframe", "input", "link", "map", "meta", "nav",
    "noscript", "object", "script", "select", "style", "svg", "template", "video",
}
_CONTENT = {"html", "body", "main", "article", "section", "pre", "code", "dt", "dd", *HEADINGS}
_ROLES = {"navigation", "search", "banner", "contentinfo", "dialog", "menu", "menubar"}
_CHROME = re.compile(
    r"(?:^|[\s_-])(?:\w*sidebar|toc|toctree-wrapper|breadcrumbs?|cookies?|consent|onetrust|navbar|navigation|topnav|pagination|"
    r"prev-next|skip-link|skiplink|feedback|rst-versions|copybtn|copybutton|linenos|headerlink|related|searchbox)(?:$|[\s_-])",
    re.I,
)
_OWN_CONTENTS = {"on this page", "table of contents", "contents", "in this article"}
_LABELS = re.compile(r"fake_sectiontitle|sectiontitle|rubric|admonition-title|_header(?:\s|$)")


def inside(element: Any) -> Iterator[Any]:
    """Text and children, in order."""
    if element.text:
        yield element.text
    for child in element:
        yield child
        if child.tail:
            yield child.tail


def plain(element: Any, most: int = KEPT) -> str:
    """The text within, code's lines as they are, without what is left out; it stops past `most` characters."""
    said: list[str] = []
    size = 0
    todo: list[Any] = [element]
    while todo and size <= most:
        item = todo.pop()
        if isinstance(item, str):
            said.append(item)
            size += len(item)
        elif isinstance(item.tag, str) and (item is element or not left_out(item)):
            said.append("\n" if item.tag == "br" else "")
            todo += reversed(list(inside(item)))
    return "".join(said)


def left_out(element: Any) -> bool:
    """Navigation, banners, scripts, and what else is not the page's own text."""
    tag, kind = element.tag, element.get("class") or ""
    if tag in _LEFT_OUT or element.get("role") in _ROLES or element.get("hidden") is not None:
        return True
    if tag == "header":                    # of the site, not of an article
        return all(above.tag not in ("article", "main", "section") for above in element.iterancestors())
    if tag in _CONTENT or has_class(element, "section"):
        return False
    if has_class(element, "contents") and (has_class(element, "topic") or has_class(element, "local")):
        return True
    return bool(_CHROME.search(kind)) or (tag in {"div", "aside", "ul"} and bool(_CHROME.search(element.get("id") or "")))


def has_class(element: Any, kind: str) -> bool:
    return kind in (element.get("class") or "").split()


def lists_own_contents(element: Any) -> bool:
    """A line such as "On this page", before its list."""
    if element.tag not in {"p", "div", "span", "strong", *HEADINGS} or len(element) > 1 or any(len(child) for child in element):
        return False
    return " ".join(plain(element, 60).split()).casefold() in _OWN_CONTENTS


def is_label(element: Any) -> bool:
    """Words above a part of a description, or a line such as "Note": they are no heading, whatever they are set in."""
    return bool(_LABELS.search(element.get("class") or ""))


def is_code(element: Any) -> bool:
    """Code with its lines: `<pre>`, or the box that a tool sets around it, with line numbers and a button."""
    if element.tag == "div" and has_class(element, "highlight"):
        return element.find(".//pre") is not None and element.find(".//p") is None
    return bool(element.tag == "pre")


def list_after(element: Any) -> Any:
    """The list behind an element, if one is."""
    after = element.getnext()
    return after if after is not None and after.tag in {"ul", "ol", "div"} else None


def holds_data(table: Any) -> bool:
    """Not a table that lays out a page, nor one with code."""
    return all(table.find(f".//{tag}") is None for tag in (*HEADINGS, "dl", "pre", "table"))


def is_short(term: Any) -> bool:
    """A member's description, or none, that needs no section of its own."""
    after = next((later for later in islice(term.itersiblings(), 8) if later.tag != "dt"), None)
    return after is None or (len(plain(after, SHORT)) < SHORT and after.find(".//pre") is None)


def defines(description: Any) -> bool:
    """A description whose term begins a section."""
    earlier = islice(description.itersiblings(preceding=True), 8)
    before = next((sibling for sibling in earlier if sibling.tag == "dt"), None)
    return before is not None and bool(anchor_within(before))


def declared(term: Any, text: str) -> str:
    """The symbol that a term declares; "" if it declares none."""
    certain = has_class(term, "sig") or has_class(term, "description")
    parts = [part for part in term.iter() if isinstance(part.tag, str)]
    named = [part for part in parts if has_class(part, "descname") or has_class(part, "sig-name")]
    inside = [part for part in parts if has_class(part, "descclassname") or has_class(part, "sig-prename")]
    if named:
        return "".join("".join(plain(part).split()) for part in (inside[:1] + named[:1]))
    return symbols.of_declaration(text, certain=certain)


def anchor(element: Any) -> str:
    """`#id` of what is nearest: the link that the page offers, its own id, or that of the section around it."""
    offered = next((link.get("href") or "" for link in element.iter("a") if has_class(link, "headerlink")), "")
    if offered.startswith("#") and len(offered) > 1:
        return offered
    own = anchor_within(element) or _anchor_before(element)
    around = (above.get("id") for above in element.iterancestors("section", "div", "article", "li", "dl"))
    found = own or next((identity for identity in around if identity), "")
    return f"#{found}" if found else ""


def anchor_within(element: Any) -> str:
    """An id of an element, or of the anchor that it holds."""
    return element.get("id") or next((_target(link) for link in element.iter("a") if _target(link)), "")


def _anchor_before(element: Any) -> str:
    """Doxygen sets an empty anchor before a heading."""
    before = element.getprevious()
    if before is None or before.tag not in {"a", "span"} or len(before) or (before.text or before.tail or "").strip():
        return ""
    return _target(before)


def _target(link: Any) -> str:
    return link.get("id") or link.get("name") or ""


def title(root: Any) -> str:
    """The manual's title: Sphinx writes it after the section's, others before the site's."""
    found = root.find(".//title")
    title = " ".join("".join(found.itertext()).split()) if found is not None else ""
    if " — " in title:
        title = title.rsplit(" — ", 1)[1].removesuffix(" documentation")
    for between in (" :: ", " | "):
        title = title.split(between, 1)[0]
    if not title:
        first = next(root.iter("h1"), None)
        title = " ".join(plain(first).split()) if first is not None else ""
    return title[:200]
