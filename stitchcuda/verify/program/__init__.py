"""The untrusted side: a worker process that builds, loads and calls generated code, and how the judge questions it.

Where to look next: `verify/program/program_worker.py`, then `verify/program/trial.py`.
"""
