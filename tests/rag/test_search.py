"""What a search promises beside its ranking: filters, odd queries, twins told once, budgets of tokens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.rag import query_phrases as phrases
from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.excerpts import citations_in, fit, is_citation
from stitchcuda.rag.headers.chunks import family
from stitchcuda.rag.index import QUERY, Docs
from stitchcuda.rag.words import tokens


def titles(docs: Docs, query: str, **filters: str | list[str]) -> list[str]:
    return [hit.chunk.title for hit in docs.search(query, **filters).hits]  # type: ignore[arg-type]


def test_filters_by_library_and_version(real: Docs) -> None:
    libraries = {hit.chunk.library for hit in real.search("set the stream of a handle", 20, libraries=["cublas"]).hits}
    assert libraries <= {"cuBLAS", "cuBLASLt", "cuBLAS, old interface"}
    assert "cuBLAS" in libraries
    version = real.search("cudaMalloc").hits[0].chunk.version
    assert titles(real, "cudaMalloc", version=version)[0] == "cudaMalloc"
    with pytest.raises(BadInput, match=r"no documentation of version '1\.5' of CUDA runtime in the index"):
        real.search("cudaMalloc", libraries=["CUDA runtime"], version="1.5")


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00"])
def test_no_question_is_said_to_be_none(real: Docs, query: str) -> None:
    with pytest.raises(BadInput, match="there is no question: give a name such as cublasLtMatmul, or some words"):
        real.search(query)


def test_a_query_of_a_hundred_thousand_characters_is_cut_and_said_to_be(real: Docs) -> None:
    log = "error: identifier cudaMemcpyAsync in line 12 is not what it was\n" * 1600
    found = real.search(log)
    assert "cudaMemcpyAsync" in [hit.chunk.title for hit in found.hits]
    assert found.notes[0].startswith("the query has 102,400 characters: of its words and meaning the first 1,9")
    assert len(log) == 102_400 > QUERY


@pytest.mark.parametrize(
    "query",
    ["?" * 100_000, "a" * 100_000, "_" * 3000, "::" * 3000, "x1." * 33_000, "a\udcff b", "((((" * 1000, "±" * 500],
)
def test_what_is_no_question_at_all_is_answered_soon(real: Docs, query: str) -> None:
    began = time.process_time()
    real.search(query)
    assert time.process_time() - began < 20, "a pattern goes back and forth"


def test_twins_and_widths_of_one_function_are_told_once(real: Docs) -> None:
    found = titles(real, "make a stream wait for an event")
    assert found[0] == "cudaStreamWaitEvent"
    assert "cuStreamWaitEvent" not in found
    names = [family(title.partition(" (")[0]) for title in titles(real, "cublas gemm strided batched")]
    assert len(names) == len(set(names))
    assert titles(real, "make a stream wait for an event", libraries=["CUDA driver"])[0] == "cuStreamWaitEvent"


def test_identifiers_are_found_by_their_parts() -> None:
    assert set(tokens("set the attribute of a matmul descriptor")) <= set(tokens("cublasLtMatmulDescSetAttribute"))
    assert set(tokens("GEMM")) == set(tokens("matrix multiplication"))
    assert "cublasltmatmul" in tokens("cublasLtMatmul")


def test_every_file_of_phrases_can_be_read_and_none_repeats_itself() -> None:
    for name, text in phrases.texts().items():
        blocks = phrases.read(text)
        assert len(blocks) > 10, name
        for symbols, those in blocks:
            assert those, f"{name}: {symbols[0]} has no phrases"
            assert len(set(those)) == len(those), f"{name}: {symbols[0]} repeats a phrase"
    with pytest.raises(ValueError, match="line 1: neither symbols nor a phrase: 'not a symbol'"):
        phrases.read("not a symbol")


def test_phrases_are_of_symbols_that_exist(real: Docs) -> None:
    """Nearly: headers of another version lack some. A phrase of a symbol that no header has finds nothing."""
    symbols = {one for text in phrases.texts().values() for those, _ in phrases.read(text) for one in those}
    known = {one for one in symbols if real.names.whole(one.removeprefix("playbook:"))}
    unknown = sorted(one for one in symbols - known if not one.startswith("nvrtc"))
    assert len(unknown) < len(symbols) / 20, unknown[:50]


def chunk(title: str, text: str, comment: str = "", kind: str = "function") -> Chunk:
    return Chunk(library="L", version="1", source="l.h", kind=kind, title=title, text=text, comment=comment)  # type: ignore[arg-type]


def words(text: str) -> int:
    return len(text.split())


def test_declarations_come_whole_and_before_what_is_said() -> None:
    one = chunk("one", "int one(int a, int b);", "Says one.\nAnd more of it that nobody needs to know at all.")
    two = chunk("two", "int two(int a);", "Says two.")
    everything = fit([one, two], 100, words)
    assert everything == (
        "[one (L 1, l.h)]\nint one(int a, int b);\nSays one.\nAnd more of it that nobody needs to know at all.\n\n"
        "[two (L 1, l.h)]\nint two(int a);\nSays two."
    )
    tight = fit([one, two], 22, words)
    assert "int one(int a, int b);" in tight
    assert "int two(int a);" in tight
    assert "nobody needs" not in tight
    for tokens_ in range(60):
        shown = fit([one, two], tokens_, words)
        assert words(shown) <= tokens_
        assert all(line in everything or line == "…" for line in shown.splitlines())


def test_of_a_type_that_does_not_fit_the_members_asked_for_come_first() -> None:
    fields = "\n".join(f"  int field_{number}" for number in range(100))
    shown = fit([chunk("big", f"struct big {{...}};\n{fields}", "A big one.", "type")], 40, words, "what is field_77")
    assert shown.splitlines()[:3] == ["[big (L 1, l.h)]", "struct big {...}; …", "  int field_77"]
    assert words(shown) <= 40


def test_code_of_a_page_is_not_cut() -> None:
    page = chunk("page", "First.\n```cuda\nint a;\nint b;\n```\nLast.", kind="technique")
    assert "```cuda" not in fit([page], 8, words)
    assert "```cuda\nint a;\nint b;\n```" in fit([page], 30, words)


def test_prose_of_which_nothing_fits_leaves_its_room_to_the_next_entry() -> None:
    long = chunk("long", "a " * 40, kind="technique")
    short = chunk("short", "six words that are of use", kind="technique")
    assert fit([long, short], 20, words) == "[short (L 1, l.h)]\nsix words that are of use"
    assert fit([long, short], 60, words).count("\n…") == 0


def test_the_skeleton_that_a_task_names_comes_first() -> None:
    other = chunk("other", "four words of prose", kind="technique")
    plain = chunk("Skeleton", "```cuda\nint a;\n```", kind="technique")
    skeleton = plain.model_copy(update={"source": "skeleton:split_product"})
    shown = fit([other, skeleton], 14, words, "as skeleton:split_product does")
    assert shown.startswith("[Skeleton (L 1, skeleton:split_product)]\n```cuda\nint a;\n```")
    assert fit([other, skeleton], 40, words).startswith("[other"), "no task asks for it"


def test_citations_are_read_back() -> None:
    shown = fit([chunk("one", "int one();"), chunk("cub::Two::Sum", "int Sum();")], 50, words)
    assert citations_in(shown) == ["one (L 1, l.h)", "cub::Two::Sum (L 1, l.h)"]
    assert all(map(is_citation, citations_in(shown)))
    assert not is_citation("proposed replan, but: the prediction was missed")


def test_jax_is_not_started_where_it_is_installed(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise SystemExit('jax was imported')\n")
    program = "import sys, stitchcuda.rag.words as words; assert words.tokens('a kernel'); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=True)
