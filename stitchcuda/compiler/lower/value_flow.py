"""Indexes a captured graph: which node makes each value, which nodes read it, and where it lies in memory.

It looks through views: `Flow.leaf` gives the strides and offset of a view's elements in the tensor that is stored. The tables
`SAME_OFFSET`, `MOVED_OFFSET` and `LIST_VIEWS` name the operators that count as views. It decides no order and no cut.

Where to look next: `compiler/capture/dependencies.py` (what must stay in order), `compiler/regions/partition.py` (cuts).
"""

from __future__ import annotations

from collections.abc import Iterable

from stitchcuda.compiler.capture.dependencies import base_name, memory_owners, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower.nest import Leaf
from stitchcuda.state import TensorSpec

# Views whose strides the capture states and whose offset is that of what they look at.
SAME_OFFSET = frozenset({
    "view", "_unsafe_view", "reshape", "reshape_as", "flatten", "unflatten", "view_as", "ravel", "permute", "transpose", "t",
    "numpy_T", "matrix_H", "T", "mT", "mH", "adjoint", "movedim", "moveaxis", "swapaxes", "swapdims", "expand", "expand_as",
    "broadcast_to", "broadcast_tensors", "unsqueeze", "squeeze", "atleast_1d", "atleast_2d", "atleast_3d", "detach", "alias",
    "contiguous", "clone", "to", "type_as", "_to_copy", "float", "half", "double", "dropout", "feature_dropout",
    "alpha_dropout", "lift", "lift_fresh", "unfold",
})  # fmt: skip
MOVED_OFFSET = frozenset({"select", "slice", "narrow", "diagonal"})
LIST_VIEWS = frozenset({
    "chunk", "split", "split_with_sizes", "unbind", "tensor_split", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
})  # fmt: skip


class Flow:
    """Index of one captured graph: nodes, specs and positions by name, producers and readers of values, `results` returned.

    `filled` names the nodes whose result is later written in place. Making one takes a single pass over the graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        self.position: dict[str, int] = {node.name: i for i, node in enumerate(graph.nodes)}
        self.specs: dict[str, TensorSpec] = {spec.name: spec for spec in graph.inputs}
        self.specs.update({tensor.spec.name: tensor.spec for tensor in graph.state})
        self.producer: dict[str, tuple[Node, int]] = {}
        for node in graph.nodes:
            for i, spec in enumerate(node.outputs):
                self.specs[spec.name] = spec
                self.producer[spec.name] = (node, i)
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in dict.fromkeys(references((node.args, node.kwargs))):
                self.readers.setdefault(name, []).append(node)
        owner = memory_owners(graph)
        memory = {owner[value] for node in graph.nodes for value in writes(node)}
        # a tensor of zeros that is written in place later cannot be treated as a constant
        self.filled = frozenset(self.producer[value][0].name for value in memory if value in self.producer)
        self.results = frozenset((*references(graph.outputs), *(mutation.value for mutation in graph.mutations)))

    def source(self, node: Node, which: int = 0) -> str | None:
        """Returns the value whose memory output number `which` of a view shows; None when the node makes memory of its own."""
        base = base_name(node.op)
        if base == "broadcast_tensors":
            return list(references(node.args))[which]
        if base in LIST_VIEWS:
            return next(references(node.args), None)
        if node.aliases is not None and (base in SAME_OFFSET or base in MOVED_OFFSET) and len(node.outputs) == 1:
            return node.aliases
        return None

    def is_view(self, node: Node) -> bool:
        return self.source(node) is not None

    def leaf(self, name: str) -> Leaf:
        """Returns where the elements of a value lie in the tensor that stores them."""
        spec = self.specs[name]
        made = self.producer.get(name)
        if made is None:
            return Leaf(name, spec.dtype, spec.shape, spec.strides)
        node, which = made
        source = self.source(node, which)
        if source is None or source not in self.specs or source == name:
            return Leaf(name, spec.dtype, spec.shape, spec.strides)
        below = self.leaf(source)
        if below.dtype != spec.dtype:
            return Leaf(name, spec.dtype, spec.shape, spec.strides)
        moved = _offset(node, which, below, spec)
        return Leaf(below.key, spec.dtype, spec.shape, spec.strides, below.offset + moved)

    def base(self, name: str) -> str:
        """Returns the name of the stored tensor that a value is a view of; its own name if it is no view."""
        return self.leaf(name).key

    def makers(self, names: Iterable[str]) -> set[str]:
        """Returns the names of the nodes that made the stored tensors behind these values."""
        bases = (self.producer.get(self.base(name)) for name in names)
        return {made[0].name for made in bases if made is not None}


def _integer(node: Node, position: int, name: str, default: int) -> int:
    value = node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
    return value if isinstance(value, int) else default


def _offset(node: Node, which: int, below: Leaf, spec: TensorSpec) -> int:
    """Returns how many elements after its source's first element a view starts."""
    base = base_name(node.op)
    if base in SAME_OFFSET or not below.shape:
        return 0
    if base == "diagonal":
        shift = _integer(node, 1, "offset", 0)
        first, second = _integer(node, 2, "dim1", 0), _integer(node, 3, "dim2", 1)
        return shift * below.strides[second] if shift >= 0 else -shift * below.strides[first]
    dim_at = 1 if base in ("select", "slice", "narrow", "unbind") else 2
    dim = _integer(node, dim_at, "dim", 0) % len(below.shape)
    stride, size = below.strides[dim], below.shape[dim]
    if base in ("select", "narrow", "slice"):
        start = _integer(node, 2, "index" if base == "select" else "start", 0)
        start = start + size if start < 0 else start
        return min(max(start, 0), size) * stride
    if base == "unbind":
        return which * stride
    return sum(output.shape[dim] for output in node.outputs[:which]) * stride
