"""Makes glibc keep freed host memory in this process, instead of returning large blocks to the system each time.

A fresh block of 64 MB costs 16,000 page faults: without them, comparing an output of eight million elements takes half the
time. The process keeps at most a few times its largest block. Not for processes with tight memory limits, nor for the judge:
among messages of all sizes its heap would only grow.
Where to look next: `verify/reference/reference_worker.py`, `verify/program/program_worker.py` (who call it).
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4        # malloc.h
_MOST_KEPT = 2**31 - 1                     # free bytes at the end of the heap; mallopt takes an int


def keep_freed() -> None:
    """Applies to the rest of this process's life. Has no effect with a C library other than glibc."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(_MMAP_MAX, 0)
        setting(_TRIM_THRESHOLD, _MOST_KEPT)
