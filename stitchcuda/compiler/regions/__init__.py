"""Which operators run as one kernel, and what that is predicted to save: cutting the graph, and the cost model.

Where to look next: `compiler/regions/partition.py`, then `compiler/regions/cost.py`.
"""
