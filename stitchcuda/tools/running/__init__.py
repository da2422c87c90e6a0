"""What runs in the workers' processes: the reference, a program, the builds that it orders; and the channel they answer by.

A program's own code is at home in some of these processes: what they say is evidence; `judging`, which starts them, decides.
A few modules serve both ends, such as `wire.py` (how they talk), `orders.py` and `origin.py`. Of the tools it imports `machine`
and `building`. Start at `program_worker.py` and `reference_worker.py`; `profiled.py` is the process that profilers look at.
"""
