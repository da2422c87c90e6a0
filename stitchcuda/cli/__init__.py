"""Defines the command line: each group of commands is a file, and `cli/app.py` mounts them.

Commands parse, call and print; every decision is made in the rooms below.

Where to look next: `cli/app.py` (the main commands), `cli/console.py` (what all commands share).
"""
