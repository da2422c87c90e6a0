"""Does a program cheat? Its source is screened, its operators are recorded, and tampering with its process is noticed.

Where to look next: `verify/integrity/screen.py`, then `verify/integrity/dispatch_recorder.py`.
"""
