"""Documents of any LangChain loader in the index: what replaces what, what is kept, and what damage does."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_community.document_loaders import CSVLoader
from langchain_core.documents import Document

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import DocsRetriever, add_documents, added_files, additions, index_store
from stitchcuda.rag.building import build


def note(text: str, source: str = "mine.md") -> Document:
    return Document(text, metadata={"source": source})


def libraries() -> dict[str, int]:
    built = build(model=None)
    assert built is not None
    return built.manifest.libraries


def cited(words: str) -> list[str]:
    return [str(found.metadata["citation"]) for found in DocsRetriever(k=3).invoke(words)]


def test_the_documents_of_a_loader_are_found_at_once(small: Path, tmp_path: Path) -> None:
    assert "tiles (measured 7, tiles.csv)" not in cited("odd projection")
    (tmp_path / "tiles.csv").write_text("tile,projection\n96,odd\n128,even\n")
    add_documents(CSVLoader(tmp_path / "tiles.csv").lazy_load(), library="measured", version="7")
    found = DocsRetriever(k=2, libraries=("measured",)).invoke("odd projection")
    assert found[0].page_content == "tile: 96\nprojection: odd"
    assert found[0].metadata["citation"] == "tiles (measured 7, tiles.csv)"


def test_the_same_source_is_replaced_and_others_stay(small: Path) -> None:
    add_documents([note("# Tiles\nA walrus won."), note("# Warps\nA gannet won.", "other.md")])
    assert libraries()["notes"] == 2
    add_documents([note("# Tiles\nAn ibex won.\n# More\nAn okapi too.")])
    assert libraries()["notes"] == 3
    assert cited("okapi")[0] == "More (notes, mine.md)"
    assert "Tiles (notes, mine.md)" not in cited("walrus")
    additions.remove("mine.md")
    assert libraries()["notes"] == 1
    with pytest.raises(BadInput, match=r"mine\.md was not added; these were: other\.md"):
        additions.remove("mine.md")


def test_documents_can_be_listed_as_one_source(small: Path) -> None:
    add_documents([note("# A\nx", "a.md"), Document("y", metadata={"title": "Y"})], source="all of mine")
    ((addition, path),) = added_files.list_additions({})
    assert (addition.source, addition.files) == ("all of mine", 2)
    assert [chunk.citation for chunk in added_files.chunks(path)] == ["A (notes, a.md)", "Y (notes, all of mine)"]


def test_what_cannot_be_added_is_a_sentence_and_changes_nothing(small: Path) -> None:
    for documents, why in (
        ([Document("x")], "document 1 has no 'source' in its metadata"),
        ([], "there are no documents: nothing was added"),
        ([note("# A\nx"), note(" \n", "empty.md")], "empty.md has no text to find: "),
    ):
        with pytest.raises(BadInput, match=why):
            add_documents(documents)
    assert "notes" not in libraries()


@pytest.mark.more
def test_vectors_are_made_of_what_is_added_where_the_index_has_some(small: Path) -> None:
    assert add_documents([note("# Tiles\nAn ibex won.")]).meaning is None
    build()
    added = add_documents([note("# Warps\nAn okapi won.", "other.md")])
    assert added.meaning is not None
    assert 0 < added.meaning.embedded < 5, "only what is new"


def test_text_that_no_file_can_hold_is_kept_without_it(small: Path) -> None:
    add_documents([note("# Odd\nAn ibex \ud800 won.\u2028 And more.", "odd \udcff.md")])
    assert cited("ibex")[0] == "Odd (notes, odd ?.md)"


def test_damage_is_named_and_hurts_nothing_else(small: Path) -> None:
    add_documents([note("# Tiles\nAn ibex won."), note("# Warps\nAn okapi won.", "other.md")])
    first, second = (path for _, path in added_files.list_additions({}))
    first.write_text(first.read_text().splitlines()[0] + "\n{}")
    second.write_bytes(b"\xff\xff")
    built = build(model=None)
    assert built is not None
    assert [why for part in built.manifest.parts for why in part.notes] == [
        "what was added of mine.md is damaged (ValidationError): add it again"
    ]
    assert f"{second} is damaged (UnicodeDecodeError): remove it, and add its source again" in built.manifest.notes
    assert built.manifest.libraries["cuBLASLt"] == 6


def test_a_place_that_may_not_be_written_is_named(small: Path) -> None:
    index_store.home().mkdir()
    (index_store.home() / "added").touch()
    with pytest.raises(Unavailable, match=r"added cannot be written to .*: set STITCHCUDA_DOCS to a folder you may write to"):
        add_documents([note("# Tiles\nAn ibex won.")])
