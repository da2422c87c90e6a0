"""The judge's handles on its child processes: the forkserver, one child, one worker, the builder.

Where to look next: `verify/processes/forkserver.py`, then `verify/processes/worker.py`.
"""
