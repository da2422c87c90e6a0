"""Turns a PyTorch module into a program of CUDA kernels: captures, cuts into regions, lowers, emits, prints.

It is deterministic, asks no model and measures nothing. The rooms in order: `capture` (the module's operators as a graph),
`regions` (which operators become one kernel), `lower` (a region as a loop nest), `codegen` (the nest as CUDA C++), `printing`
(the program's Python and its files).

Where to look next: `compiler/capture/capture.py`, `compiler/regions/partition.py` (what is fused), `compiler/lower/ir.py` (the
loop nests), `compiler/codegen/emit.py`, `compiler/printing/program.py`.
"""
