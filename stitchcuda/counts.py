"""Numbers of things, for sentences: "1 task", "3 tasks", "1,200 entries"."""

from __future__ import annotations

_SIBILANTS = ("s", "x", "z", "ch", "sh")


def counted(number: int, noun: str) -> str:
    """`number` with thousands separated, and `noun` (one English word in the singular, or several that end with it) in the form
    that goes with it."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """A regular English plural: "entry" → "entries", "access" → "accesses", "task" → "tasks"."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_SIBILANTS) else f"{noun}s"
