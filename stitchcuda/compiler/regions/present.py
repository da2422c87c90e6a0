"""Describes a program as it is: what it runs in order, what that costs and could cost, and which kept task each part is of.

It is made from the captured graph and the regions whose kernels are in the program, never from what plans claim. A task of
several regions is taken at its best, as in `compiler/regions/cost.py`, since which kernels it has is not known from the graph.
Times are the cost model's; nothing is measured here.

Where to look next: `compiler/regions/measured.py` (adds measured times), `nodes/prediction.py` (what is in a program),
`engineers/present_text.py` (shows it).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stitchcuda.compiler.capture.dependencies import dependencies
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.floor import LAUNCH_US, Floor, fastest_rate, program_floor
from stitchcuda.compiler.regions.operator_work import work_of
from stitchcuda.state import DeviceFacts, Precision, Region


@dataclass(frozen=True)
class PresentTask:
    """A kept task with something in the program. `regions`: those whose kernels are its own. `claim_ms`: the saving that a
    chat model expected; `saving_ms`: the measured one. None: there is none."""

    id: str
    title: str
    regions: tuple[Region, ...]
    claim_ms: float | None = None
    saving_ms: float | None = None
    modelled_ms: float = 0.0               # what the program would lose without its kernels, by the cost model
    measured_ms: float | None = None       # of its launches in a recorded call, the library's that own code called among them


@dataclass(frozen=True)
class PresentNode:
    """A kernel of a kept task, or an operator of torch. `task` is "" for torch; `regions` are ids. Times and floor in ms; `ms`
    is the cost model's, `measured_ms` that of a recorded call (None: which launches are its own is not known)."""

    name: str
    task: str
    regions: tuple[str, ...]
    launches: int
    moved: int                             # bytes
    flops: int
    ms: float                              # on the device
    floor: Floor
    makes: str                             # the last tensor that it makes, with its shape
    measured_ms: float | None = None

    @property
    def took_ms(self) -> float:
        """The measured time where there is one, else the predicted one."""
        return self.ms if self.measured_ms is None else self.measured_ms

    @property
    def above_ms(self) -> float:
        """How far it is above its floor: the most that it can give as long as it stays a node of its own."""
        return max(self.took_ms - self.floor.ms, 0.0)


@dataclass(frozen=True)
class PresentProgram:
    """`ms`: of a call; `device_ms`: of the device's work in it; `floor`: of the whole program as one kernel."""

    nodes: tuple[PresentNode, ...]
    tasks: tuple[PresentTask, ...]
    eager: cost.Cost
    ms: float
    device_ms: float
    floor: Floor
    replayed: bool                         # as a CUDA graph

    @property
    def left_ms(self) -> float:
        """The most that is left to gain, by the cost model."""
        return max(self.ms - self.floor.ms, 0.0)


def describe_program(
    graph: OpGraph, regions: Sequence[Region], tasks: Sequence[PresentTask], device: DeviceFacts, precision: Precision,
    *, replayed: bool, best: int | None = None,
) -> PresentProgram:  # fmt: skip
    """Describes the program in which `tasks` are kept, each region in at most one of them. `best`: the number of a task whose
    products run at their fastest rate, not a library's."""
    kernels = cost.kernels_of_tasks(graph, [task.regions for task in tasks], device, precision, best=best)
    issued = list(cost.issued_units(graph, kernels, device))
    now = cost.cost_of_units(graph, [unit for _, unit in issued], device, replayed=replayed)
    flow = Flow(graph)
    region_of = {node: region.id for region in regions for nodes in region.nodes for node in nodes}
    floor = program_floor(graph, device, precision)
    shown = []
    for number, task in enumerate(tasks):
        others = [kernel for kernel in kernels if kernel.task != number]
        without = cost.call_cost(graph, others, device, replayed=replayed).ms if task.regions else now.ms
        shown.append(replace(task, modelled_ms=without - now.ms))
    return PresentProgram(
        nodes=tuple(
            _kernel(flow, what, unit, tasks[what.task].id, device, precision) if isinstance(what, cost.StitchedKernel)
            else _operator(flow, what, unit, region_of, device, precision)
            for what, unit in _in_running_order(graph, issued) if unit.launches
        ),
        tasks=tuple(shown), eager=cost.call_cost(graph, (), device), ms=max(now.ms, floor.ms), device_ms=now.device_ms,
        floor=floor, replayed=replayed,
    )  # fmt: skip


