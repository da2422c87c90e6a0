"""Finds the inputs, outputs and operators of several regions taken together: what a task's kernels have to replace.

A task whose fusion boundary holds more than one region shows this to whoever writes its kernels. Views that are made and read
only inside belong to it. All functions are pure.

Where to look next: `compiler/regions/partition.py` (cuts the regions), `engineers/prompt.py` (shows the contract).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stitchcuda.compiler.capture.dependencies import reads, references
from stitchcuda.compiler.capture.op_graph import Literal_, Node, OpGraph, ValueRef
from stitchcuda.state import Region, TensorSpec


@dataclass(frozen=True)
class TaskContract:
    """Contract of a task's first instances. `listing`: a line per operator, `name = op(arguments)  # shape dtype`."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    listing: str


def task_contract(graph: OpGraph, regions: Sequence[Region]) -> TaskContract:
    """Returns the contract of the first instances of `regions`. Parameters are inputs, named `self.` and their state_dict key.

    `regions` are in execution order, and so is the listing.
    """
    inside = {name for region in regions if region.nodes for name in region.nodes[0]}
    users: dict[str, set[str]] = {}
    for node in graph.nodes:
        for value in reads(node):
            users.setdefault(value, set()).add(node.name)
    made = {spec.name for node in graph.nodes if node.name in inside for spec in node.outputs}
    returned = set(references(graph.outputs)) | {mutation.value for mutation in graph.mutations}
    for node in graph.nodes:               # a view belongs inside if it is of a tensor made inside and is read nowhere else
        own = {spec.name for spec in node.outputs}
        readers = set().union(*(users.get(name, set()) for name in own)) if own else set()
        between = node.name not in inside and node.aliases in made and readers and not own & returned
        if between and all(_leads_inside(name, graph, users, inside) for name in readers):
            inside.add(node.name)
            made |= own
    keys = {tensor.spec.name: tensor for tensor in graph.state}
    specs = {spec.name: spec for spec in graph.inputs} | {tensor.spec.name: tensor.spec for tensor in graph.state}
    specs |= {spec.name: spec for node in graph.nodes for spec in node.outputs}
    nodes = [node for node in graph.nodes if node.name in inside]
    read = dict.fromkeys(value for node in nodes for value in reads(node) if value not in made)
    inputs = tuple(
        specs[name].model_copy(update={"name": f"self.{keys[name].key}"}) if name in keys else specs[name]
        for name in read
        if name in specs
    )
    outputs = tuple(
        specs[name] for name in (spec.name for node in nodes for spec in node.outputs)
        if name in returned or users.get(name, set()) - inside
    )  # fmt: skip
    names = {name: tensor.key for name, tensor in keys.items()}
    return TaskContract(inputs, outputs, "\n".join(_operator(node, names) for node in nodes))


def _leads_inside(name: str, graph: OpGraph, users: dict[str, set[str]], inside: set[str]) -> bool:
    """Whether the node named `name` is inside, or is a view that only nodes inside read."""
    if name in inside:
        return True
    node = next(node for node in graph.nodes if node.name == name)
    readers = set().union(*(users.get(spec.name, set()) for spec in node.outputs)) if node.outputs else set()
    return node.aliases is not None and bool(readers) and readers <= inside


def _operator(node: Node, keys: dict[str, str]) -> str:
    arguments = [_argument(arg, keys) for arg in node.args]
    arguments += [f"{name}={_argument(arg, keys)}" for name, arg in node.kwargs.items()]
    names = ", ".join(spec.name for spec in node.outputs) or node.name
    shapes = "; ".join(f"{list(spec.shape)} {spec.dtype}" for spec in node.outputs)
    return f"{names} = {node.op}({', '.join(arguments)})  # {shapes}"


def _argument(arg: Any, keys: dict[str, str]) -> str:
    if isinstance(arg, ValueRef):
        return f"self.{keys[arg.value]}" if arg.value in keys else arg.value
    if isinstance(arg, Literal_):
        return arg.text
    if isinstance(arg, tuple | list):
        return f"[{', '.join(_argument(item, keys) for item in arg)}]"
    return json.dumps(arg) if isinstance(arg, str) else str(arg)
