"""Judges one candidate: composed from a seed, or a text that exists. It passes all filters and becomes a task, or is refused.

It runs in a worker process, one thread each. Texts are run as references are: trusted, with limits on memory and time.
Where to look next: `training/tasks/filters.py` (the questions), `training/tasks/synthesis.py` (many candidates).
"""

from __future__ import annotations

import hashlib
import random
import resource
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import torch

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions import cost
from stitchcuda.state import DeviceFacts, Record
from stitchcuda.tools.device.device import device_facts
from stitchcuda.training.tasks import decontamination, scaling
from stitchcuda.training.tasks.composition import Composition, compose
from stitchcuda.training.tasks.decontamination import HeldOut, structure_of
from stitchcuda.training.tasks.difficulty import Difficulty, difficulty_of
from stitchcuda.training.tasks.filters import Refused, examine
from stitchcuda.training.tasks.folding import folded
from stitchcuda.training.tasks.scaling import UnusableSource

MOST_BYTES, MOST_S = 12 << 30, 180         # of one candidate's process
_PLAIN = {"clone", "copy", "cat", "stack", "index_select", "embedding", "gather", "pad", "constant_pad_nd"}


class TrainingTask(Record):
    """A task as a line of a file. `source`: the reference at its own sizes; `small`: the same with the sizes at which filters
    ran. `nearest`: the held-out program that it is most like, and the overlap of their shingles."""

    name: str
    source: str
    small: str
    candidate: int
    structure: str
    operators: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    residual: bool = False
    inputs: int = 1
    nearest: tuple[str, float] = ("", 0.0)
    difficulty: Difficulty


class Refusal(Record):
    """A candidate that a filter refused."""

    candidate: int
    filter: str
    why: str
    structure: str = ""


@dataclass(frozen=True)
class Candidate:
    """Composed from (seed, number), or, with a `source`, a text that exists."""

    number: int
    seed: int = 0
    name: str = ""
    source: str = ""
    small: str = ""
    structure: str = ""

    def draft(self) -> tuple[Composition, random.Random]:
        rng = random.Random(f"{self.seed}/{self.number}")
        return compose(rng), rng


@dataclass(frozen=True)
class TaskConditions:
    """What every candidate is judged by. `held_out`: places given with --held-out."""

    held_out: tuple[Path, ...] = ()
    inductor: bool = False
    predict_for: str = "h200"


def begin() -> None:
    """Prepares a worker process."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))


def judge(candidate: Candidate, asked: TaskConditions) -> TrainingTask | Refusal:
    """Puts a candidate through all filters but "duplicate"."""
    signal.alarm(MOST_S)
    try:
        return _judge(candidate, asked)
    except Refused as refused:
        return Refusal(candidate=candidate.number, filter=refused.filter, why=refused.why, structure=candidate.structure)
    except (TimeoutError, MemoryError) as error:
        why = str(error) or "out of memory"
        return Refusal(candidate=candidate.number, filter="runs", why=why, structure=candidate.structure)
    finally:
        signal.alarm(0)


def _judge(candidate: Candidate, asked: TaskConditions) -> TrainingTask:
    draft, rng = (None, None) if candidate.source else candidate.draft()
    small = draft.write(draft.small()) if draft else candidate.small or candidate.source
    nearest, overlap = _held_out(asked.held_out).nearest(structure_of(small))
    if overlap >= decontamination.OVERLAP:
        raise Refused("held out", f"{overlap:.0%} like {nearest}")
    examine(small, without=draft.without_each() if draft else None, inductor=asked.inductor)
    device = _device(asked.predict_for)
    source, graph = candidate.source, None
    try:
        if draft and rng:
            sizes, graph, ms = scaling.fit(draft, device, rng)
            source = draft.write(sizes)
        else:
            graph = scaling.shape_graph(source)
            ms = cost.eager_ms(graph, (), device)
    except UnusableSource as error:
        raise Refused("size", str(error)) from error
    if graph.opaque:
        raise Refused("exports", graph.opaque)
    if fold := folded(graph):
        raise Refused("does not fold", fold)
    if not scaling.LEAST_MS <= ms <= scaling.MOST_MS:
        raise Refused("size", f"estimated to take {ms:.3g} ms")
    used = draft.operators if draft else []
    difficulty = difficulty_of(graph, device)
    if _trivial(graph, difficulty):
        raise Refused("not trivial", "one element-wise operator or copy")
    return TrainingTask(
        name=candidate.name or f"task-{candidate.number:06d}", source=source, small=small, candidate=candidate.number,
        structure=candidate.structure, difficulty=difficulty, nearest=(nearest, round(overlap, 3)), inputs=len(graph.inputs),
        operators=tuple(operator.name for operator in used),
        families=tuple(dict.fromkeys(operator.family for operator in used)),
        residual=draft is not None and draft.residual,
    )  # fmt: skip


def _trivial(graph: OpGraph, difficulty: Difficulty) -> bool:
    """Whether all that a task does is one element-wise operator or one copy: neither a product nor a row operator."""
    if difficulty.operators > 1 or difficulty.kernels > 1 or difficulty.library:
        return False
    ops = [node.op.split(".")[1] for node in graph.nodes if node.aliases is None]
    rows = any(word in op for op in ops for word in (*cost.ROW_OPERATORS, "cum", "sort", "topk", "cdist", "conv"))
    return not rows or all(op in _PLAIN for op in ops)


@cache
def _held_out(places: tuple[Path, ...]) -> HeldOut:
    return decontamination.read_held_out(places)


@cache
def _device(predict_for: str) -> DeviceFacts:
    return device_facts("sim", predict_for=predict_for)


def held_out_digest(places: tuple[Path, ...]) -> str:
    """Returns a digest of all structures that no task may be like."""
    return hashlib.sha256("".join(sorted(program.digest for program in _held_out(places).programs)).encode()).hexdigest()[:16]


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"takes more than {MOST_S} s")
