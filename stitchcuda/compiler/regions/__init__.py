"""Decides which operators run as one kernel, and predicts the time that this saves.

Where to look next: `compiler/regions/partition.py` (what is fused), `compiler/regions/cost.py` (predicted times),
`compiler/regions/floor.py` (speed of light).
"""
