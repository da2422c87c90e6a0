"""Orders a program's statements: library operators and kernel calls, each after everything it depends on.

A kernel call stands for the nodes between its inputs and its outputs. Nodes whose results nothing needs any more are left out;
accesses to shared memory of which one writes (BatchNorm's statistics, in-place operators) and all draws of random numbers keep
the reference's order. Otherwise
statements come in the reference's order where the kernels allow it. It writes no text.

Where to look next: `compiler/printing/program.py` (prints what this returns), `compiler/capture/dependencies.py` (what a node
writes).
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import memory_owners, reads, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.state import TensorSpec


class NotConvex(ValueError):
    """A region cannot run as one kernel: a node outside of it depends on one of its nodes and feeds another."""


@dataclass(frozen=True)
class KernelCall:
    """A call of one kernel. `values`: graph values in the order of its arguments; `covered`: the nodes that it replaces."""

    name: str
    stitch: Stitch
    values: tuple[str, ...]
    covered: tuple[Node, ...]

    def of_role(self, *roles: str) -> tuple[str, ...]:
        """Returns the values of arguments with these roles ("in", "out", "inout")."""
        arguments = self.stitch.kernel.arguments
        return tuple(value for value, argument in zip(self.values, arguments, strict=True) if argument.role in roles)


Unit = Node | KernelCall


def schedule(graph: OpGraph, stitches: Sequence[Stitch] = ()) -> tuple[Unit, ...]:
    """Returns the statements of the program, in the reference's order wherever the kernels allow it.

    Raises `NotConvex` for a region that cannot be one call, `ValueError` for a stitch that does not fit the graph.
    """
    calls = _calls(graph, stitches)
    made = {value: call for call in calls for value in call.of_role("out")}
    producer = {output.name: node for node in graph.nodes for output in node.outputs}
    gone = {node.name for call in calls for node in call.covered if writes(node)}

    units: dict[str, Unit] = {}
    pending: list[Unit] = [node for node in graph.nodes if (node.draws or writes(node)) and node.name not in gone]
    pending += [call for call in calls if call.of_role("inout")]

    def need(value: str) -> None:
        if value in made:
            pending.append(made[value])
        elif value in producer:
            if producer[value].name in gone:
                raise ValueError(f"{value} is needed outside of the region that replaces it, and its kernel does not write it.")
            pending.append(producer[value])

    for value in references(graph.outputs):
        need(value)
    while pending:
        unit = pending.pop()
        if unit.name not in units:
            units[unit.name] = unit
            for value in _values_read(unit):
                need(value)
    idle = [call for call in calls if call.name not in units]
    if idle:
        raise ValueError(f"The program needs nothing that region {idle[0].stitch.region} computes.")
    return _sorted(graph, units, made)


def _values_read(unit: Unit) -> tuple[str, ...]:
    return unit.of_role("in", "inout") if isinstance(unit, KernelCall) else reads(unit)


def specs_by_name(graph: OpGraph) -> dict[str, TensorSpec]:
    """Returns the shape, dtype and strides of every value of the graph, by its name."""
    given = {spec.name: spec for spec in graph.inputs} | {entry.spec.name: entry.spec for entry in graph.state}
    return given | {output.name: output for node in graph.nodes for output in node.outputs}


def _calls(graph: OpGraph, stitches: Sequence[Stitch]) -> list[KernelCall]:
    known, owner = specs_by_name(graph), memory_owners(graph)
    producer = {output.name: node for node in graph.nodes for output in node.outputs}
    position = {node.name: index for index, node in enumerate(graph.nodes)}
    writers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in writes(node):
            writers[owner[value]].append(node)
    claimed: set[str] = set()
    calls: list[KernelCall] = []
    for stitch in stitches:
        for index, values in enumerate(stitch.instances):
            _check_fit(stitch, values, known)
            call = KernelCall(f"{stitch.region}#{index}", stitch, values, ())
            given, updated = set(call.of_role("in", "inout")), {owner[value] for value in call.of_role("inout")}
            covered: dict[str, Node] = {}
            stack = [producer[value] for value in call.of_role("out")]
            while stack:
                node = stack.pop()
                if node.name in covered:
                    continue
                covered[node.name] = node
                stack += [producer[value] for value in reads(node) if value in producer and value not in given]
            for memory in updated:
                if not any(owner[value] == memory for node in covered.values() for value in writes(node)):
                    free = [node for node in writers[memory] if node.name not in claimed]
                    covered |= {node.name: node for node in free[:1]}
            for node in covered.values():
                stray = [value for value in writes(node) if owner[value] not in updated]
                if stray:
                    raise ValueError(
                        f"Region {stitch.region} covers {node.op}, which writes {stray[0]}, but its kernel does not."
                    )
            claimed |= {node.name for node in covered.values() if writes(node)}
            ordered = tuple(sorted(covered.values(), key=lambda node: position[node.name]))
            calls.append(KernelCall(call.name, stitch, values, ordered))
    return calls


def _check_fit(stitch: Stitch, values: tuple[str, ...], known: dict[str, TensorSpec]) -> None:
    arguments = stitch.kernel.arguments
    if len(values) != len(arguments):
        raise ValueError(
            f"Region {stitch.region}: {len(arguments)} kernel arguments, but an instance names {len(values)} values."
        )
    for value, argument in zip(values, arguments, strict=True):
        spec = known.get(value)
        if spec is None:
            raise ValueError(f"Region {stitch.region}: the graph has no value {value}.")
        contract = (argument.shape, argument.dtype, relevant_strides(argument.shape, argument.strides))
        if contract != (spec.shape, spec.dtype, relevant_strides(spec.shape, spec.strides)):
            raise ValueError(f"Region {stitch.region}: argument {argument.name} does not fit the value {value}.")


def relevant_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides that matter: those of dimensions longer than 1, and none of an empty tensor."""
    return () if 0 in shape else tuple(stride for size, stride in zip(shape, strides, strict=True) if size > 1)


