"""The judge's process: secret inputs, expected outputs, bounds, timing and the verdict, with its handles on the workers.

No generated code runs here; what workers say is doubted. `check.py` and `verify.py` are the main process's side and import no
torch. Of the tools it imports `machine`, `building` and `running`. Start at `check.py`, then `judge.py`, `examination.py` and
`clocking.py`; `nursery.py` is where workers come from.
"""
