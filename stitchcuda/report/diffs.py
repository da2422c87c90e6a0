"""Computes what an attempt has changed: the diff of its program against the one that it started from.

Files are compared by digest first, so only those that differ are read. A change of more than `_MOST_LINES` lines is shown as a
replacement of all of them. Nothing is trimmed here.

Where to look next: `report/trimming.py` (how much of a diff is shown), `report/gathering.py` (who calls this).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Literal

from stitchcuda.state import Digest, Record
from stitchcuda.store import Store

AROUND = 3                                 # unchanged lines shown before and after a change
_MOST_LINES = 4000                         # most lines of a change that are compared: the time grows with their square
_ORDER = {".cu": 0, ".cuh": 0, ".py": 1, ".cc": 2, ".cpp": 2, ".h": 2}
Span = tuple[str, int, int, int, int]


class FileChange(Record):
    """One file of a program. `lines` are those of a unified diff: each begins with "@", " ", "+" or "-"."""

    path: str
    what: Literal["new", "changed", "removed"]
    added: int = 0
    removed: int = 0
    lines: tuple[str, ...] = ()
    left_out: int = 0                      # number of lines that are not shown for want of room
    note: str = ""                         # why there are no lines
    digest: Digest = ""                    # of the new file; of the old one if it was removed


def changes(store: Store, base: Digest | None, program: Digest) -> tuple[FileChange, ...]:
    """The files in which `program` differs from `base`, kernels first; without a base all are new. Raises Damaged if a program
    cannot be read."""
    before, after = (_manifest(store, digest) if digest else {} for digest in (base, program))
    paths = [path for path in {**after, **before} if before.get(path) != after.get(path)]
    return tuple(_change(store, path, before.get(path), after.get(path)) for path in sorted(paths, key=_rank))


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff without its two head lines; nothing for equal texts."""
    for group in _Grouping(_spans(old, new)).get_grouped_opcodes(AROUND):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_from:old_to])
                continue
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _range(start: int, end: int) -> str:
    """"FIRST,COUNT" as in `diff -u`: for no lines, FIRST is the line before them."""
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
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return known.model_copy(update={"lines": lines, "added": added, "removed": removed})


@lru_cache(maxsize=512)
def _lines(data: bytes) -> tuple[str, ...] | None:
    """The lines of a file; None if it is not text."""
    if b"\x00" in data[:8192]:
        return None
    try:
        return tuple(data.decode().split("\n"))
    except UnicodeDecodeError:
        return None


def _rank(path: str) -> tuple[int, str]:
    suffix = path[path.rfind("."):] if "." in path else ""
    return 9 if path == "program.json" else _ORDER.get(suffix, 3), path


class _Grouping(SequenceMatcher[str]):
    """difflib's way to group changes with the lines around them, for spans that are known already."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__()
        self._known = spans

    def get_opcodes(self) -> list[Any]:
        return self._known


def _spans(old: Sequence[str], new: Sequence[str]) -> list[Span]:
    """The equal and unequal parts of two texts, in order, as difflib's opcodes."""
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
