"""`stitchcuda docs` as a user sees it: what is printed, on which stream, with which exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stitchcuda.cli.app import app
from tests.rag.pages_of_manuals import pdf


def stitchcuda(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["docs", *arguments])


def test_a_search_makes_names_and_words_first_where_there_is_no_index(small: Path) -> None:
    done = stitchcuda("search", "gelu", "and", "bias")
    assert done.exit_code == 0
    assert done.stdout.startswith("1. CUBLASLT_EPILOGUE_GELU_BIAS (cuBLASLt 12.8.4, cublasLt.h)\n   CUBLASLT_EPILOGUE")
    assert "note: there is no documentation index of what is on this machine: `stitchcuda docs build` makes one" in done.stderr
    assert "names and words are indexed now" in done.stderr
    assert "note: documentation is searched by names and words, not by meaning: the index has no vectors" in done.stderr


def test_a_search_as_json_is_one_object(small: Path) -> None:
    stitchcuda("build", "--words")
    done = stitchcuda("search", "cublasLtMatmul", "-k", "2", "--json")
    found = json.loads(done.stdout)
    first = found["results"][0]
    assert {"score", "source", "title", "text"} <= set(first)
    assert (first["title"], first["source"], first["version"]) == ("cublasLtMatmul", "cublasLt.h", "12.8.4")
    assert first["citation"] == "cublasLtMatmul (cuBLASLt 12.8.4, cublasLt.h)"
    assert "Multiplies two small matrices" in first["text"]
    assert len(found["results"]) == 2


def test_a_name_of_a_library_that_is_not_here_brings_how_to_have_it(small: Path) -> None:
    stitchcuda("build", "--words")
    asked = "cudnnBackendExecute"
    (note,) = [line for line in stitchcuda("search", asked).stderr.splitlines() if "cuDNN is not on this machine" in line]
    assert re.search(r"; install it with: .*pip install nvidia-cudnn-cu1[23], or name its root in CUDNN_PATH, then run: ", note)
    assert note.endswith("stitchcuda docs build")
    assert note.removeprefix("note: ") in json.loads(stitchcuda("search", asked, "--json").stdout)["notes"]
    assert "not on this machine" not in stitchcuda("search", "cublasLtMatmul").stderr


def test_cublaslt_is_told_where_its_headers_are_not_here_and_found_once_they_are(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `.[toolkit]` brings has no cuBLAS; its package puts the headers beside the toolkit's."""
    away = [(path, path.read_text()) for path in small.glob("cublas*.h")]
    for path, _ in away:
        path.unlink()
    before = stitchcuda("search", "cublasLtMatmul")
    said = r"note: cuBLAS is not on this machine .*pip install .*cublas.*, then run: stitchcuda docs build"
    assert re.search(said, before.stderr)
    for path, text in away:
        path.write_text(text)
    assert stitchcuda("build", "--words").exit_code == 0
    after = stitchcuda("search", "cublasLtMatmul")
    assert after.stdout.startswith("1. cublasLtMatmul (cuBLASLt 12.8.4, cublasLt.h)")
    assert "not on this machine" not in after.stderr


def test_build_says_what_is_indexed_and_that_nothing_has_changed(small: Path) -> None:
    first = stitchcuda("build", "--words")
    assert first.exit_code == 0
    assert "cuBLASLt 6" in first.stdout
    assert "entries indexed in " in first.stdout
    assert "entries can be searched by name and words" in first.stderr
    again = stitchcuda("build", "--words", "--json")
    told = json.loads(again.stdout)
    assert (told["changed"], told["libraries"]["cuBLASLt"], told["model"]) == (False, 6, "")


