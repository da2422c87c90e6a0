"""Implements `stitchcuda doctor`: checks what this machine has of what is needed, and names a remedy for what is missing.

It changes nothing but the user's cache. It may import all other rooms of the tools, and none of them imports it.
Start at `tools/doctor/doctor.py`.
"""
