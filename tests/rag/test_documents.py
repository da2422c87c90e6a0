"""What becomes of an added document: sections with titles, anchors, pages and names; or a sentence why it is not read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_community.document_loaders import BSHTMLLoader, TextLoader
from langchain_core.documents import Document
from langchain_text_splitters import HTMLHeaderTextSplitter

from stitchcuda import remedies
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import loaders, sections
from stitchcuda.rag.chunk import Chunk
from tests.rag.pages_of_manuals import DITA, MANUALS, SPHINX, large_pdf
from tests.rag.pages_of_manuals import pdf as pdf_of
from tests.rag.site import Site, page, status


def read(path: Path, content: str | bytes, within: Path | None = None) -> list[Chunk]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    documents, notes = loaders.load(str(path))
    assert notes == []
    return split(documents, within=str(within or path))


def split(documents: list[Document], within: str = "") -> list[Chunk]:
    unread: list[str] = []
    found = sections.chunks(documents, unread, library="tiles", version="2.1", within=within)
    assert unread == []
    return found


def under(chunks: list[Chunk], name: str) -> Chunk:
    """The one chunk that is found under a symbol."""
    (found,) = [chunk for chunk in chunks if name in chunk.names]
    return found


def why_not(path: Path, content: bytes = b"") -> str:
    if content:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        loaders.load(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_page_of_sphinx(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.html", SPHINX)
    create = under(chunks, "tileCreate")
    assert (create.title, create.source) == ("Tile Library › tileCreate()", "a.html#tilecreate")
    assert "```\ntileStatus_t tileCreate(\n    int rows);\n```" in create.text
    assert "Makes a tile of `rows` rows. It needs a handle, e.g. of a device." in create.text
    assert "| Parameter | Meaning |\n| --- | --- |\n| rows | how many rows |" in create.text
    assert "* first case\n* second case" in create.text
    assert (create.kind, create.library, create.version) == ("section", "tiles", "2.1")
    freed = under(chunks, "tileFree")
    assert (freed.title, freed.source) == ("Tile Library › tileLayout_t › void tileFree(tile_t t)", "a.html#_CPPv48tileFree")
    assert freed.text.startswith("Frees a tile.\n\nParameters\n:   t – the tile")
    assert under(chunks, "tileLayout_t").text == "How a tile lies in memory."


def test_a_page_of_dita(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.html", DITA)
    (copied,) = [chunk for chunk in chunks if chunk.title.endswith("tileCopy ( void* dst, const void* src )")]
    assert copied.source == "a.html#group_1ga"
    assert "dst\n:   - Where it goes\n\nReturns\n\ntileSuccess, tileErrorInvalid" in copied.text
    (kinds,) = [chunk for chunk in chunks if chunk.title.endswith("enum tileCopyKind")]
    assert "tileCopyHostToDevice = 1\n:   From the host." in kinds.text
    assert chunks[0].title == "a › Memory of Tiles"


def test_a_page_of_doxygen(tmp_path: Path) -> None:
    (zero,) = read(tmp_path / "a.html", MANUALS["doxygen"])
    assert (zero.names, zero.source) == (("tileZero",), "a.html#ga42")
    assert zero.text.endswith("Sets a tile to zero.")


@pytest.mark.parametrize("manual", MANUALS)
def test_the_frame_of_a_page_is_left_out(manual: str, tmp_path: Path) -> None:
    text = "\n".join(chunk.title + chunk.text for chunk in read(tmp_path / "a.html", MANUALS[manual]))
    for frame in ("Home of the site", "Sidebar", "cookies", "On this page", "All rights", "not text", "¶", "Tile Zone"):
        assert frame not in text


def test_why_html_becomes_markdown_first(tmp_path: Path) -> None:
    """Where LangChain's own way keeps words, code and headings, ours can go."""
    (tmp_path / "a.html").write_text(SPHINX)
    (loaded,) = BSHTMLLoader(tmp_path / "a.html").load()
    assert "# 1. Tile Library" not in loaded.page_content
    assert "#tilecreate" not in loaded.page_content
    parts = HTMLHeaderTextSplitter([("h2", "2")]).split_text(SPHINX)
    text = "\n".join(part.page_content for part in parts)
    assert "needs a handle, e.g. of a device" not in " ".join(text.split())
    assert "tileCreate(\n    int rows);" not in text


def test_any_page_has_sections(tmp_path: Path) -> None:
    body = "<p>Before.</p><h2 id=one>One</h2>text <b>more</b> text<h4>Deep</h4><pre>  x;\n\n  y;</pre><h2>Two</h2><p>said"
    chunks = read(tmp_path / "plain.htm", body)
    assert [(chunk.title, chunk.source, chunk.text) for chunk in chunks] == [
        ("plain", "plain.htm", "Before."),
        ("plain › One", "plain.htm#one", "text **more** text"),
        ("plain › One › Deep", "plain.htm", "```\n  x;\n\n  y;\n```"),
        ("plain › Two", "plain.htm", "said"),
    ]


