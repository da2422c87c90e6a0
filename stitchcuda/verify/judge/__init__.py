"""The judge process: asks the questions in order and gives the verdict.

Where to look next: `verify/judge/judge.py`, then `verify/judge/examination.py` and `verify/judge/correctness.py`.
"""
