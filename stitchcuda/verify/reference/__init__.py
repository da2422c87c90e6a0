"""The trusted side: the reference is loaded, run in its own precision and in float64, and timed against its baselines.

Where to look next: `verify/reference/reference.py`, then `verify/reference/reference_worker.py`.
"""
