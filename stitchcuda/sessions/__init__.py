"""Everything done with sessions: run, resume, fork, replay, compare, remove, archive and repair.

One module for each. They use a session's record, ledger, transcript and checkpoints as `sessions/session.py` and the workspace
offer them, and know nothing of CUDA. The commands are in `cli/sessions.py`.
"""
