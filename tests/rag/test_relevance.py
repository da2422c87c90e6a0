"""What is shown of the documentation has to do with the question and holds for the target; else nothing is shown."""

from __future__ import annotations

import pytest

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.index import Docs
from stitchcuda.rag.lookup import DocsQuery, search_all
from stitchcuda.rag.playbook_pages import chunks
from stitchcuda.rag.relevance import names_in_draft
from stitchcuda.rag.targets import holds_for
from tests.rag.conftest import asked, real

__all__ = ["asked", "real"]                # fixtures
PAGES = {chunk.source.removeprefix("playbook:") for chunk in chunks() if holds_for(chunk, "sim", "sm_90a")}


@pytest.mark.parametrize(
    ("query", "absent"),
    [
        ("model_new.py: error: file not found kernels/x.cu", "cudaErrorFileNotFound"),
        ("NaN in 12800 of 12800 values (an output that no kernel writes holds NaN); allowed 0, worst max nan", "__hmax_nan"),
        ("scale each row by its scale, one scale pointer a row", "SCALE"),
        ("squeeze and excite: depthwise convolution with batch norm statistics, mean over the plane", "CUDNN_BACKEND"),
    ],
)
def test_entries_that_share_a_word_only_are_not_shown(asked: Docs, query: str, absent: str) -> None:
    shown = search_all([DocsQuery(query, 6), DocsQuery(query, 4, error=True)])
    assert [chunk.citation for chunk in shown.chunks if absent in chunk.title] == []
    assert shown.named == ()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("split fp32 product by cuBLASLt with bias and GELU epilogue", "CUBLASLT_EPILOGUE_GELU_BIAS"),
        ("cublasLtMatmul returned status 7", "CUBLAS_STATUS_INVALID_VALUE"),
        ('kernels/r01.cu(7): error: identifier "__shfl_xor_snc" is undefined', "__shfl_xor_sync"),
    ],
)
def test_what_is_meant_is_still_found(asked: Docs, query: str, first: str) -> None:
    assert first in search_all([DocsQuery(query, 4)]).chunks[0].title


def test_the_simulator_is_shown_nothing_that_it_cannot_run(asked: Docs) -> None:
    queries = [
        DocsQuery("launch overhead: gaps between kernels, programmatic dependent launch", 4, ("playbook",)),
        DocsQuery("cudaGridDependencySynchronize cublasLtMatmul cudaGraphLaunch __shfl_xor_sync", 6),
        DocsQuery("split-precision matrix products on tensor cores with wgmma and TMA tensor maps", 6),
    ]
    titles = [chunk.title for chunk in search_all(queries, holds=lambda chunk: holds_for(chunk, "sim", "sm_90a")).chunks]
    assert any("__shfl_xor_sync" in title for title in titles)
    for absent in ("dependent", "cublas", "cudaGraph", "GridDependency", "TMA"):
        assert not any(absent in title for title in titles), absent
    on_gpu = [chunk.title for chunk in search_all(queries, holds=lambda chunk: holds_for(chunk, "cuda", "sm_90a")).chunks]
    assert any("GridDependencySynchronize" in title for title in on_gpu)


def test_pages_by_target() -> None:
    assert {"reduction-patterns", "online-softmax", "welford-normalisation", "vectorised-access"} <= PAGES
    assert PAGES.isdisjoint({"launch-overhead", "tma-wgmma", "cublaslt-heuristics-workspace"})


def test_a_section_that_names_what_the_simulator_refuses_is_not_shown_there() -> None:
    page = [chunk for chunk in chunks() if chunk.source == "playbook:persistent-kernels"]
    assert any("`cudaLaunchCooperativeKernel`" in chunk.text for chunk in page if holds_for(chunk, "cuda", "sm_90a"))
    on_simulator = [chunk.text for chunk in page if holds_for(chunk, "sim", "sm_90a")]
    assert any("132 × 227 KB" in text for text in on_simulator), "when it pays holds there too"
    assert not any("cudaLaunchCooperativeKernel" in text for text in on_simulator)


def test_what_is_blackwells_only_is_shown_there() -> None:
    chunk = Chunk(library="CUDA runtime", version="13.0", source="x.h", kind="function", title="tcgen05_mma", text="void f();")
    assert [holds_for(chunk, "cuda", arch) for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120")] == [False, False, True, True]


def test_names_of_a_draft_come_from_the_lines_of_the_error() -> None:
    draft = {"kernels/a.cu": "__syncthreads();\n\n\n\n\ncudaMemcpyAsync(a, b, n, k, s);\ncublasLtMatmul(h);\n"}
    assert names_in_draft(draft, "kernels/a.cu(7): error: too few arguments", "") == ["cudaMemcpyAsync", "cublasLtMatmul"]
    assert names_in_draft(draft, "output 0 is wrong", "copy memory asynchronously") == ["cudaMemcpyAsync"]
    assert names_in_draft(draft, "output 0 is wrong", "a softmax") == []
