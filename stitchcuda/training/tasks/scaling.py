"""Chooses a task's sizes: such that a call in eager mode is estimated to take 1 to 100 ms on a GPU.

The estimate is the cost model's (`compiler/regions/cost.py`), from the operators as captured on torch's meta device, where
tensors have shapes and no data. Nothing is measured here, and no GPU is needed.
Where to look next: `training/tasks/difficulty.py` (what else the captured operators tell).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.regions import cost
from stitchcuda.state import DeviceFacts
from stitchcuda.training.tasks.composition import Composition

LEAST_MS, MOST_MS = 1.0, 100.0
_AIM = (1.6, 40.0)                         # a margin, since estimates are off by up to 1.5 either way
_INSIDE = (1.3, 75.0)                      # estimates that are taken
_LARGEST, _ALL = 4 << 30, 40 << 30         # bytes of one tensor, and of all inputs, parameters and results of operators
_TRIES = 5
_STEPS = {                                 # extents, and up to where they are doubled before the batch is larger than usual
    "height": 128, "width": 128, "length": 16_384, "seq_len": 2048, "num_points": 4096, "depth": 32, "context_len": 512,
    "matrix_rows": 1024, "matrix_cols": 1024,
}  # fmt: skip
_BATCH = 512                               # a usual batch; tasks without extents have rows, as many as they need


class UnusableSource(Exception):
    """A task's text does not run; the message says why."""


def define(source: str) -> dict[str, Any]:
    """Runs a task's text, and returns what it defines. Raises UnusableSource."""
    names: dict[str, Any] = {"__name__": "task"}
    try:
        exec(compile(source, "task.py", "exec"), names)
    except Exception as error:             # whatever the text does
        raise UnusableSource(f"{type(error).__name__}: {error}") from error
    if missing := [name for name in ("Model", "get_inputs") if name not in names]:
        raise UnusableSource(f"defines no {missing[0]}")
    return names


def shape_graph(source: str) -> OpGraph:
    """Returns the operators of a task at its own sizes, without allocating them. Raises UnusableSource."""
    names = define(source)
    try:
        with torch.device("meta"):
            model = names["Model"](*names.get("get_init_inputs", list)())
            given = tuple(names["get_inputs"]())
    except Exception as error:             # whatever the text does
        raise UnusableSource(f"{type(error).__name__}: {error}") from error
    return capture(model, given, {})


def fit(draft: Composition, device: DeviceFacts, rng: random.Random) -> tuple[dict[str, int], OpGraph, float]:
    """Returns sizes for a task, its operators at these, and the estimated milliseconds. Raises UnusableSource if none fit."""
    low, high = _AIM
    aim = low * (high / low) ** rng.random()
    sizes = draft.large()
    why = ""
    for tried in range(_TRIES):
        graph = shape_graph(draft.write(sizes))
        if graph.opaque:
            raise UnusableSource(graph.opaque)
        ms, (largest, total) = cost.eager_ms(graph, (), device), _sizes_in_bytes(graph)
        room = min(_LARGEST / largest, _ALL / total)
        if _INSIDE[0] <= ms <= _INSIDE[1] and room >= 1 and (tried or 0.5 * aim <= ms <= 2 * aim):
            return sizes, graph, ms
        why = f"{ms:.3g} ms, {total / 2**30:.3g} GiB at {', '.join(f'{name}={size}' for name, size in sizes.items())}"
        following = _scaled(sizes, min(aim / ms, 0.9 * room))
        if following == sizes:
            break
        sizes = following
    raise UnusableSource(f"no sizes were found: {why}")


def _scaled(sizes: Mapping[str, int], factor: float) -> dict[str, int]:
    """Scales the batch; where that would make it less than 1, extents are halved first, and doubled where it would be larger
    than usual."""
    scaled = dict(sizes)
    extents = [name for name in scaled if name.rstrip("0123456789") in _STEPS]
    while scaled["batch_size"] * factor > _BATCH:
        doubled = [name for name in extents if 2 * scaled[name] <= _STEPS[name.rstrip("0123456789")]]
        if not doubled:
            break
        for name in doubled:
            scaled[name] *= 2
        factor /= 2 ** len(doubled)
    while scaled["batch_size"] * factor < 1:
        halved = [name for name in extents if scaled[name] % 16 == 0 and scaled[name] > 16]
        if not halved:
            break
        for name in halved:
            scaled[name] //= 2
        factor *= 2 ** len(halved)
    batch = max(1, round(scaled["batch_size"] * factor))
    step = next(step for limit, step in ((32, 1), (512, 8), (4096, 128), (batch + 1, 1024)) if batch < limit)
    scaled["batch_size"] = max(1, round(batch / step)) * step
    return scaled


def _sizes_in_bytes(graph: OpGraph) -> tuple[int, int]:
    """Returns the bytes of the largest tensor, and of all that are made or given."""
    specs = [*graph.inputs, *(entry.spec for entry in graph.state)]
    specs += [spec for node in graph.nodes if node.aliases is None for spec in node.outputs]
    found = [spec.elements * size_of(spec.dtype) for spec in specs]
    return max([*found, 1]), max(sum(found), 1)
