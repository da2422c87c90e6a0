"""What this machine is: its GPU and toolkit, the bandwidth and rates measured on it, and the lock for timing on the GPU.

It knows no program and imports no other room of the tools. Start at `tools/device/device.py`, then `tools/device/toolkit.py`
and `tools/device/ceilings.py`.
"""
