"""Reads CUDA's headers by symbol: what they declare and what their comments say.

Where to look next: `rag/headers/reading.py` (all headers), `rag/headers/declarations.py` (one header).
"""
