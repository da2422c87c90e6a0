"""From the graph and its kernels to a folder with `model_new.py`, `kernels/` and `program.json`.

Where to look next: `compiler/printing/program.py`.
"""
