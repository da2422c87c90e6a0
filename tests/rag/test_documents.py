"""What becomes of a document: sections with titles, anchors and symbols, code whole; and a sentence for what cannot be read."""

from __future__ import annotations

import builtins
import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stitchcuda.rag import documents
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.documents import Unreadable, documents_in, outline, pdf, read_document, symbols
from tests.rag.pages_of_manuals import DITA, MANUALS, SPHINX, large_pdf
from tests.rag.pages_of_manuals import pdf as pdf_of


def read(path: Path, content: str | bytes) -> list[Chunk]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    chunks, notes = read_document(path, library="tiles", version="2.1", source="https://x/manual.html")
    assert notes == []
    return chunks


def under(chunks: list[Chunk], name: str) -> Chunk:
    """The one chunk that is found under a symbol."""
    (found,) = [chunk for chunk in chunks if name in chunk.names]
    return found


def why_not(path: Path, content: bytes = b"") -> str:
    if content:
        path.write_bytes(content)
    with pytest.raises(Unreadable) as caught:
        read_document(path, library="tiles", version="", source="x")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_page_of_sphinx(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.html", SPHINX)
    create = under(chunks, "tileCreate")
    assert create.title == "Tile Library 2.1 › Tile Library › tileCreate()"
    assert create.source == "https://x/manual.html#tilecreate"
    assert "```\ntileStatus_t tileCreate(\n    int rows);\n```" in create.text
    assert create.brief == "Makes a tile of rows rows."
    assert "Makes a tile of rows rows. It needs a handle, e.g. of a device." in create.text
    assert "Parameter | Meaning\nrows | how many rows" in create.text
    assert "- first case\n- second case" in create.text
    assert "Note: Tiles are not shared." in create.text
    assert (create.kind, create.library, create.version) == ("section", "tiles", "2.1")
    freed = under(chunks, "tileFree")
    assert freed.text == "```\nvoid tileFree(tile_t t)\n```\n\nFrees a tile.\n\nParameters: t – the tile"
    assert freed.source.endswith("#_CPPv48tileFree")
    layout = under(chunks, "tileLayout_t")
    assert layout.text == "How a tile lies in memory.\n\nThese words come after the list, and are the layout's."
    assert {"tile<t>gemm", "tileSgemm", "tileZgemm"} <= set(chunks[-1].names)


def test_a_page_of_dita(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.html", DITA)
    copied = under(chunks, "tileCopy")
    assert copied.title == "Tile Runtime API › Memory of Tiles › tileCopy"
    assert copied.source.endswith("#group_1ga")
    assert "```\n__host__ tileError_t tileCopy ( void* dst, const void* src )\n```" in copied.text
    assert "Parameters:\ndst: Where it goes" in copied.text
    assert "Returns: tileSuccess, tileErrorInvalid" in copied.text
    kinds = under(chunks, "tileCopyKind")
    assert {"tileCopyHostToDevice", "tileCopyDefault"} < set(kinds.names)
    assert "tileCopyHostToDevice = 1: From the host." in kinds.text
    assert "tileCopyDefault = 4" in kinds.text
    assert under(chunks, "major").title.endswith("› major")
    overview = next(chunk for chunk in chunks if chunk.title == "Tile Runtime API › Memory of Tiles")
    assert "tileCopy ( void* dst ): Copies a tile." in overview.text


def test_a_page_of_doxygen(tmp_path: Path) -> None:
    (zero,) = read(tmp_path / "a.html", MANUALS["doxygen"])
    assert (zero.names, zero.source) == (("tileZero",), "https://x/manual.html#ga42")
    assert "```\nvoid tileZero (tile_t t)\n```" in zero.text


@pytest.mark.parametrize("manual", MANUALS)
def test_the_frame_of_a_page_is_left_out(manual: str, tmp_path: Path) -> None:
    text = "\n".join(chunk.title + chunk.text for chunk in read(tmp_path / "a.html", MANUALS[manual]))
    for frame in ("Home of the site", "Sidebar", "cookies", "On this page", "All rights", "not text", "¶", "Tile Zone"):
        assert frame not in text


def test_any_page_has_sections(tmp_path: Path) -> None:
    body = "<p>Before.</p><h2 id=one>One</h2>text<br>and <b>more</b> text<h4>Deep</h4>"
    body += "<pre>  x;\n\n  y;</pre><h2>Two</h2><blockquote>said"
    chunks = read(tmp_path / "plain.htm", body)
    assert [chunk.title for chunk in chunks] == ["plain › One › Deep", "plain › Two"]
    assert chunks[0].text == "Before.\n\ntext\nand more text\n\n```\n  x;\n\n  y;\n```"
    assert [chunk.source for chunk in chunks] == ["https://x/manual.html"] * 2


def test_the_page_says_its_encoding(tmp_path: Path) -> None:
    assert "Größe" in read(tmp_path / "a.html", "<meta charset=iso-8859-1><p>Größe".encode("latin-1"))[0].text
    assert "Größe" in read(tmp_path / "b.html", "<?xml version='1.0' encoding='x-none'?><p>Größe".encode())[0].text
    assert "Größe" in read(tmp_path / "c.html", "<meta charset=latin-1><p>Größe".encode("utf-16"))[0].text
    assert "UTF-8" in why_not(tmp_path / "d.html", "<p>Größe".encode("latin-1"))


MARKDOWN = """---
author: nobody
---
# The `tile` notes
A [link](http://x) and an ![image](y.png).
## Use of `tile_copy`
| a | b |
|---|:-:|
| 1 | 2 |

```cpp
# no heading

## nor this
```
- one
- two
<!-- a remark
## hidden
-->
Underlined
----------
Words enough to stand on their own, which takes more than eighty characters in a row, as here.

    indented code;
## Last
Never closed:
~~~
code
"""


def test_markdown(tmp_path: Path) -> None:
    copy, underlined, last = read(tmp_path / "a.md", MARKDOWN)
    assert (copy.title, copy.names) == ("The tile notes › Use of tile_copy", ("tile_copy", "tile"))
    assert copy.text.startswith("A link and an image.")
    assert "a | b\n1 | 2\n\n```\n# no heading\n\n## nor this\n```\n\n- one\n- two" in copy.text
    assert underlined.text.endswith("```\nindented code;\n```")
    assert last.text == "Never closed:\n\n```\ncode\n```"
    assert "hidden" not in copy.text + underlined.text


RESTRUCTURED = """.. _here:

=========
The tiles
=========
:doc:`Other <x>` pages and ``code`` in a paragraph that is long enough to stand on its own feet, really.

Making
------
.. toctree::
   hidden

Like so::

    int x;

    int y;

.. code-block:: c++
   :linenos:

   tileCreate();
.. note:: Tiles are small.
.. c:function:: int tileFree(tile_t t)

   Frees a tile.
   It is gone.

Making goes on.

``tile_zero()``
~~~~~~~~~~~~~~~
Zero.
"""


def test_restructured_text(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.rst", RESTRUCTURED)
    assert chunks[0].text.startswith("Other pages and code in")
    making = next(chunk for chunk in chunks if chunk.title == "The tiles › Making")
    assert "Like so:\n\n```\nint x;\n\nint y;\n```\n\n```\ntileCreate();\n```\n\nNote: Tiles are small." in making.text
    assert making.text.endswith("Making goes on.")
    assert under(chunks, "tileFree").text == "```\nint tileFree(tile_t t)\n```\n\nFrees a tile. It is gone."
    assert under(chunks, "tile_zero").title == "The tiles › Making › tile_zero()"
    assert not any("hidden" in chunk.text or "_here" in chunk.text for chunk in chunks)


def test_plain_text(tmp_path: Path) -> None:
    (only,) = read(tmp_path / "my_notes.txt", "# not a heading\n\nkept\nas it is | so\n\n    code();\n")
    assert (only.title, only.names) == ("my notes", ())
    assert only.text == "# not a heading\n\nkept\nas it is | so\n\n```\ncode();\n```"


def test_long_sections_are_split_at_paragraphs_and_code_never_is(tmp_path: Path) -> None:
    code = "\n".join(f"line{number}();" for number in range(400))
    words = "\n\n".join(f"Paragraph {number} says this and that. " * 9 for number in range(12))
    chunks = read(tmp_path / "a.md", f"# Doc\n## Part of tile_copy()\n{words}\n```\n{code}\n```\nafter\n")
    assert [chunk.title for chunk in chunks[:3]] == [f"Doc › Part of tile_copy(){more}" for more in ("", " (2)", " (3)")]
    assert all(chunk.names == ("tile_copy",) for chunk in chunks)
    assert sum(f"```\n{code}\n```" in chunk.text for chunk in chunks) == 1
    assert all(len(chunk.text) < 2_000 for chunk in chunks if "```" not in chunk.text)
    together = "\n\n".join(chunk.text for chunk in chunks)
    assert re.findall(r"Paragraph \d+", together) == re.findall(r"Paragraph \d+", words)
    (endless, *more) = read(tmp_path / "b.txt", "x" * 5_000)
    assert len(endless.text) + sum(len(chunk.text) for chunk in more) == 5_000


def test_tiny_sections_go_to_what_follows_but_a_symbol_keeps_its_own(tmp_path: Path) -> None:
    chunks = read(tmp_path / "a.md", "# Doc\n## Aims\nShort.\n## tileA()\nAlso short.\n## tileB()\n## More\nEnd.\n# Other\nx")
    assert [(chunk.title, chunk.text) for chunk in chunks] == [
        ("Doc › tileA()", "Aims\n\nShort.\n\nAlso short."),
        ("Doc › tileB()", "tileB()"),
        ("Doc › More", "End."),
        ("Doc › Other", "x"),
    ]
    assert chunks[0].brief == "Also short."


def test_titles_keep_the_last_three_headings(tmp_path: Path) -> None:
    (deep,) = read(tmp_path / "a.md", "# Doc\n## 1. A\n### 1.2 B\n#### 1.2.3. C\n##### 2 of D\ntext")
    assert deep.title == "Doc › B › C › 2 of D"


@pytest.mark.parametrize(("heading", "names"), [
    ("cublasLtMatmulDescSetAttribute()", ("cublasLtMatmulDescSetAttribute",)),
    ("The cublasLtEpilogue_t type", ("cublasLtEpilogue_t",)),
    ("CUBLASLT_EPILOGUE_GELU and __syncwarp()", ("CUBLASLT_EPILOGUE_GELU", "__syncwarp")),
    ("cute::copy", ("cute::copy",)),
    ("Data movement: wgmma.mma_async", ("wgmma.mma_async",)),
    ("Using the cuBLASLt, cuDNN and cuFFTDx libraries with NVLink", ()),
    ("What is new in version 2.1 (beta), on GitHub", ()),
    ("", ()),
])  # fmt: skip
def test_symbols_of_headings(heading: str, names: tuple[str, ...]) -> None:
    assert symbols.in_heading(heading) == names


@pytest.mark.parametrize(("declaration", "name"), [
    ("__host__ cudaError_t cudaFree ( void* devPtr )", "cudaFree"),
    ("template<class T> void cute::copy<T>(T const& x)", "cute::copy"),
    ("size_t cudaDeviceProp::sharedMemPerBlock [inherited]", "cudaDeviceProp::sharedMemPerBlock"),
    ("cudaMemcpyHostToHost = 0", "cudaMemcpyHostToHost"),
    ("Thread block cluster", ""),
    ("", ""),
])  # fmt: skip
def test_symbols_of_declarations(declaration: str, name: str) -> None:
    assert symbols.of_declaration(declaration) == name


def test_a_pdf_has_titles_of_its_bookmarks_and_pages(tmp_path: Path) -> None:
    pages = [f"Tile book head\n{words} words on a page." for words in ("First", "Plain", "Other", "Odd", "Good", "Last")]
    pages[1] += "\n1.1 tile_copy()\nCopies a tile, which takes a while on some machines, and on others none, as they say."
    content = pdf_of(pages, [("Start", 0), ("1.1. tile_copy()", 1), ("Elsewhere", 4)], title="Tile Book")
    chunks = read(tmp_path / "a.pdf", content)
    copied = under([chunk for chunk in chunks if chunk.source.endswith(" p. 2")], "tile_copy")
    assert copied.title.startswith("Tile Book › tile_copy()")
    assert "\n\nCopies a tile, which takes a while" in copied.text
    assert {chunk.source for chunk in chunks} <= {f"https://x/manual.html p. {number}" for number in range(1, 7)}
    assert chunks[-1].title.startswith("Tile Book › Elsewhere")
    assert not any("book head" in chunk.text for chunk in chunks), "running heads are left out"


def test_a_page_of_a_pdf_that_cannot_be_read_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pypdf import PageObject

    extract = PageObject.extract_text

    def breaks(page: Any, *more: Any) -> str:
        text: str = extract(page, *more)
        if "third" in text:
            raise ZeroDivisionError("odd font")
        return text

    monkeypatch.setattr(PageObject, "extract_text", breaks)
    (tmp_path / "a.pdf").write_bytes(pdf_of(["the first", "the second", "the third", "the fourth"]))
    chunks, notes = read_document(tmp_path / "a.pdf", library="x", version="", source="a.pdf")
    assert "fourth" in chunks[-1].text
    assert notes == [f"{tmp_path}/a.pdf p. 3 cannot be read (odd font): it was left out"]


def test_a_pdf_of_300_megabytes_is_read_without_holding_it(tmp_path: Path) -> None:
    large_pdf(tmp_path / "a.pdf", 300_000_000, "Few words here")
    tracemalloc.start()
    chunks, _ = read_document(tmp_path / "a.pdf", library="x", version="", source="x")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chunks[0].text == "Few words here"
    assert most < 30_000_000
    # A download that was padded or cut has no table at its end, and is not searched for one.
    os.truncate(tmp_path / "a.pdf", 299_000_000)
    assert "cut short" in why_not(tmp_path / "a.pdf")


def test_limits_are_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "KEPT", 1_000)
    monkeypatch.setattr(pdf, "KEPT", 1_000)
    monkeypatch.setattr(documents, "LARGEST_PAGE", 4_000)
    monkeypatch.setattr(documents, "LARGEST_TEXT", 4_000)
    for name, content in {
        "a.html": b"<p>words of a page</p>" * 999,
        "a.md": b"words of a note\n\n" * 999,
        "a.pdf": pdf_of(["words of a book that goes on and on\n" * 9] * 30),
    }.items():
        (tmp_path / name).write_bytes(content)
        chunks, notes = read_document(tmp_path / name, library="x", version="", source="x")
        assert sum(len(chunk.text) for chunk in chunks) < 2_000
        assert notes
        assert all(str(tmp_path / name) in note and "split it" in note for note in notes)


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "an empty page": ("a.html", b" \n", "empty"),
    "an empty note": ("a.md", b"\xef\xbb\xbf", "empty"),
    "a page without words": ("a.html", b"<html><body><script>x()</script></body></html>", "no text"),
    "a picture named a page": ("a.html", b"\x89PNG\r\n\x1a\n\x00\x00", "binary"),
    "an archive named text": ("a.txt", b"PK\x03\x04\x14\x00\x08", "binary"),
    "no NUL but no text": ("a.txt", bytes(range(1, 9)) * 9, "binary"),
    "another encoding": ("a.md", "Größe".encode("latin-1"), "UTF-8"),
    "half of UTF-16": ("a.txt", b"\xff\xfea\x00b", "UTF-16"),
    "text named a PDF": ("a.pdf", b"Dear reader", "no PDF"),
    "a PDF cut short": ("a.pdf", b"%PDF-1.7\n1 0 obj\n<<", "damaged"),
    "another kind": ("a.docx", b"PK", "convert it"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_a_sentence(case: str, tmp_path: Path) -> None:
    name, content, words = UNREADABLE[case]
    assert words in why_not(tmp_path / name, content)


def test_encrypted_and_empty_pdfs_are_sentences(tmp_path: Path) -> None:
    assert "password" in why_not(tmp_path / "a.pdf", pdf_of(["secret"], password="x"))
    assert "no text" in why_not(tmp_path / "b.pdf", pdf_of([""]))
    assert "no pages" in why_not(tmp_path / "c.pdf", pdf_of([]))


def test_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    for name in ("folder.html", "pipe.txt", "loop.md", "none.pdf", "nul\0.txt"):
        assert why_not(tmp_path / name)


def test_without_the_extra_there_is_one_sentence_and_text_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def lacking(name: str, *more: Any) -> Any:
        if name.split(".")[0] in {"lxml", "pypdf"}:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return there(name, *more)

    content = pdf_of(["x"])
    monkeypatch.setattr(builtins, "__import__", lacking)
    for name, data in (("a.html", b"<p>x"), ("a.pdf", content)):
        assert why_not(tmp_path / name, data).endswith("run pip install 'stitchcuda[documents]'")
    assert read(tmp_path / "a.md", "# T\ntext")[0].text == "text"


def test_a_page_that_nests_without_end_is_read(tmp_path: Path) -> None:
    deep = "<div><dl><dt id=x>f()<dd><ul><li>" * 3_000 + "in the middle of it all" + "<table><tr><td>" * 3_000
    path = tmp_path / "a.html"
    path.write_text("<h1>Title</h1><p>Words before.</p>" + deep)
    chunks, (note,) = read_document(path, library="x", version="", source="x")
    assert "Words before." in chunks[0].text
    assert "nests too deep" in note


def test_what_follows_the_end_of_a_page_is_read(tmp_path: Path) -> None:
    (both,) = read(tmp_path / "a.html", "<html><body><p>First.</p></body></html><html><body><p>Second.")
    assert both.text == "First.\n\nSecond."


BOOK = pdf_of([RESTRUCTURED, MARKDOWN], [("The tiles", 0)])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=400),
    suffix=st.sampled_from(sorted(documents.SUFFIXES)),
    manual=st.sampled_from(sorted(MANUALS)),
    at=st.integers(0, 4_000),
    mixed=st.booleans(),
)
@example(data=b"<h1>", suffix=".html", manual="dita", at=100, mixed=True)
@example(data=b"\xff\xfe\x00\xd8", suffix=".txt", manual="dita", at=0, mixed=False)
def test_any_bytes_are_chunks_or_a_sentence(
    data: bytes, suffix: str, manual: str, at: int, mixed: bool, tmp_path: Path
) -> None:
    if mixed:
        sound = BOOK if suffix == ".pdf" else (MARKDOWN + RESTRUCTURED + MANUALS[manual]).encode()
        data = sound[:at] + data + sound[at + len(data) :]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    try:
        chunks, notes = read_document(path, library="x", version="", source="x")
    except Unreadable:
        why_not(path)
        return
    assert chunks
    assert all(chunk.title and chunk.text.strip() and len(chunk.brief) <= 160 for chunk in chunks)
    assert all("\n" not in text for text in (*notes, *(chunk.title for chunk in chunks), *(chunk.brief for chunk in chunks)))
    "".join(chunk.model_dump_json() for chunk in chunks).encode()


def test_documents_below_a_folder(tmp_path: Path) -> None:
    for name in ("b.html", "a.MD", "deep/er/c.pdf", "d.py", ".hidden.md", ".git/e.md", "no suffix"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    found, notes = documents_in(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a.MD", "b.html", "deep/er/c.pdf"]
    assert notes == []
    assert documents_in(tmp_path / "b.html") == ([tmp_path / "b.html"], [])


def test_a_folder_that_cannot_be_looked_into_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "shut").mkdir()
    scan = os.scandir

    def refuses(place: Any) -> Any:
        if str(place).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(place))
        return scan(place)

    # Root may look into everything, so the refusal is made here.
    monkeypatch.setattr(os, "scandir", refuses)
    found, (note,) = documents_in(tmp_path)
    assert found == [tmp_path / "a.md"]
    assert "shut cannot be looked into (permission denied)" in note
    assert "no such file" in documents_in(tmp_path / "none")[1][0]
