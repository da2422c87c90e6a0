"""Says which nodes of a captured graph must run before which, and which memory each node overwrites.

Data dependencies alone are not enough: BatchNorm in training updates its statistics, and `x[:, 0] = 0` writes through a view
of a value that later nodes read under its old name. So two nodes stay in order when one of them writes memory that the other
reads or writes. A node writes when its operator's name ends in `_`, or when it is a BatchNorm or InstanceNorm in training.
Nodes that draw random numbers stay in order too, and none of them is left out: each draw depends on those before it. It knows
nothing of devices, streams or kernels.

Where to look next: `compiler/regions/groups.py` (regions that respect this order), `compiler/printing/statement_order.py`
(statements that do).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from stitchcuda.compiler.capture.op_graph import Node, OpGraph, ValueRef

_DUNDER_IN_PLACE = frozenset({"__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"})
_RUNNING_STATISTICS = {"batch_norm": 5, "instance_norm": 5}
"""Operators that write their arguments 3 and 4 when the argument at this position (training, use_input_stats) is true."""


def references(item: Any) -> Iterator[str]:
    """Yields the value names inside an argument or a nested structure, in order, with repetitions."""
    if isinstance(item, ValueRef):
        yield item.value
    elif isinstance(item, dict):
        for part in item.values():
            yield from references(part)
    elif isinstance(item, tuple | list):
        for part in item:
            yield from references(part)


def reads(node: Node) -> tuple[str, ...]:
    """Returns the names of the values that a node takes, in argument order, with repetitions."""
    return (*references(node.args), *references(node.kwargs))


def base_name(op: str) -> str:
    """Returns the operator's name without namespace and overload: `relu_` for `aten.relu_.default`."""
    return op.split(".")[1] if op.count(".") >= 2 else op


def writes(node: Node) -> tuple[str, ...]:
    """Returns the names of the values whose memory a node overwrites; empty for most operators, which are pure."""
    base = base_name(node.op)
    flag = _RUNNING_STATISTICS.get(base)
    if flag is not None:
        written = node.args[3:5] if len(node.args) > flag and node.args[flag] is True else ()
        return tuple(references(written))
    if (base.endswith("_") and not base.endswith("__")) or base in _DUNDER_IN_PLACE:
        return tuple(references(node.args[:1]))
    return ()


def memory_owners(graph: OpGraph) -> dict[str, str]:
    """Maps each value to the value that owns its memory: itself, unless it is a view or an in-place result."""
    owner = {spec.name: spec.name for spec in graph.inputs} | {entry.spec.name: entry.spec.name for entry in graph.state}
    for node in graph.nodes:
        for output in node.outputs:
            owner[output.name] = owner[node.aliases] if node.aliases is not None else output.name
    return owner


def without_dead_nodes(graph: OpGraph) -> OpGraph:
    """Returns the graph without operators that write and draw nothing and whose results are unused (such as attention
    weights)."""
    used = set(references(graph.outputs)) | {mutation.value for mutation in graph.mutations}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.draws or writes(node) or any(output.name in used for output in node.outputs):
            kept.append(node)
            used.update(reads(node))
    return graph.model_copy(update={"nodes": tuple(reversed(kept))})


def dependencies(graph: OpGraph) -> dict[str, frozenset[str]]:
    """Maps each node's name to the nodes that must run before it: its producers, and earlier accesses that conflict in memory.

    Edges that follow from others are partly left out. The order of `graph.nodes` satisfies the result.
    """
    owner = memory_owners(graph)
    producer = {output.name: node.name for node in graph.nodes for output in node.outputs}
    writer: dict[str, str] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    needed: dict[str, frozenset[str]] = {}
    drawn: set[str] = set()                # the last node that draws
    for node in graph.nodes:
        before = {producer[value] for value in reads(node) if value in producer}
        if node.draws:
            before |= drawn
            drawn = {node.name}
        touched = dict.fromkeys(owner[value] for value in reads(node))
        overwritten = {owner[value] for value in writes(node)}
        for memory in touched:
            if memory in writer:
                before.add(writer[memory])
            if memory in overwritten:
                before.update(readers[memory])
        for memory in touched:
            if memory in overwritten:
                writer[memory] = node.name
                readers[memory] = []
            else:
                readers[memory].append(node.name)
        needed[node.name] = frozenset(before - {node.name})
    return needed
