"""From a region of the graph to one kernel in the kernel language: a loop nest with loads, steps, reductions and stores.

Where to look next: `compiler/lower/ir.py` (the language), then `compiler/lower/lower.py`.
"""
