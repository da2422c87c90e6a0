"""Writes a kernel of the kernel language as CUDA C++: chooses schedules, emits source, writes the binding.

Where to look next: `compiler/codegen/emit.py` (the whole), `compiler/codegen/schedules.py` (which schedules are tried).
"""
