"""Runs, resumes, forks, replays, compares, removes, archives and repairs sessions: one module for each.

They use a session's record, ledger, transcript and checkpoints, and know nothing of CUDA.

Where to look next: `sessions/session.py` (`optimize`, `resume`, `Session`), `cli/sessions.py` (the commands).
"""
