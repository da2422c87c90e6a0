"""Replaces in-place operators on temporaries by their functional form (`relu_` by `relu`), so that regions can hold them.

It does so when the functional operator returns the same shape, dtype and strides, the memory belongs to a temporary (not to an
input, parameter or buffer), and nothing reads that memory under an older name afterwards. All others stay in place, in their
order. It asks torch which operators exist, so it runs in the reference worker.

Where to look next: `compiler/capture/walk.py` (its caller), `compiler/capture/dependencies.py` (the order of in-place writes).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stitchcuda.compiler.capture.dependencies import base_name, reads, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph

_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "set_", "resize_", "resize_as_", "index_put_", "_index_put_impl_"})
"""Never replaced: their functional forms cost a copy or do not mean the same."""


def functional_twin(target: Any, record: Node, args: list[Any], kwargs: dict[str, Any], fake: Any) -> str | None:
    """Returns the name of the functional operator that does what the in-place `target` does to these (fake or real) tensors.

    Returns None if torch has none, or if its result would have another dtype, shape or strides.
    """
    base = base_name(record.op)
    if not base.endswith("_") or base.endswith("__") or base in _OVERWRITES or not writes(record):
        return None
    packet = getattr(torch.ops.aten, base[:-1], None)
    twin = getattr(packet, record.op.split(".")[2], None)
    if twin is None or [a.name for a in twin._schema.arguments] != [a.name for a in target._schema.arguments]:
        return None

    def copied(item: Any) -> Any:
        if isinstance(item, list):
            return [copied(part) for part in item]
        if not isinstance(item, Tensor):
            return item
        with fake:
            return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=item.device)

    with fake:
        result = twin(*[copied(item) for item in args], **{key: copied(item) for key, item in kwargs.items()})
    own = args[0]
    if not isinstance(result, Tensor):
        return None
    same = result.dtype == own.dtype and result.shape == own.shape and result.stride() == own.stride()
    return str(twin) if same else None


def make_functional(graph: OpGraph, twins: dict[str, str]) -> OpGraph:
    """Returns the graph with the nodes in `twins` (node name → functional operator) replaced, where the results stay the same.

    A node is replaced if the memory it writes belongs to no input or state, and no value in it is read later.
    """
    last_use: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for value in reads(node):
            last_use[value] = position
    for value in references(graph.outputs):
        last_use[value] = len(graph.nodes)
    owner = {spec.name: spec.name for spec in graph.inputs} | {entry.spec.name: entry.spec.name for entry in graph.state}
    kept = set(owner)
    members: dict[str, list[str]] = {name: [name] for name in owner}
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        if node.name in twins:
            memory = owner[writes(node)[0]]
            if memory not in kept and all(last_use.get(value, -1) <= position for value in members[memory]):
                node = node.model_copy(update={"op": twins[node.name], "aliases": None})
        nodes.append(node)
        for output in node.outputs:
            root = owner[node.aliases] if node.aliases is not None else output.name
            owner[output.name] = root
            members.setdefault(root, []).append(output.name)
    return graph.model_copy(update={"nodes": tuple(nodes)})