def most_from_task(
    present: PresentProgram, graph: OpGraph, chosen: Sequence[Region], device: DeviceFacts, precision: Precision
) -> tuple[float, int]:
    """Returns the milliseconds that a call of the program would save if `chosen` became one task at its best, and of how many
    kernels that is."""
    names = {region.id for region in chosen}
    others = [[region for region in task.regions if region.id not in names] for task in present.tasks]
    kernels = cost.kernels_of_tasks(graph, [*others, chosen], device, precision, best=len(others))
    now = max(cost.call_cost(graph, kernels, device, replayed=present.replayed).ms, present.floor.ms)
    return present.ms - now, sum(kernel.task == len(others) for kernel in kernels)


def _in_running_order(
    graph: OpGraph, issued: Iterable[tuple[cost.StitchedKernel | Node, cost.IssuedWork]]
) -> list[tuple[cost.StitchedKernel | Node, cost.IssuedWork]]:
    """Returns what is issued, each after what it depends on, else in the graph's order. A kernel that depends on itself through
    others (the best one of a task of which one kernel cannot do it all) stays at the place of its first node."""
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    first = dict(position)                 # of each node: the position at which what it is part of begins
    units = {}
    for what, unit in issued:
        names = what.nodes if isinstance(what, cost.StitchedKernel) else (what.name,)
        begin = min(position[name] for name in names)
        units[begin] = (what, unit)
        first |= dict.fromkeys(names, begin)
    waits: dict[int, set[int]] = {begin: set() for begin in first.values()}
    followers: dict[int, set[int]] = {begin: set() for begin in waits}
    for name, before in dependencies(graph).items():
        for other in {first[other] for other in before} - {first[name]}:
            waits[first[name]].add(other)
            followers[other].add(first[name])
    ready, order = [begin for begin, needed in waits.items() if not needed], []
    heapq.heapify(ready)
    while waits:
        begin = heapq.heappop(ready) if ready else min(waits)
        del waits[begin]
        order.append(begin)
        for follower in followers[begin] & waits.keys():
            waits[follower].discard(begin)
            if not waits[follower]:
                heapq.heappush(ready, follower)
    return [units[begin] for begin in order if begin in units]


def _kernel(
    flow: Flow, kernel: cost.StitchedKernel, unit: cost.IssuedWork, task: str, device: DeviceFacts, precision: Precision
) -> PresentNode:
    nodes = [node for node in flow.graph.nodes if node.name in kernel.nodes]
    return PresentNode(
        name="own kernel", task=task, regions=kernel.regions, launches=unit.launches, moved=round(kernel.moved),
        flops=sum(work_of(flow, node).flops for node in nodes), ms=unit.device_us / 1e3,
        floor=_floor(flow, nodes, kernel.moved, unit.launches, device, precision), makes=_makes(nodes),
    )  # fmt: skip


def _operator(
    flow: Flow, node: Node, unit: cost.IssuedWork, region_of: dict[str, str], device: DeviceFacts, precision: Precision
) -> PresentNode:
    work = work_of(flow, node)
    return PresentNode(
        name=node.op, task="", regions=(region_of[node.name],) if node.name in region_of else (), launches=unit.launches,
        moved=work.bytes, flops=work.flops, ms=unit.device_us / 1e3,
        floor=_floor(flow, [node], work.bytes, 1, device, precision), makes=_makes([node]),
    )  # fmt: skip


def _makes(nodes: Sequence[Node]) -> str:
    made = [spec for node in nodes for spec in node.outputs]
    return f"{made[-1].name} {list(made[-1].shape)} {made[-1].dtype}" if made else ""


def _floor(
    flow: Flow, nodes: Sequence[Node], moved: float, launches: int, device: DeviceFacts, precision: Precision
) -> Floor:
    works = [(node, work_of(flow, node)) for node in nodes]
    seconds = sum(
        work.flops / rate
        for node, work in works
        if work.matrix and (rate := fastest_rate(node.op, node.outputs[0].dtype, device, precision))
    )
    bandwidth = device.bandwidth_gbs * 1e9
    return Floor(
        bytes_ms=1e3 * moved / bandwidth if bandwidth else 0.0, matrix_ms=1e3 * seconds, launch_ms=launches * LAUNCH_US / 1e3
    )
