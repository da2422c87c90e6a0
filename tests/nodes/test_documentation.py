"""How what a review cites becomes the entries that were shown."""

from __future__ import annotations

import pytest

from stitchcuda.nodes.documentation import Documented, complete_citations, search_for_coder
from stitchcuda.rag import playbook_pages
from stitchcuda.rag.index import Docs
from stitchcuda.rag.lookup import DocsQuery, search_all
from stitchcuda.state import Review
from tests.rag.conftest import asked, real

__all__ = ["asked", "real"]                # fixtures

SHOWN = Documented(
    text="[cublasLtMatmulDescSetAttribute (cuBLASLt 13.0.2, cublasLt.h)]\nint a();\n\n"
    "[cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)]",
    named=("cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)",),
)


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("cublasLtMatmul", "cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)"),
        ("[cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)]", "cublasLtMatmul (cuBLASLt 13.0.2, cublasLt.h)"),
        ("`cublasLtMatmulDescSetAttribute`", "cublasLtMatmulDescSetAttribute (cuBLASLt 13.0.2, cublasLt.h)"),
        ("cublas", "cublas"),
        ("the roofline", "the roofline"),
    ],
)
def test_a_citation_becomes_the_entry_that_it_means(said: str, full: str) -> None:
    review = Review(bottleneck="b", suggestion="s", route="code", citations=(said,))
    assert complete_citations(review, SHOWN._replace(named=())).citations == (full,)


def test_what_an_error_names_is_cited_once() -> None:
    review = Review(bottleneck="b", suggestion="s", route="code", citations=("cublasLtMatmul",))
    assert complete_citations(review, SHOWN).citations == SHOWN.named


@pytest.mark.parametrize(
    "error",
    ["kernels/a.cu(3): error: expected a ';'\n    int x = 3", "the program took longer than 60 s", "y is off by 0.25",
     "12 of 4096 values differ", "the output is NaN", 'error: identifier "row_scale" is undefined'],
)  # fmt: skip
def test_an_error_that_names_nothing_of_nvidias_cites_nothing(asked: Docs, error: str) -> None:
    assert search_all([DocsQuery(error, 4, error=True)]).named == ()


def test_a_skeleton_is_shown_whole() -> None:
    for name, text in playbook_pages.skeletons().items():
        shown = search_for_coder(f"skeleton:{name}", "openai:local").text
        assert text.rstrip() in shown, name


@pytest.mark.parametrize("query", ["skeleton:nope", "playbook:nope"])
def test_a_page_that_is_not_there_is_not_found(query: str) -> None:
    found = search_for_coder(query, "openai:local")
    assert not found.ok
    assert "There is no" in found.text
