"""What people do with sessions beside running them: fork, replay, compare, remove, carry from place to place, and mend.

One module for each. They use a session's record, ledger, transcript and checkpoints as `sessions/session.py` and the workspace
offer them, and know nothing of CUDA. The commands are in `cli/sessions.py`.
"""
