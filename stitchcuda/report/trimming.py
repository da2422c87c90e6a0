"""Decides which lines of diffs and logs a page shows, so that it stays small, and counts the rest.

Small texts stay whole; large ones share the room that is left evenly. Of a log the first and the last lines are shown, of a
diff the first. Sizes are bytes in the page, after escaping.

Where to look next: `report/page.py` (how much room there is), `report/diffs.py` (the diffs).
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import escape

from stitchcuda.report.diffs import FileChange
from stitchcuda.report.untrusted_text import clipped
from stitchcuda.sandbox.foreign_text import plain
from stitchcuda.state import Record

LONGEST = 500                              # most characters of a line that are shown
FILE = 400                                 # bytes of markup around a file's lines
_FRAME = 14                                # bytes of markup around a line


class Excerpt(Record):
    """Lines of a text. After the first `head` lines, `left_out` lines are left out."""

    lines: tuple[str, ...] = ()
    head: int = 0
    left_out: int = 0


def share(sizes: Sequence[int], room: int) -> int:
    """The most bytes that each text may have so that all together take at most `room`; small ones leave room to others."""
    left, fair = room, 0
    for taken, size in enumerate(sorted(sizes)):
        fair = left // (len(sizes) - taken)
        if size > fair:
            return max(fair, 0)
        left -= size
    return max(fair, max(sizes, default=0))


def size(lines: Sequence[str]) -> int:
    """The bytes that lines take in a page."""
    return sum(map(_line_size, lines))


def _line_size(line: str) -> int:
    return len(escape(line[:LONGEST]).encode("utf-8", "replace")) + _FRAME


def shown(text: str, room: int) -> Excerpt:
    """The first and the last lines of a text, as many as `room` allows: errors stand first, their count stands last."""
    lines = [clipped(line, LONGEST) for line in plain(text).splitlines()]
    if size(lines) <= room:
        return Excerpt(lines=tuple(lines), head=len(lines))
    head = _count_fitting(lines, room * 3 // 4)
    tail = _count_fitting(lines[:head - len(lines) - 1:-1], room - size(lines[:head]))
    last = lines[len(lines) - tail :] if tail else []
    return Excerpt(lines=(*lines[:head], *last), head=head, left_out=len(lines) - head - tail)


def trimmed(files: Sequence[FileChange], room: int) -> tuple[FileChange, ...]:
    """The files with as many lines as `room` allows, in order; each says how many of its lines are left out."""
    done = []
    for file in files:
        lines = [clipped(plain(line), LONGEST) for line in file.lines]
        fits = _count_fitting(lines, room - FILE)
        room -= size(lines[:fits]) + FILE if fits else 0
        done.append(file.model_copy(update={"lines": tuple(lines[:fits]), "left_out": len(lines) - fits}))
    return tuple(done)


def _count_fitting(lines: Sequence[str], room: int) -> int:
    """How many of the first lines fit into `room` bytes."""
    for count, line in enumerate(lines):
        room -= _line_size(line)
        if room < 0:
            return count
    return len(lines)
