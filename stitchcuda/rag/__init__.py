"""Documentation that answers: CUDA, cuBLASLt and cuDNN by name, by words and by meaning, with citations.

Sources are the headers of this machine, NVIDIA's pages in a local folder, the user's notes and our playbook; nothing of
NVIDIA's text is in the package. It needs no network unless downloads are asked for, and it knows no graph.
Where to look next: `rag/sources.py`, `rag/building.py`, `rag/index.py`.
"""
