"""Writes the graph and its kernels as a folder with `model_new.py`, `kernels/` and `program.json`.

Where to look next: `compiler/printing/program.py` (the whole), `compiler/printing/forward_body.py` (the statements),
`compiler/printing/manifest.py` (`program.json`).
"""
