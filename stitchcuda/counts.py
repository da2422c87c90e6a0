"""Writes numbers of things for sentences: "1 task", "3 tasks", "1,200 entries".

Only regular English plurals are known. Imports nothing of ours.
"""

from __future__ import annotations

_SIBILANTS = ("s", "x", "z", "ch", "sh")


def counted(number: int, noun: str) -> str:
    """Returns `number`, thousands separated, and `noun` (a singular, or words that end with one) in the form that fits it."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Returns the regular English plural: "entry" → "entries", "access" → "accesses", "task" → "tasks"."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_SIBILANTS) else f"{noun}s"
