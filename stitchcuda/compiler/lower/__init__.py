"""Lowers a region of the graph to one kernel in the kernel language: a loop nest of loads, steps, reductions and stores.

Where to look next: `compiler/lower/ir.py` (the language), `compiler/lower/lower.py` (from a region to a kernel),
`compiler/lower/nest.py` (what the operators' rules build with).
"""
