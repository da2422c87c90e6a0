"""Finds this machine's GPU and CUDA toolkit, measures the GPU's bandwidth and rates, and locks it for timing.

It knows no program and imports no other room of the tools. Start at `tools/device/device.py`, then `tools/device/toolkit.py`
and `tools/device/ceilings.py`.
"""