def test_a_page_that_nests_without_end_is_a_sentence(tmp_path: Path) -> None:
    unread: list[str] = []
    deep = Document("<div><ul><li>" * 3_000 + "in the middle of it all", metadata={"source": "deep.html"})
    flat = Document("<p>flat", metadata={"source": "flat.html"})
    (found,) = sections.chunks([deep, flat], unread, library="x", version="")
    assert found.text == "flat"
    assert unread == ["deep.html nests too deep to be read: save it anew, as text"]


MARKDOWN = """---
author: nobody
---
# The `tile` notes
As before.
## Use of `tile_copy`
```python
# no heading

    def f():

## nor this
```
- one
    - two
## [Last](x.md) ##
Never closed:
~~~
code
"""


def test_markdown(tmp_path: Path) -> None:
    first, copy, last = read(tmp_path / "a.md", MARKDOWN)
    assert (first.title, first.text) == ("The tile notes", "As before.")
    assert copy.title == "The tile notes › Use of tile_copy"
    assert copy.text == "```python\n# no heading\n\n    def f():\n\n## nor this\n```\n- one\n    - two"
    assert (last.title, last.text) == ("The tile notes › Last", "Never closed:\n~~~\ncode\n\n```")


def test_restructured_text_has_sections(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.rst", "Tiles\n=====\nSmall.\n\ntile_copy()\n-----------\nCopies::\n\n    int x;\n")
    assert [chunk.title for chunk in chunks] == ["Tiles", "Tiles › tile_copy()"]
    assert [chunk.text for chunk in chunks] == ["Small.", "Copies::\n\n    int x;"]
    assert chunks[1].names == ("tile_copy",)


def test_plain_text(tmp_path: Path) -> None:
    (only,) = read(tmp_path / "my_notes.txt", "# not a heading\n\nkept\nas it is | so\n\n    code();\n")
    assert (only.title, only.names) == ("my notes", ())
    assert only.text == "# not a heading\n\nkept\nas it is | so\n\n    code();"


def test_long_sections_are_split_at_paragraphs(tmp_path: Path) -> None:
    words = "\n\n".join(f"Paragraph {number} says this and that. " * 9 for number in range(18))
    chunks = read(tmp_path / "a.md", f"# Doc\n## Part of tile_copy\n{words}\n")
    assert [chunk.title for chunk in chunks[:3]] == [f"Doc › Part of tile_copy{more}" for more in ("", " (2)", " (3)")]
    assert all(len(chunk.text) <= sections.LONG for chunk in chunks)
    together = "\n\n".join(chunk.text for chunk in chunks)
    assert re.findall(r"Paragraph \d+", together) == re.findall(r"Paragraph \d+", words)


@pytest.mark.parametrize(("heading", "names"), [
    ("cublasLtMatmulDescSetAttribute()", ("cublasLtMatmulDescSetAttribute",)),
    ("3.4.20. cublasLtMatmul()", ("cublasLtMatmul",)),
    ("`CUBLASLT_EPILOGUE_GELU`", ("CUBLASLT_EPILOGUE_GELU",)),
    ("cute::copy", ("cute::copy",)),
    ("cublasLtMatmul", ("cublasLtMatmul",)),
    ("cuBLAS", ()),
    ("What is new in version 2.1 (beta), on GitHub", ()),
])  # fmt: skip
def test_a_heading_that_is_a_symbol_is_its_name(heading: str, names: tuple[str, ...]) -> None:
    (found,) = split([Document(f"# {heading}\ntext", metadata={"source": "a.md"})])
    assert found.names == names


def test_a_pdf_is_cited_with_its_pages(tmp_path: Path) -> None:
    content = pdf_of([f"{words} words on a page." for words in ("First", "Plain", "Other")], title="Tile Book")
    chunks = read(tmp_path / "a.pdf", content)
    assert [(chunk.title, chunk.source) for chunk in chunks] == [("Tile Book", f"a.pdf p. {number}") for number in (1, 2, 3)]
    assert chunks[1].text == "Plain words on a page."


def test_a_page_of_a_pdf_that_is_damaged_stops_no_other(tmp_path: Path) -> None:
    content = pdf_of(["the first", "the second", "the third"]).replace(b"(the second) Tj", b"<zz (( second Tj")
    assert [chunk.source for chunk in read(tmp_path / "a.pdf", content)] == ["a.pdf p. 1", "a.pdf p. 3"]


def test_a_large_pdf_is_read(tmp_path: Path) -> None:
    large_pdf(tmp_path / "a.pdf", 100_000_000, "Few words here")
    documents, _ = loaders.load(str(tmp_path / "a.pdf"))
    assert split(documents)[0].text == "Few words here"


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "a picture named a page": ("a.html", b"\x89PNG\r\n\x1a\n\x00\x00", "UnicodeDecodeError"),
    "another encoding": ("a.md", "Größe".encode("latin-1"), "by TextLoader (UnicodeDecodeError: 'utf-8' codec can't decode"),
    "text named a PDF": ("a.pdf", b"Dear reader", "Data format error"),
    "a PDF with a password": ("a.pdf", pdf_of(["secret"], password="x"), "Incorrect password"),
    "another kind": ("a.docx", b"PK", "no loader is known for a.docx: name one of langchain_community.document_loaders"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_a_sentence(case: str, tmp_path: Path) -> None:
    name, content, words = UNREADABLE[case]
    assert words in why_not(tmp_path / name, content)


def test_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    assert "pipe.txt is no regular file" in why_not(tmp_path / "pipe.txt")
    assert "loop.md is not here" in why_not(tmp_path / "loop.md")
    assert "none.pdf is not here: name a file, a folder or a URL" in why_not(tmp_path / "none.pdf")


def test_a_folder_is_read_without_what_is_hidden_linked_or_unreadable(tmp_path: Path) -> None:
    root = tmp_path / "notes"
    for name in ("b.html", "a.MD", "deep/er/c.txt", "d.py", ".hidden.md", ".git/e.md", "no suffix"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<p>x")
    (root / "deep" / "loop").symlink_to(root)
    (root / "binary.md").write_bytes(bytes(range(256)))
    documents, (note,) = loaders.load(str(root))
    assert [chunk.source for chunk in split(documents, within=str(root))] == ["a.MD", "b.html", "deep/er/c.txt"]
    assert note.startswith(f"{root}/binary.md cannot be read by TextLoader (UnicodeDecodeError: ")
    (tmp_path / "none").mkdir()
    with pytest.raises(BadInput, match=r"there is nothing to read below .*/none: it reads \.htm, \.html, "):
        loaders.load(str(tmp_path / "none"))


def test_a_loader_that_is_named_reads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tile,won\n128x96,yes\n")
    documents, _ = loaders.load(str(tmp_path / "a.csv"), "CSVLoader")
    (found,) = split(documents)
    assert found.text == "tile: 128x96\nwon: yes"
    with pytest.raises(BadInput, match="has no 'CVSLoader'; nearest: CSVLoader"):
        loaders.load(str(tmp_path / "a.csv"), "CVSLoader")
    with pytest.raises(Unavailable, match=r"Docx2txtLoader needs a package that is not installed: .*docx2txt"):
        loaders.load(str(tmp_path / "a.csv"), "Docx2txtLoader")


def test_a_page_of_the_web(tmp_path: Path) -> None:
    with Site() as site:
        site.replies["/guide/index.html"] = [page("<h1 id=t>Tiles</h1><p>A tile is small. <a href=\"more.html\">More</a>")]
        site.replies["/guide/more.html"] = [page("<h1>More</h1><p>A tile is square.")]
        site.replies["/book.pdf"] = [page("", kind="application/pdf")]
        site.replies["/broken.html"] = [status(500)]
        url = f"{site.url}/guide/index.html"
        (found,) = split(loaders.load(url)[0])
        assert (found.citation, found.text) == (f"Tiles (tiles 2.1, {url}#t)", "A tile is small. More")
        assert site.paths == ["/guide/index.html"]
        both = split(loaders.load(url, "RecursiveUrlLoader")[0])
        assert [chunk.title for chunk in both] == ["Tiles", "More"]
        for name, why in (("none.html", "Received HTTP status 404"), ("broken.html", "500"), ("book.pdf", "Data format error")):
            with pytest.raises(BadInput, match=why):
                loaders.load(f"{site.url}/{name}")
    with pytest.raises(BadInput, match="Connection refused"):
        loaders.load(url)


def test_documents_of_langchain_keep_their_sources(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Tiles\nA tile.")
    (found,) = split(TextLoader(tmp_path / "a.md").load())
    assert found.citation == "Tiles (tiles 2.1, a.md)"
    paged = Document("words", metadata={"source": "https://x/book.pdf", "page": 3, "page_label": "iv", "title": "Book"})
    assert split([paged])[0].citation == "Book (tiles 2.1, https://x/book.pdf p. iv)"


def test_reading_documents_loads_no_torch(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(SPHINX)
    (tmp_path / "b.pdf").write_bytes(pdf_of(["words"]))
    code = (
        f"import sys; from stitchcuda.rag import loaders, sections; found, _ = loaders.load({str(tmp_path)!r}); "
        "assert len(sections.chunks(found, [], library='x', version='')) > 4; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_extra_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("x")
    monkeypatch.setitem(sys.modules, "langchain_community", None)
    with pytest.raises(Unavailable, match=rf"a\.md needs langchain-community: {re.escape(remedies.extra('documents'))}$"):
        loaders.load(str(tmp_path / "a.md"))
