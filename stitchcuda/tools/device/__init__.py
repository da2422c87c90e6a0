"""What this machine is: its GPU and toolkit, the ceilings that were measured on it, and whose turn it is on the GPU.

It knows no program and imports no other room of the tools. Start at `tools/device/device.py`, then `tools/device/toolkit.py`
and `tools/device/ceilings.py`.
"""
