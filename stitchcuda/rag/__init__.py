"""Finds documentation of CUDA, cuBLASLt and cuDNN by name, by words and by meaning, with citations.

`from stitchcuda.rag import DocsRetriever, add_documents` is what other programs use; both are imported on first use. Sources
are the headers of this machine, LangChain documents of the user's, and our playbook; nothing of NVIDIA's text is in the
package. It needs no network unless a URL is added, and it knows no graph.
Where to look next: `rag/sources.py`, `rag/building.py`, `rag/index.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stitchcuda.rag.additions import add_documents
    from stitchcuda.rag.retriever import DocsRetriever

__all__ = ["DocsRetriever", "add_documents"]

_HOMES = {"DocsRetriever": "stitchcuda.rag.retriever", "add_documents": "stitchcuda.rag.additions"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stitchcuda.rag' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
