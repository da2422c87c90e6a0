"""Copies at the boundary of a replayed CUDA graph: inputs into memory that it works on, results out of it. Nobody's work.

A graph reads and writes where it was captured, so an honest program copies in and out around each replay: what a program
without a graph saves. Such a copy moves one whole input or output once, unchanged; whatever does more (a conversion, a
gather, parts of a tensor put together) counts as before, and so does the one copy that a program without a graph would need as
well. Pure functions. Where to look next: `verify/integrity/byte_traffic.py` and `verify/program/simulated_graph.py` (who tells,
on the simulator), `verify/integrity/dispatch_recorder.py` (who keeps what they tell), `verify/integrity/device_time.py` (the
same question on a GPU).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

Range = tuple[int, int]                    # address and length in bytes
Note = tuple[str, int, str]                # kind, count, what: notes in the order in which they were made


@dataclass(frozen=True)
class BoundaryCopy:
    """A plain copy: same shape, dtype and layout on both sides."""

    place: int                             # among what was told
    operator: str
    moved: int                             # bytes that count for it
    source: Range
    target: Range


@dataclass
class Replay:
    """From its begin to its end, with the memory of the tensors that its steps were given or made."""

    begin: int
    end: int
    touched: set[Range]

    def works_on(self, memory: Range) -> bool:
        """Whether a step has just this memory, and none has a part of it together with something else."""
        return memory in self.touched and not any(touched != memory and _overlap(touched, memory) for touched in self.touched)


def free_copies(told: Iterable[Note], inputs: Collection[Range], outputs: Collection[Range]) -> list[BoundaryCopy]:
    """The copies of one call that are no work: each of `inputs` and `outputs`, the tensors of the call, at most once."""
    copies, replays = _read(told)
    theirs = (*inputs, *outputs)
    going: dict[Range, BoundaryCopy] = {}
    coming: dict[Range, BoundaryCopy] = {}
    for copy in copies:
        before = [replay for replay in replays if replay.end < copy.place]
        after = [replay for replay in replays if replay.begin > copy.place]
        if any(replay.begin < copy.place < replay.end for replay in replays):
            continue                       # what was captured is the graph's own work
        if copy.target in outputs and _apart(copy.source, theirs) and any(replay.works_on(copy.source) for replay in before):
            going.setdefault(copy.target, copy)
        elif copy.source in inputs and _apart(copy.target, theirs) and any(replay.works_on(copy.target) for replay in after):
            coming.setdefault(copy.source, copy)
    results = [copy.source for copy in going.values()]  # where a graph works in place, one of both copies is needed anyway
    return [*(copy for copy in coming.values() if _apart(copy.target, results)), *going.values()]


def _read(told: Iterable[Note]) -> tuple[list[BoundaryCopy], list[Replay]]:
    copies: list[BoundaryCopy] = []
    replays: list[Replay] = []
    open_: Replay | None = None
    for place, (kind, count, what) in enumerate(told):
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
