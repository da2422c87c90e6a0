"""The index in LangChain's hands."""

from __future__ import annotations

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import lookup
from stitchcuda.rag.index import Docs
from stitchcuda.rag.retriever import DocsRetriever


def test_documents_with_their_citations(asked: Docs) -> None:
    (first, *_) = DocsRetriever(k=3).invoke("cudaMallocAsync")
    assert first.page_content.startswith("__host__ cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t")
    assert first.metadata["citation"].startswith("cudaMallocAsync (CUDA runtime ")
    assert first.metadata["source"] == "cuda_runtime_api.h"


def test_filters_reach_the_search(asked: Docs) -> None:
    found = DocsRetriever(libraries=("CUDA driver",)).invoke("allocate device memory")
    assert {one.metadata["library"] for one in found} == {"CUDA driver"}
    with pytest.raises(BadInput, match="no documentation of 'cuNothing' in the index; there is: "):
        DocsRetriever(libraries=("cuNothing",)).invoke("allocate")


def test_where_nothing_can_be_searched_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "of_this_machine", lambda: lookup.Opened(None, ("there is none",)))
    with pytest.raises(Unavailable, match="there is none"):
        DocsRetriever().invoke("allocate")
