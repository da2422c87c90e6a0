"""Measures where the time of a reference or a program goes: Nsight Systems and Compute, CUPTI, compute-sanitizer.

Profiles are evidence for whoever writes the next program, never a verdict. Of the tools it imports all rooms but `doctor`.
Start at `tools/profile/profiling.py` (which chooses the profiler), `tools/profile/system_profile.py` and
`tools/profile/kernel_profile.py` (the records).
"""
