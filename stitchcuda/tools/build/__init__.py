"""Builds CUDA sources into libraries, and reads what the compiler reported: kernels' names, registers, machine code.

Nothing that is built runs here. Of the tools it imports `device`. Start at `tools/build/nvcc.py`; `tools/build/sass.py` reads
the machine code.
"""
