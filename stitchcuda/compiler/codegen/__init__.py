"""From a kernel of the kernel language to CUDA C++: schedules, emitters, bindings.

Where to look next: `compiler/codegen/emit.py`.
"""
