"""The index in LangChain's hands."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag import DocsRetriever, lookup
from stitchcuda.rag.index import Docs


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


def test_a_chain_of_ones_own_asks_it(asked: Docs) -> None:
    """Retriever, prompt, model: what is cited reaches the model, here one of recorded replies."""
    shown: list[str] = []

    def joined(found: list[Document]) -> str:
        shown.extend(str(one.metadata["citation"]) for one in found)
        return "\n\n".join(f"[{one.metadata['citation']}]\n{one.page_content}" for one in found)

    def seen(prompt: PromptValue) -> PromptValue:
        shown.append(prompt.to_string())
        return prompt

    question = {"context": DocsRetriever(k=2) | joined, "question": RunnablePassthrough()}
    prompt = ChatPromptTemplate.from_template("By these:\n{context}\n\nanswer: {question}")
    chain = question | prompt | RunnableLambda(seen) | FakeListChatModel(responses=["256 bytes"]) | StrOutputParser()
    assert chain.invoke("how are pointers of cudaMalloc aligned") == "256 bytes"
    citation, *_, told = shown
    assert citation.startswith("cudaMalloc (CUDA runtime ")
    assert f"[{citation}]" in told
    assert told.count("answer: how are pointers of cudaMalloc aligned") == 1
