"""Finds the copies into and out of a replayed CUDA graph that do not count as work of torch's operators.

A graph reads and writes the memory with which it was captured, so an honest program copies its inputs in and its results out
around each replay. Such a copy moves one whole input or output once, unchanged. Whatever does more (a conversion, a gather,
tensors put together) counts as before, and so does a copy that a program without a graph would need as well. Pure functions.
Where to look next: `verify/integrity/byte_traffic.py` and `verify/program/simulated_graph.py` (who notes copies and replays, on
the simulator), `verify/integrity/dispatch_recorder.py` (who collects the notes), `verify/integrity/device_time.py` (on a GPU).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

Range = tuple[int, int]                    # address and length in bytes
Note = tuple[str, int, str]                # kind, count, what


@dataclass(frozen=True)
class BoundaryCopy:
    """A copy between tensors of the same shape, dtype and layout."""

    place: int                             # its position among the notes
    operator: str
    moved: int                             # the bytes counted for it: read and written
    source: Range
    target: Range


@dataclass
class Replay:
    """A replay of a graph: the positions of its first and last note, and the memory of the tensors that its steps use."""

    begin: int
    end: int
    touched: set[Range]

    def works_on(self, memory: Range) -> bool:
        """Whether a step uses exactly this memory, and no step uses memory that overlaps it otherwise."""
        return memory in self.touched and not any(touched != memory and _overlap(touched, memory) for touched in self.touched)


def free_copies(notes: Iterable[Note], inputs: Collection[Range], outputs: Collection[Range]) -> list[BoundaryCopy]:
    """The copies of one call that do not count: at most one for each of the call's `inputs` and `outputs`."""
    copies, replays = _read(notes)
    arguments = (*inputs, *outputs)
    going: dict[Range, BoundaryCopy] = {}
    coming: dict[Range, BoundaryCopy] = {}
    for copy in copies:
        before = [replay for replay in replays if replay.end < copy.place]
        after = [replay for replay in replays if replay.begin > copy.place]
        if any(replay.begin < copy.place < replay.end for replay in replays):
            continue                       # a captured copy is the graph's own work
        if copy.target in outputs and _apart(copy.source, arguments) and any(replay.works_on(copy.source) for replay in before):
            going.setdefault(copy.target, copy)
        elif copy.source in inputs and _apart(copy.target, arguments) and any(replay.works_on(copy.target) for replay in after):
            coming.setdefault(copy.source, copy)
    results = [copy.source for copy in going.values()]  # if a graph works in place, one of the two copies is needed anyway
    return [*(copy for copy in coming.values() if _apart(copy.target, results)), *going.values()]


def _read(notes: Iterable[Note]) -> tuple[list[BoundaryCopy], list[Replay]]:
    copies: list[BoundaryCopy] = []
    replays: list[Replay] = []
    open_: Replay | None = None
    for place, (kind, count, what) in enumerate(notes):
        words = what.split()
        numbers = [int(word) for word in words if word.isdecimal()]
        if kind == "replay":
            open_ = Replay(place, place, set())
        elif kind == "touch" and open_ is not None and len(numbers) == 1:
            open_.touched.add((numbers[0], count))
        elif kind == "replayed" and open_ is not None:
            open_.end = place
            replays.append(open_)
            open_ = None
        elif kind == "copy" and len(words) == 4 and len(numbers) == 3:
            source, target, length = numbers
            copies.append(BoundaryCopy(place, words[0], count, (source, length), (target, length)))
    return copies, replays


def _apart(memory: Range, others: Sequence[Range]) -> bool:
    return not any(_overlap(memory, other) for other in others)


def _overlap(first: Range, other: Range) -> bool:
    return first[0] < other[0] + other[1] and other[0] < first[0] + first[1]
