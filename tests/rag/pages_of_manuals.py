"""Small manuals of a library that does not exist, built as Sphinx, DITA and Doxygen build theirs; and PDFs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPHINX = """<!DOCTYPE html><html><head><title>1. Introduction — Tile Library 2.1 documentation</title><style>p{}</style></head>
<body><header class="bd-header"><nav>Home of the site</nav></header><div class="bd-sidebar-primary">Sidebar</div>
<div id="cookie-banner">We like cookies</div>
<main><div class="bd-toc"><p>On this page</p><ul><li>tileCreate</li></ul></div>
<section id="tile-library"><h1>1. Tile Library<a class="headerlink" href="#tile-library">#</a></h1>
<p>Tiles are small matrices, and this library makes, copies and frees them on request of a program.</p>
<section id="tilecreate"><h2><span class="section-number">1.1. </span><code class="docutils"><span
class="pre">tileCreate()</span></code><a class="headerlink" href="#tilecreate" title="Link">¶</a></h2>
<div class="highlight-c++ notranslate"><div class="highlight"><button class="copybtn">Copy</button><pre><span></span><span
>tileStatus_t</span> <span>tileCreate</span><span>(</span>
    <span>int</span> <span>rows</span><span>);</span>
</pre></div></div>
<p>Makes a tile of <code>rows</code> rows. It needs <a href="#x">a handle</a>, e.g. of a device.</p>
<div class="admonition note"><p class="admonition-title">Note</p><p>Tiles are not shared.</p></div>
<table><thead><tr><th>Parameter</th><th>Meaning</th></tr></thead>
<tbody><tr><td><p>rows</p></td><td><p>how many rows</p></td></tr></tbody></table>
<ul><li><p>first case</p></li><li>second case</li></ul></section>
<section id="tilelayout-t"><h2>1.2. tileLayout_t</h2><p>How a tile lies in memory.</p>
<dl class="cpp function"><dt class="sig sig-object cpp" id="_CPPv48tileFree"><span>void</span> <span
class="sig-name descname"><span class="pre">tileFree</span></span><span class="sig-paren">(</span>tile_t t<span>)</span>
<a class="headerlink" href="#_CPPv48tileFree">#</a></dt>
<dd><p>Frees a tile.</p><dl class="field-list simple"><dt class="field-odd">Parameters</dt>
<dd><p>t – the tile</p></dd></dl></dd></dl>
<p>These words come after the list, and are the layout's.</p></section>
<section id="gemm"><h2>1.3. tile&lt;t&gt;gemm()</h2><p>Multiplies.</p></section>
</section></main><footer>All rights</footer><script>var x = "not text";</script></body></html>"""

DITA = """<html><head><title>Tile Runtime API :: Tile Toolkit Documentation</title></head><body>
<header id="header"><span>Tile Zone</span></header>
<div id="site-content"><nav id="site-nav">1. Modules</nav><div id="contents-container"><article id="contents">
<div class="topic reference apiRef" id="group__TILE__MEMORY"><a name="group__TILE__MEMORY" shape="rect"><!-- --></a>
<h3 class="title topictitle2"><a href="#group__TILE__MEMORY" shape="rect">4.2. Memory of Tiles</a></h3>
<div class="section">This part says how the memory of tiles is had, given back and copied between the host and a device.</div>
<h3 class="fake_sectiontitle member_header">Functions</h3>
<dl class="members"><dt><span class="member_type">__host__ </span><span class="member_name"><a href="#group_1ga"
>tileCopy</a> ( void* dst ) </span></dt><dd class="shortdesc"><span></span><span class="desc">Copies a tile.</span></dd></dl>
<h3 class="fake_sectiontitle">Functions</h3>
<dl class="description"><dt class="description"><a name="group_1ga" id="group_1ga" shape="rect"><!-- --></a
><span>__host__&nbsp;<a href="#t">tileError_t</a> tileCopy ( void*&nbsp;dst, const void*&nbsp;src ) </span></dt>
<dd class="description"><div class="section">Copies a tile. </div>
<div class="section"><h6 class="parameter_header">Parameters</h6><dl class="table-display-params">
<dt><tt class="code"><span class="keyword keyword apiItemName">dst</span></tt></dt><dd>- Where it goes</dd></dl></div>
<div class="section"><h6 class="return_header">Returns</h6><p class="return">tileSuccess, tileErrorInvalid</p></div></dd>
<dt class="description"><a id="group_1gb"></a><span>enum tileCopyKind</span></dt><dd class="description">
<div class="section"><h6 class="enum_header">Values</h6><dl class="enumerator">
<dt class="enumerator" id="e1">tileCopyHostToDevice = 1</dt><dd>From the host.</dd>
<dt class="enumerator" id="e2">tileCopyDefault = 4</dt><dd></dd></dl></div></dd>
<dt class="description"><a id="group_1gc"></a><span>int major</span></dt><dd class="description">The major version.</dd>
</dl></div></article></div></div></body></html>"""

DOXYGEN = """<html><head><title>Tiles: tile.h File Reference</title></head><body>
<div id="nav-path" class="navpath navigation">x</div>
<div class="contents"><a id="ga42"></a><h2 class="memtitle"><span class="permalink"><a href="#ga42">&#9670;&#160;</a></span
>tileZero()</h2><div class="memitem"><div class="memproto"><table class="memname"><tr><td class="memname">void tileZero </td>
<td>(</td><td class="paramtype">tile_t&#160;</td><td class="paramname"><em>t</em>)</td></tr></table></div>
<div class="memdoc"><p>Sets a tile to zero.</p></div></div></div></body></html>"""

MANUALS = {"sphinx": SPHINX, "dita": DITA, "doxygen": DOXYGEN}


def pdf(pages: list[str], bookmarks: Sequence[tuple[str, int]] = (), title: str = "", password: str = "") -> bytes:
    """A PDF of lines of text, by pypdf; bookmarks are (title, page from 0)."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer: Any = PdfWriter()
    font = writer._add_object(DictionaryObject({
        NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    }))  # fmt: skip
    for text in pages:
        page = writer.add_blank_page(600, 800)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        lines = " ".join(f"({line}) Tj 0 -14 Td" for line in text.replace("(", "\\(").replace(")", "\\)").split("\n"))
        stream.set_data(f"BT /F1 12 Tf 50 750 Td {lines} ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(stream)
    for name, number in bookmarks:
        writer.add_outline_item(name, number)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password)
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def large_pdf(path: Path, size: int, words: str) -> None:
    """Writes a sound PDF of about `size` bytes, nearly all of them a hole that holds nothing and takes no room."""
    text = f"BT /F1 12 Tf 9 99 Td ({words}) Tj ET"
    bodies = ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
              "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>",
              f"<</Length {len(text)}>>\nstream\n{text}\nendstream",
              "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]  # fmt: skip
    objects, table = "", "0000000000 65535 f \n"
    for number, body in enumerate(bodies, 1):
        table += f"{size + len(objects):010d} 00000 n \n"
        objects += f"{number} 0 obj\n{body}\nendobj\n"
    end = f"xref\n0 6\n{table}trailer<</Size 6/Root 1 0 R>>\nstartxref\n{size + len(objects)}\n%%EOF\n"
    with path.open("wb") as file:
        file.write(b"%PDF-1.4\n")
        file.seek(size)
        file.write((objects + end).encode())
