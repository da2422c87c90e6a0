"""A LangChain retriever over the documentation index, for a user's own chains and agents.

    from stitchcuda.rag import DocsRetriever
    DocsRetriever(k=4, libraries=("cublas",)).invoke("which alignment does the workspace need?")

It adds nothing to a search. Where to look next: `rag/index.py`.
"""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from stitchcuda.errors import Unavailable
from stitchcuda.rag import lookup
from stitchcuda.rag.index import Mode


class DocsRetriever(BaseRetriever):
    """Retrieves documents from this machine's index; without one, names and words are indexed at the first question.

    `k`: the most documents; `libraries`, `version`, `mode`: as in `Docs.search`. A document's metadata: citation, title,
    library, version, source, kind, score, and notes on what limits the search. Raises `Unavailable` if there is no index and
    none can be built, `BadInput` as `Docs.search` does.
    """

    k: int = 5
    libraries: tuple[str, ...] = ()
    version: str = ""
    mode: Mode = "hybrid"

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        opened = lookup.of_this_machine()
        if opened.docs is None:
            raise Unavailable("; ".join(opened.notes))
        found = opened.docs.search(query, self.k, libraries=self.libraries, version=self.version, mode=self.mode)
        return [
            Document(
                page_content=hit.chunk.whole,
                metadata={
                    "citation": hit.chunk.citation, "title": hit.chunk.title, "library": hit.chunk.library,
                    "version": hit.chunk.version, "source": hit.chunk.source, "kind": hit.chunk.kind, "score": hit.score,
                    "notes": [*opened.notes, *found.notes],
                },
            )
            for hit in found.hits
        ]  # fmt: skip