def test_sources_names_what_is_indexed_and_what_is_not_here(small: Path, tmp_path: Path) -> None:
    before = stitchcuda("sources")
    assert before.stdout.startswith("no index yet: `stitchcuda docs build` makes one of CUDA headers, playbook\n")
    notes = tmp_path / "notes.md"
    notes.write_text("# Tiles\n\nA tile of 96 won for the odd projection.\n")
    assert stitchcuda("add", str(notes), "--library", "ours").exit_code == 0
    told = json.loads(stitchcuda("sources", "--json").stdout)
    assert {(part["name"], part["version"]) for part in told["sources"]} >= {("cuBLASLt", "12.8.4"), (str(notes), "")}
    assert "install it with: " in told["missing"]["cuDNN"]
    shown = stitchcuda("sources").stdout
    assert "not here: cuDNN: cuDNN is not on this machine" in shown
    assert "no vectors: `stitchcuda docs build` makes them" in shown
    found = json.loads(stitchcuda("search", "odd projection", "--library", "ours", "--json").stdout)
    assert found["results"][0]["title"] == "Tiles"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", " "), "there is no question: give a name such as cublasLtMatmul, or some words"),
        (("search", "x", "--library", "cuNothing"), "no documentation of 'cuNothing' in the index; there is: CUDA runtime, "),
        (("search", "x", "--version", "99"), "no documentation of version '99' in the index (see: stitchcuda docs sources)"),
        (("search", "x", "-k", "0"), "-k is 0: ask for at least one result"),
        (("search", "x", "--mode", "guess"), "--mode 'guess' is none: take hybrid, words, meaning"),
        (("build", "--words", "--model", "m"), "--words makes no vectors, so --model has no use: give one of them"),
        (("add", "/nowhere/at/all"), "/nowhere/at/all is not here: name a file, a folder or a URL"),
        (("remove", "mine.md"), "mine.md was not added; these were: none"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(small: Path, arguments: tuple[str, ...], said: str) -> None:
    stitchcuda("build", "--words")
    done = stitchcuda(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("stitchcuda: ")]
    assert line.startswith(f"stitchcuda: {said}")


def test_nothing_that_fits_is_code_1(small: Path) -> None:
    stitchcuda("build", "--words")
    done = stitchcuda("search", "zzzz")
    assert done.exit_code == 1
    assert done.stdout == "nothing fits 'zzzz': try other words, or `stitchcuda docs sources` for what is indexed\n"


def test_a_model_that_is_none_is_said_and_words_stay(small: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    done = stitchcuda("build", "--model", str(tmp_path / "model"))
    assert done.exit_code == 2
    assert f"the embedding model '{tmp_path / 'model'}' cannot be loaded" in done.stderr
    assert stitchcuda("search", "cublasLtMatmul").stdout.startswith("1. cublasLtMatmul (")


def test_switched_off_it_says_so(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_DOCS", "off")
    done = stitchcuda("search", "cublasLtMatmul")
    assert (done.exit_code, done.stderr) == (2, "stitchcuda: documentation is switched off (STITCHCUDA_DOCS=off)\n")


def test_the_command_line_loads_none_of_it_before_it_is_asked() -> None:
    code = "import stitchcuda.cli.app, sys; sys.exit(any(name in sys.modules for name in ('faiss', 'bm25s', 'torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0


def test_what_is_added_is_found_cited_kept_replaced_and_removed(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "mine.md").write_text("# Tiles\n\n## Odd ones\n\nA tile of 96 won for the odd projection.\n")
    (folder / "page.html").write_text("<h1>Site</h1><h2 id=warps>Warps</h2><p>Four warps drowned in the shared banks.")
    (folder / "book.pdf").write_bytes(pdf(["nothing here", "The caterpillar kernel hides its latency."], title="Book"))
    (folder / "bad.md").write_bytes(b"\xff\xff")
    monkeypatch.chdir(tmp_path)
    done = stitchcuda("add", "notes", "--library", "ours", "--version", "3")
    assert done.exit_code == 0
    assert f"not read: {folder}/bad.md cannot be read by TextLoader (UnicodeDecodeError: " in done.stdout

    def cited(words: str) -> str:
        found = json.loads(stitchcuda("search", words, "--library", "ours", "--json").stdout)["results"]
        return str(found[0]["citation"]) if found else ""

    assert cited("which tile won for the odd projection") == "Tiles › Odd ones (ours 3, mine.md)"
    assert cited("drowned warps") == "Site › Warps (ours 3, page.html#warps)"
    assert cited("caterpillar") == "Book (ours 3, book.pdf p. 2)"
    (part,) = [part for part in json.loads(stitchcuda("sources", "--json").stdout)["sources"] if part["kind"] == "document"]
    assert (part["name"], part["library"], part["version"], part["files"]) == (str(folder), "ours", "3", 3)
    (folder / "book.pdf").unlink()
    (small / "cublasLt.h").unlink()
    assert json.loads(stitchcuda("build", "--words", "--json").stdout)["libraries"]["ours"] == 4
    assert cited("caterpillar") == "Book (ours 3, book.pdf p. 2)"
    assert stitchcuda("add", str(folder), "--library", "ours").exit_code == 0
    assert cited("drowned warps") == "Site › Warps (ours, page.html#warps)"
    assert cited("caterpillar") == ""
    done = stitchcuda("remove", "notes", "--json")
    assert "ours" not in json.loads(done.stdout)["libraries"]
    assert stitchcuda("remove", "notes").exit_code == 2
