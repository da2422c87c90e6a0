"""Computes what an attempt has changed: the diff of its program against the one that it started from.

Files are compared by digest first, so only what differs is read. It trims nothing (see `report/trimming.py`) and writes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from stitchcuda.state import Digest, Record
from stitchcuda.store import Store

AROUND = 3                                 # unchanged lines shown before and after a change
_MOST_LINES = 4000                         # of a changed part: comparing takes their square; longer ones are replaced
_ORDER = {".cu": 0, ".cuh": 0, ".py": 1, ".cc": 2, ".cpp": 2, ".h": 2}
Span = tuple[str, int, int, int, int]


class FileChange(Record):
    """One file of a program. `lines` are those of a unified diff: each begins with "@", " ", "+" or "-"."""

    path: str
    what: Literal["new", "changed", "removed"]
    added: int = 0
    removed: int = 0
    lines: tuple[str, ...] = ()
    left_out: int = 0                      # lines that are not shown for want of room
    note: str = ""                         # why there are no lines
    digest: Digest = ""                    # of the file as it is now, of a removed one as it was


def changes(store: Store, base: Digest | None, program: Digest) -> tuple[FileChange, ...]:
    """Changed files, kernels first; without a base all files are new. Raises Unavailable where a program is not there."""
    before, after = (_manifest(store, digest) if digest else {} for digest in (base, program))
    paths = [path for path in {**after, **before} if before.get(path) != after.get(path)]
    return tuple(_change(store, path, before.get(path), after.get(path)) for path in sorted(paths, key=_rank))


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff without its two head lines; nothing for equal texts."""
    for group in _groups(_spans(old, new)):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
                continue
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _range(start: int, end: int) -> str:
    """As `diff -u` has it: of no lines, the line before them."""
    return f"{start + (end > start)},{end - start}"


def _manifest(store: Store, digest: Digest) -> Mapping[str, Digest]:
    found: Mapping[str, Digest] = json.loads(store.get(digest))["files"]
    return found


def _change(store: Store, path: str, old: Digest | None, new: Digest | None) -> FileChange:
    what: Literal["new", "changed", "removed"] = "new" if old is None else "removed" if new is None else "changed"
    known = FileChange(path=path, what=what, digest=new or old or "")
    texts = [_lines(store.get(digest)) if digest else () for digest in (old, new)]
    if texts[0] is None or texts[1] is None:
        return known.model_copy(update={"note": "binary: not shown"})
    lines = tuple(unified(texts[0], texts[1]))
    return known.model_copy(
        update={
            "lines": lines,
            "added": sum(line.startswith("+") for line in lines),
            "removed": sum(line.startswith("-") for line in lines),
        }
    )


@lru_cache(maxsize=512)
def _lines(data: bytes) -> tuple[str, ...] | None:
    """None for what is no text."""
    if b"\x00" in data[:8192]:
        return None
    try:
        return tuple(data.decode().split("\n"))
    except UnicodeDecodeError:
        return None


def _rank(path: str) -> tuple[int, str]:
    suffix = path[path.rfind("."):] if "." in path else ""
    return 9 if path == "program.json" else _ORDER.get(suffix, 3), path


def _spans(old: Sequence[str], new: Sequence[str]) -> list[Span]:
    """What is equal and what is not, in order. Equal ends are taken off first: most changes are small."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    middle: list[Span]
    if not left or not right or max(len(left), len(right)) > _MOST_LINES:
        middle = [("replace", 0, len(left), 0, len(right))] if left or right else []
    else:
        middle = [(str(kind), a, b, c, d) for kind, a, b, c, d in SequenceMatcher(None, left, right).get_opcodes()]
    moved = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in middle]
    first: list[Span] = [("equal", 0, head, 0, head)] if head else []
    last: list[Span] = [("equal", len(old) - tail, len(old), len(new) - tail, len(new))] if tail else []
    return [*first, *moved, *last]


def _groups(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Changes with a few equal lines around them; a long equal part ends a group and opens the next."""
    group: list[Span] = []
    for kind, a, b, c, d in spans:
        if kind != "equal":
            group.append((kind, a, b, c, d))
            continue
        if group and b - a > 2 * AROUND:
            yield [*group, (kind, a, a + AROUND, c, c + AROUND)]
            group = []
        if group:
            group.append((kind, a, b, c, d))
        else:
            cut = max(0, b - a - AROUND)
            group = [(kind, a + cut, b, c + cut, d)]
    if any(kind != "equal" for kind, *_ in group):
        kind, a, b, c, d = group[-1]
        keep = min(AROUND, b - a) if kind == "equal" else b - a
        yield [*group[:-1], (kind, a, a + keep, c, c + keep) if kind == "equal" else group[-1]]
