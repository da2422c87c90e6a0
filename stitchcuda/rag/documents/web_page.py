"""An HTML page, told to an outline: Sphinx's manuals, Doxygen's and DITA's references, and any other page.

Navigation, banners and scripts are left out; `<pre>` and the declaration of a definition list stay whole. It follows no link
and runs nothing. lxml reads the page: it keeps order, anchors and the lines of code, which langchain-community's BSHTMLLoader
and langchain-text-splitters' HTMLSemanticPreservingSplitter do not. Where to look next: `rag/documents/elements.py`,
`rag/documents/outline.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stitchcuda.rag.documents import elements, symbols
from stitchcuda.rag.documents.outline import Outline

Todo = Any                                 # text, an element, or what to do when an element ends
_DEFINITION = 10                           # level of a definition, below every heading
_LONGEST = 300                             # characters of a heading
_TERM = 4_000                              # characters of a declaration
_PAGE_END = re.compile(r"</(?:html|body)\s{0,9}>", re.I)
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "header", "hr", "legend", "li", "main", "ol", "p", "section", "summary", "table", "tbody", "td",
    "tfoot", "th", "thead", "tr", "ul",
}


def tell(text: str, name: str) -> tuple[Outline, bool]:
    """The outline of the page `text`, and whether all of it was read; `name` is its title if it says none.

    Raises ImportError without lxml.
    """
    from lxml import etree

    # Text that was decoded is given as UTF-8, so a page's own word on its encoding no longer counts.
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True, no_network=True)
    # What follows a misplaced end of the page is shown by browsers, and is lost on lxml.
    text = _PAGE_END.sub("", text)
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser) if text.strip() else None
    except etree.XMLSyntaxError:
        root = None                        # nothing that a browser would show either
    if root is None:
        return Outline(name), True
    page = _Page(Outline(elements.title(root) or name))
    page.read(root)
    # Elements 2,048 deep are where libxml2 stops.
    return page.outline, not any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log)


class _Page:
    """A walk over one page without recursion: pages nest as deep as they like."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.line: list[str] = []          # of the paragraph that is being read
        self.prefix = ""                   # a list's dash or a term, for the paragraph that comes next
        self.row = False
        self.depth = 0                     # of definitions
        self.skip: Any = None              # the list after "On this page"

    def read(self, root: Any) -> None:
        todo: list[Todo] = [root]
        while todo and not self.outline.full:
            item = todo.pop()
            if isinstance(item, str):
                self.line.append(item)
            elif callable(item):
                item()
            else:
                todo += reversed(list(self.enter(item)))
        self.end_paragraph()
        self.put_ahead("")

    def enter(self, element: Any) -> Iterator[Todo]:
        """What is to be done for an element, in order; nothing for one that is left out."""
        tag = element.tag
        if not isinstance(tag, str) or element is self.skip or elements.left_out(element):
            return
        if elements.is_code(element):
            yield from self.code(element)
        elif tag in elements.HEADINGS:
            yield from self.heading(element)
        elif elements.lists_own_contents(element):
            self.skip = elements.list_after(element)
        elif tag == "table" and elements.holds_data(element):
            yield from self.table(element)
        elif tag == "dt":
            yield from self.term(element)
        elif elements.has_class(element, "memproto"):
            self.end_paragraph()
            self.outline.code(" ".join(elements.plain(element).split()))
        elif tag == "br":
            self.line.append("\0")
        elif tag in _BLOCKS:
            yield from self.block(element)
        else:
            yield from elements.inside(element)

    def code(self, element: Any) -> Iterator[Todo]:
        self.end_paragraph()
        self.put_ahead("")
        self.outline.code(elements.plain(element))
        return iter(())

    def heading(self, element: Any) -> Iterator[Todo]:
        self.end_paragraph()
        title = " ".join(elements.plain(element, _LONGEST).split())
        if len(title) > _LONGEST:
            return elements.inside(element)  # a heading that was never closed holds the rest of the page
        if elements.lists_own_contents(element):
            self.skip = elements.list_after(element)
        elif self.depth or elements.is_label(element):
            self.put_ahead(title and f"{title}: ")
        else:
            self.put_ahead("")
            marked = tuple(elements.plain(part) for part in element.iter("code", "tt", "samp"))
            names = symbols.in_heading(title, marked)
            self.outline.heading(elements.HEADINGS[element.tag], title, elements.anchor(element), names)
        return iter(())

    def table(self, element: Any) -> Iterator[Todo]:
        self.end_paragraph()
        for row in element.iter("caption", "tr"):
            cells = [row] if row.tag == "caption" else [cell for cell in row if cell.tag in ("td", "th")]
            self.outline.text(" | ".join(" ".join(elements.plain(cell).split()) for cell in cells).strip(" |"), row=True)
        return iter(())

    def term(self, element: Any) -> Iterator[Todo]:
        """A definition's declaration begins a section of its own; a short member's, or a term without an id, is a row."""
        self.end_paragraph()
        # Outside of code, declarations are laid out in lines and columns that mean nothing.
        text = " ".join(elements.plain(element, _TERM).split())
        if len(text) > _TERM:
            return self.block(element)
        name = elements.declared(element, text)
        short = self.depth > 0 and elements.is_short(element)
        if not elements.anchor_within(element) or short or not text:
            self.put_ahead(text and f"{text}: ", row=True)
            if name and (short or elements.has_class(element, "enumerator")):
                self.outline.named(name)
            return iter(())
        self.put_ahead("")
        before = element.getprevious()
        if before is None or before.tag != "dt" or not self.outline.empty:
            self.outline.heading(_DEFINITION + self.depth, name or text, elements.anchor(element), (name,) if name else ())
        elif name:
            self.outline.named(name)
        if name or elements.has_class(element, "sig"):
            self.outline.code(text)
        return iter(())

    def block(self, element: Any) -> Iterator[Todo]:
        self.end_paragraph()
        deeper = element.tag == "dd" and elements.defines(element)
        self.depth += deeper
        if element.tag == "li":
            self.put_ahead("- ", row=True)
        yield from elements.inside(element)
        yield self._end_label if elements.is_label(element) and element.tag == "p" else self.end_paragraph
        if element.tag == "dl":
            yield self._end_list
        elif deeper:
            yield self._end_definition

    def _end_label(self) -> None:
        """Words such as "Note", set above a paragraph."""
        said, self.line = " ".join("".join(self.line).split()), []
        self.put_ahead(said and f"{said}: ")

    def _end_list(self) -> None:
        self.put_ahead("")
        self.outline.close(_DEFINITION + self.depth)

    def _end_definition(self) -> None:
        self.depth -= 1

    def put_ahead(self, prefix: str, *, row: bool = False) -> None:
        """Sets what goes ahead of the next paragraph; what waited for one in vain stands alone, but for a dash."""
        if self.prefix.strip(" -"):
            self.outline.text(self.prefix, row=True)
        self.prefix, self.row = prefix, row

    def end_paragraph(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self.line).split("\0"))
        text = "\n".join(line for line in lines if line)
        self.line = []
        if text:
            self.outline.text(self.prefix + (text.removeprefix("- ") if self.prefix else text), row=self.row)
            self.prefix, self.row = "", False
