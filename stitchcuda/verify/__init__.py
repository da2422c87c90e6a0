"""The judge's process: secret inputs, expected outputs, bounds, timing and the verdict, with its handles on the workers.

No generated code runs here; what workers say is doubted. `verify/client.py` and `verify/api.py` are the main process's side and
import no torch. Of the tools it imports `machine`, `building` and `running`. Start at `verify/client.py`, then
`verify/judge/judge.py`, `verify/judge/examination.py` and `verify/judge/interleaved_timing.py`;
`verify/processes/forkserver.py` is where workers come from.
"""
