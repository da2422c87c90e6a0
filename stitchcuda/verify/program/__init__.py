"""Builds, loads and calls generated code in an untrusted worker process, and compares its outputs on the judge's side.

Where to look next: `verify/program/program_worker.py` (the worker), `verify/program/trial.py` (the judge's handle on it),
`verify/program/builder_worker.py` (the trusted process that builds what a program orders).
"""
