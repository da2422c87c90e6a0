"""Folds what repeats in a text for a prompt: groups of lines that are equal but for their numbers, and lists on one long line.

An unrolled program has the same few lines hundreds of times; cut to a number of tokens, it would show nothing else. The text
that comes out is for reading: it says what it left out, and is no program any more.

Where to look next: `engineers/tokens.py` (cuts to a number of tokens), `engineers/program_excerpts.py` and
`engineers/present_text.py` (fold first).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_PERIOD = 64                           # lines of a group
LEAST_TIMES = 3                            # repetitions that make a group
LEAST_SAVED = 6                            # lines that a fold leaves out at least
MOST_LINE = 400                            # characters of a line
_SUFFIX = re.compile(r"(?<=[A-Za-z])_\d+\b")  # of a name; the first of its kind often has none: linear, linear_2
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Group:
    """`times` repetitions of the `period` items from `start` on."""

    start: int
    period: int
    times: int


def find_groups(keys: Sequence[str]) -> list[Group]:
    """Returns the groups that `keys` consists of, in order; an item that is not of LEAST_TIMES repetitions is a group by
    itself. Of several periods from one place the one that covers most is taken, of those the shortest."""
    equal = {period: _runs(keys, period) for period in range(1, min(MOST_PERIOD, len(keys) // 2) + 1)}
    groups, at = [], 0
    while at < len(keys):
        found = [Group(at, period, runs[at] // period + 1) for period, runs in equal.items()]
        repeated = [group for group in found if group.times >= LEAST_TIMES]
        group = max(repeated, key=lambda group: (group.period * group.times, -group.period), default=Group(at, 1, 1))
        groups.append(group)
        at += group.period * group.times
    return groups


def fold_lines(text: str) -> str:
    """Returns the text with its long lines shortened, and each group of lines that repeats with other numbers shown twice, with
    a line on how many more there are."""
    lines = text.splitlines()
    shown: list[str] = []
    for group in find_groups([_NUMBER.sub("#", _SUFFIX.sub("", line)) for line in lines]):
        end = group.start + group.period * group.times
        twice = group.start + 2 * group.period
        if end - twice < LEAST_SAVED:
            shown += lines[group.start : end]
            continue
        indent = lines[group.start][: len(lines[group.start]) - len(lines[group.start].lstrip())]
        what = "line" if group.period == 1 else f"{group.period} lines"
        shown += lines[group.start : twice]
        shown.append(f"{indent}… ({group.times - 2:,} more of the same {what}, with other numbers)")
    return "\n".join(map(shorten_line, shown))


def shorten_line(line: str, most: int = MOST_LINE) -> str:
    """Returns a line of at most `most` characters and a few words: its beginning and its end, with how many items of a list, or
    characters, are left out between them."""
    if len(line) <= most:
        return line
    start, end = most * 2 // 3, len(line) - most // 3
    first, last = line.rfind(", ", 0, start), line.find(", ", end)
    if first > 0 and last > 0:
        return f"{line[:first]}, … ({line[first:last].count(', '):,} more) …{line[last:]}"
    return f"{line[:start]}… ({end - start:,} characters left out) …{line[end:]}"


def _runs(keys: Sequence[str], period: int) -> list[int]:
    """Returns for each place how many items from there on are equal to the one `period` later."""
    runs = [0] * len(keys)
    for at in range(len(keys) - period - 1, -1, -1):
        runs[at] = runs[at + 1] + 1 if keys[at] == keys[at + period] else 0
    return runs
