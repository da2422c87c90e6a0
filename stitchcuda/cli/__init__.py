"""The command line: `app.py` mounts the commands, one file for each group; `console.py` is what they share.

Commands parse, call and print; every decision is made in the rooms below. Where to look next: `cli/app.py`.
"""
