"""From CUDA sources to libraries, and what the compiler reported: kernels' names, registers, machine code.

Nothing that is built runs here. Of the tools it imports `machine`. Start at `tools/build/nvcc.py`; `tools/build/sass.py` reads
the machine code.
"""