def _sorted(graph: OpGraph, units: dict[str, Unit], made: dict[str, KernelCall]) -> tuple[Unit, ...]:
    position = {node.name: index for index, node in enumerate(graph.nodes)}
    producer = {output.name: node for node in graph.nodes for output in node.outputs}
    before: dict[str, set[str]] = {name: set() for name in units}
    for unit in units.values():
        for value in _values_read(unit):
            if value in made:
                before[unit.name].add(made[value].name)
            elif value in producer:
                before[unit.name].add(producer[value].name)
    _keep_memory_order(graph, units, made, before)
    drawing = [node.name for node in graph.nodes if node.draws]
    for earlier, later in itertools.pairwise(drawing):
        before[later].add(earlier)
    place = {
        unit.name: min([position[producer[value].name] for value in unit.of_role("out")] or [position[unit.covered[0].name]])
        if isinstance(unit, KernelCall)
        else position[unit.name]
        for unit in units.values()
    }
    after: dict[str, list[str]] = defaultdict(list)
    waiting = {}
    for name, needed in before.items():
        needed.discard(name)
        waiting[name] = len(needed)
        for other in needed:
            after[other].append(name)
    ready = [(place[name], name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    result: list[Unit] = []
    while ready:
        _, name = heapq.heappop(ready)
        result.append(units[name])
        for other in after[name]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (place[other], other))
    if len(result) < len(units):
        stuck = [unit for unit in units.values() if waiting[unit.name] > 0 and isinstance(unit, KernelCall)]
        regions = ", ".join(sorted({unit.stitch.region for unit in stuck}))
        raise NotConvex(f"Something between the nodes of region {regions} depends on one of them and feeds another.")
    return tuple(result)


def _keep_memory_order(
    graph: OpGraph, units: dict[str, Unit], made: dict[str, KernelCall], before: dict[str, set[str]]
) -> None:
    """Adds to `before` the order of accesses to the same memory: where one of two writes, they keep the reference's order."""
    original, owner = memory_owners(graph), {}
    for spec in (*graph.inputs, *(entry.spec for entry in graph.state)):
        owner[spec.name] = spec.name
    for node in graph.nodes:
        for output in node.outputs:
            fresh = node.aliases is None or output.name in made
            owner[output.name] = output.name if fresh or node.aliases is None else owner[node.aliases]
    overwritten = {original[value] for node in graph.nodes for value in writes(node)}
    for value in made:
        if original[value] != value and original[value] in overwritten:
            raise ValueError(f"{value} shares memory that is written in place; a kernel's output cannot stand for it.")
    callers: dict[str, list[KernelCall]] = defaultdict(list)
    for unit in units.values():
        if isinstance(unit, KernelCall):
            for node in unit.covered:
                callers[node.name].append(unit)
    writer: dict[str, str] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        # a kernel reads through the views it covers, so it touches memory where their readers do
        viewing = node.aliases is not None and not writes(node)
        accesses = [
            (call.name, {owner[value] for value in call.of_role("in", "inout")})
            for call in callers[node.name]
            if not viewing or all(other.aliases is not None for other in call.covered)
        ]
        if node.name in units:
            accesses.append((node.name, {owner[value] for value in reads(node)}))
        for name, memories in accesses:
            written = {owner[value] for value in writes(node)}
            for memory in ({owner[value] for value in reads(node)} & memories) | written:
                if memory in writer:
                    before[name].add(writer[memory])
                if memory in written:
                    before[name].update(readers[memory])
                    writer[memory], readers[memory] = name, []
                else:
                    readers[memory].append(name)
