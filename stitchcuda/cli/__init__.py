"""The command line: `cli/app.py` mounts the commands, a file for each group.

Commands parse, call and print; every decision is made in the rooms below. Where to look next: `cli/app.py`, then `cli/console.py` (what the commands share).
"""
