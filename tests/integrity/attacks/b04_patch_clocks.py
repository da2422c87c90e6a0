# row: B4
# reference: clocks/rowstats_large.py
# runs: gpu
# written: independently
# what: correct reductions, but every clock of the time module runs 25 times slower from import on, in that module and wherever it had been imported by name
# base: row_stats.py

import sys, time
def slow(real, whole):
    start = real()
    if whole:
        return lambda: start + (real() - start) // 25
    return lambda: start + (real() - start) / 25.0
clocks = {}
for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "process_time_ns"):
    real = getattr(time, name)
    clocks[real] = slow(real, name.endswith("_ns"))
for m in list(sys.modules.values()):
    try:
        for key, value in list(vars(m).items()):
            if callable(value) and type(value) is type(time.time) and value in clocks:
                setattr(m, key, clocks[value])
    except Exception:
        pass
