"""Loads the trusted reference, runs it in its own precision and in float64, and times it against its baselines.

Where to look next: `verify/reference/reference.py` (what a reference is), `verify/reference/reference_worker.py` (the process
that runs it for the judge), `verify/reference/baselines.py` (how fast it is eager, as a CUDA graph and compiled).
"""
