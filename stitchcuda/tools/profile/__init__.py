"""Where the time of a reference or a program goes: Nsight Systems and Compute, CUPTI, compute-sanitizer.

What is seen is evidence for whoever writes the next program, never a verdict. Of the tools it imports all rooms but
`doctoring`. Start at `tools/profile/profiling.py` (which means work here), `tools/profile/system_profile.py` and
`tools/profile/kernel_profile.py` (the records).
"""
