"""What stands above a session for coding agents: workbenches in the background, and servers of tools.

Where to look next: `agents/background.py` (a workbench's process), `engineers/agents/workbench.py` (what a workbench is).
"""
