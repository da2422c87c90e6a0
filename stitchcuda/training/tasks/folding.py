"""Finds two linear steps in a row that somebody would compute as one: such a task measures algebra, not kernels.

    linear(linear(x))               one product, unless the layer between is so narrow that two are cheaper
    conv2d(conv2d(x))               likewise, where one of the kernels is a single point
    linear(cat([linear(x), y]))     likewise
    linear(x).mean(dim=1)           the mean comes first and leaves a product of a fraction of the size
    (linear(x) + y).mean(dim=1)     likewise

Grouped convolutions and those of two kernels that are both wide are factorisations on purpose. It looks at a captured graph at
the task's own sizes and runs nothing.
Where to look next: `training/tasks/candidate.py` (who asks), `compiler/capture/op_graph.py` (the graph).
"""

from __future__ import annotations

import math
from collections import Counter

from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.op_graph import Node, OpGraph, ValueRef

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_GROUPS = 6                                # which argument of a convolution
_MEANS = ("mean", "sum", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")


def folded(graph: OpGraph) -> str:
    """Says which node folds into the one before it; "" if none does."""
    shapes = {spec.name: spec.shape for spec in (*graph.inputs, *(entry.spec for entry in graph.state))}
    shapes |= {spec.name: spec.shape for node in graph.nodes for spec in node.outputs}
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs}
    uses = Counter(_values((graph.outputs, [(node.args, node.kwargs) for node in graph.nodes])))
    for node in graph.nodes:
        value = _data(node)
        if value is None or _kind(node) not in ("linear", "convolution", "mean"):
            continue
        width, passed = shapes[value][-1:], True
        while passed and uses[value] == 1 and (view := makers.get(value)) is not None and view.aliases is not None:
            value = view.aliases
            passed = _kind(node) == "mean" or shapes[value][-1:] == width  # else the features themselves were moved
        parts = _parts(makers[value], node) if value in makers else []
        products = [part for part in parts if part in makers and _kind(makers[part]) in ("linear", "convolution")]
        value = next((part for part in products if uses[part] == 1), value)
        before = makers.get(value)
        if not passed or uses[value] != 1 or before is None or _kind(before) not in ("linear", "convolution"):
            continue
        if _kind(node) == "mean":
            if math.prod(node.outputs[0].shape) < math.prod(shapes[value]) // 2:
                return f"{node.name} of {before.name} is {before.name} of a mean, which is a fraction of the work"
        elif _kind(node) == _kind(before) and _cheaper_as_one(shapes[_weight(before)], shapes[_weight(node)]):
            return f"{node.name} after {before.name} is one product"
    return ""


def _kind(node: Node) -> str:
    name = node.op.split(".")[1]
    groups = node.args[_GROUPS] if len(node.args) > _GROUPS else 1
    if name in _CONVOLUTIONS:
        return "convolution" if groups == 1 else "grouped convolution"
    return "linear" if name == "linear" else "mean" if name in _MEANS else ""


def _parts(node: Node, user: Node) -> list[str]:
    """The values that a concatenation puts together; for a mean, those that a sum adds."""
    added = _kind(user) == "mean" and node.op.startswith("aten.add.")
    return _values(node.args[:2] if added else node.args[0]) if added or node.op.startswith("aten.cat.") else []


def _data(node: Node) -> str | None:
    first = node.args[0] if node.args else None
    return first.value if isinstance(first, ValueRef) else None


def _weight(node: Node) -> str:
    weight = node.args[1]
    assert isinstance(weight, ValueRef)
    return weight.value


def _cheaper_as_one(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether the product of two weights (out, in, kernel) costs no more than both: (out of the second, in of the first). The
    second may take more than the first gives."""
    kernels = math.prod(first[2:]), math.prod(second[2:])
    together = second[0] * first[1] * max(kernels)
    return min(kernels) == 1 and together <= math.prod(first) + second[0] * first[0] * math.prod(second[2:])


def _values(item: object) -> list[str]:
    leaves = pytree.tree_leaves(item, is_leaf=lambda leaf: isinstance(leaf, ValueRef))
    return [leaf.value for leaf in leaves if isinstance(leaf, ValueRef)]
