"""Lets this process keep host memory that it freed, to use it again: glibc gives large blocks back to the system each time.

A fresh block of 64 MB costs 16,000 page faults, which is more than most of what is done with it: comparing an output of eight
million elements takes half the time without them. Memory stays with the process, a few times the largest block at most.
Not for processes whose memory is bounded closely. Where to look next: `verify/judge/judge.py`,
`verify/reference/reference_worker.py`, `verify/program/program_worker.py`.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4        # malloc.h
_MOST_KEPT = 2**31 - 1                     # bytes free at the end of the heap; mallopt takes an int


def keep_freed() -> None:
    """For the rest of this process' life. Without effect where the C library knows no such settings."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(_MMAP_MAX, 0)
        setting(_TRIM_THRESHOLD, _MOST_KEPT)
