"""Finds what a task's kernels have to replace: the inputs, outputs and operators of all its regions taken together.

All instances of all regions belong to a task. A tensor that it makes is none of its inputs, one that nothing else reads is none
of its outputs, and views that only it reads are part of it. It has several equal instances only where every region has that
many, and then each can be served by the same kernels. All functions are pure; no time is predicted here.

Where to look next: `compiler/regions/partition.py` (cuts the regions), `engineers/task_text.py` (shows the contract).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from stitchcuda.compiler.capture.dependencies import dependencies, memory_owners, reads, writes
from stitchcuda.compiler.capture.op_graph import Literal_, Node, OpGraph, ValueRef
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.state import Region, TensorSpec


@dataclass(frozen=True)
class Border:
    """Tensors of a set of nodes. Parameters and buffers are named `self.` and their state_dict key, other tensors as in the
    graph. `updates`: tensors made elsewhere that the nodes overwrite. `views`: input → the operator that makes it a view, and
    of which tensor. `listing`: a line per operator, `name = op(arguments)  # shape dtype`."""

    nodes: frozenset[str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    updates: tuple[TensorSpec, ...]
    views: dict[str, str]
    listing: str


@dataclass(frozen=True)
class TaskContract:
    """`whole`: all nodes of the task. `instances`: equal parts of it, in execution order; a single one is the whole. `between`:
    operators outside of the task that read what it makes and make what it reads, so that one kernel cannot do it all."""

    whole: Border
    instances: tuple[Border, ...]
    between: tuple[str, ...]


def task_contract(graph: OpGraph, regions: Sequence[Region]) -> TaskContract:
    """Returns the contract of `regions`, which are in execution order. Opaque regions have no nodes: the contract is empty."""
    flow = Flow(graph)
    whole = _border(flow, {name for region in regions for nodes in region.nodes for name in nodes})
    parts = [_border(flow, names) for names in _split_instances(regions)]
    equal = len(parts) > 1 and len({_form(flow, part) for part in parts}) == 1
    return TaskContract(whole, tuple(parts) if equal else (whole,), nodes_between(flow, whole.nodes))


def _split_instances(regions: Sequence[Region]) -> list[set[str]]:
    """Returns the nodes of as many parts as every region's instances can be dealt out to, in execution order."""
    count = math.gcd(*(len(region.nodes) for region in regions))
    parts: list[set[str]] = [set() for _ in range(count)]
    for region in regions:
        share = len(region.nodes) // count
        for place, nodes in enumerate(region.nodes):
            parts[place // share].update(nodes)
    return parts


def _border(flow: Flow, names: Collection[str]) -> Border:
    inside = _with_views(flow, names)
    nodes = [node for node in flow.graph.nodes if node.name in inside]
    made = {spec.name for node in nodes for spec in node.outputs}
    keys = {tensor.spec.name: f"self.{tensor.key}" for tensor in flow.graph.state}
    owner = memory_owners(flow.graph)

    def shown(values: Collection[str]) -> tuple[TensorSpec, ...]:
        specs = [flow.specs[value] for value in dict.fromkeys(values) if value in flow.specs]
        return tuple(spec.model_copy(update={"name": keys.get(spec.name, spec.name)}) for spec in specs)

    read = [value for node in nodes for value in reads(node) if value not in made]
    written = [owner[value] for node in nodes for value in writes(node) if owner[value] not in made]
    wanted = [spec.name for node in nodes for spec in node.outputs if _is_wanted(flow, spec.name, inside)]
    return Border(
        nodes=frozenset(inside), inputs=shown(read), outputs=shown(wanted), updates=shown(written),
        views={value: text for value in read if (text := _view_text(flow, value, keys))},
        listing="\n".join(_operator(node, keys) for node in nodes),
    )  # fmt: skip


def _with_views(flow: Flow, names: Collection[str]) -> set[str]:
    """Adds the views of tensors made inside that only nodes inside read, directly or through other such views."""
    inside, possible = set(names), set[str]()
    for node in reversed(flow.graph.nodes):
        values = [spec.name for spec in node.outputs]
        readers = {reader.name for value in values for reader in flow.readers.get(value, ())}
        if flow.is_view(node) and readers and readers <= inside | possible and flow.results.isdisjoint(values):
            possible.add(node.name)
    for node in flow.graph.nodes:
        maker = flow.producer.get(flow.source(node) or "")
        if node.name in possible and maker is not None and maker[0].name in inside:
            inside.add(node.name)
    return inside


def _is_wanted(flow: Flow, value: str, inside: Collection[str]) -> bool:
    """Whether the program returns a value, or a node outside reads it."""
    return value in flow.results or any(reader.name not in inside for reader in flow.readers.get(value, ()))


def _view_text(flow: Flow, value: str, names: dict[str, str]) -> str:
    """Returns which operator makes a value a view, and of which stored tensor; "" where it is no view."""
    base = flow.base(value)
    if base == value:
        return ""
    spec = flow.specs[base]
    return f"{flow.producer[value][0].op} of {names.get(base, base)} {list(spec.shape)}, from element {flow.leaf(value).offset}"


def nodes_between(flow: Flow, inside: Collection[str]) -> tuple[str, ...]:
    """Returns the names of nodes outside that come after one inside and before another one, views left out."""
    before = dependencies(flow.graph)
    after_inside = set[str]()
    for node in flow.graph.nodes:
        if any(name in inside or name in after_inside for name in before[node.name]):
            after_inside.add(node.name)
    found, leads_inside = [], set[str]()
    for node in reversed(flow.graph.nodes):
        if node.name in inside or node.name in leads_inside:
            leads_inside.update(before[node.name])
    for node in flow.graph.nodes:
        if node.name in after_inside & leads_inside and node.name not in inside and not flow.is_view(node):
            found.append(node.name)
    return tuple(found)


def _form(flow: Flow, border: Border) -> str:
    """Returns a text that is the same for sets of nodes that compute the same from tensors of the same shapes and strides."""
    names: dict[str, str] = {}

    def named(arg: Any) -> Any:
        if isinstance(arg, ValueRef):
            spec = flow.specs.get(arg.value)
            name = names.setdefault(arg.value, f"given {len(names)}")
            return (name, spec.shape, spec.strides, spec.dtype) if spec else name
        if isinstance(arg, tuple | list):
            return tuple(map(named, arg))
        return repr(arg)

    lines = []
    for node in flow.graph.nodes:
        if node.name not in border.nodes:
            continue
        given = (named(node.args), tuple((key, named(arg)) for key, arg in sorted(node.kwargs.items())))
        wanted = [_is_wanted(flow, spec.name, border.nodes) for spec in node.outputs]
        lines.append((node.op, given, [(spec.shape, spec.strides, spec.dtype) for spec in node.outputs], wanted))
        names |= {spec.name: f"made {len(names) + place}" for place, spec in enumerate(node.outputs)}
    return repr(lines)


def _operator(node: Node, names: dict[str, str]) -> str:
    arguments = [_argument(arg, names) for arg in node.args]
    arguments += [f"{name}={_argument(arg, names)}" for name, arg in node.kwargs.items()]
    made = ", ".join(spec.name for spec in node.outputs) or node.name
    shapes = "; ".join(f"{list(spec.shape)} {spec.dtype}" for spec in node.outputs)
    return f"{made} = {node.op}({', '.join(arguments)})  # {shapes}"


def _argument(arg: Any, names: dict[str, str]) -> str:
    if isinstance(arg, ValueRef):
        return names.get(arg.value, arg.value)
    if isinstance(arg, Literal_):
        return arg.text
    if isinstance(arg, tuple | list):
        return f"[{', '.join(_argument(item, names) for item in arg)}]"
    return json.dumps(arg) if isinstance(arg, str) else str(arg)
