"""How long do calls take? Clocks in the worker, a second clock in the judge, and what follows when they disagree.

Where to look next: `verify/timing/rounds.py`, then `verify/timing/timed_calls.py`.
"""
