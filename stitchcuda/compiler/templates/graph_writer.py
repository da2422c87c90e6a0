"""Makes new nodes of a captured graph, one call for each operator: `writer.mul(x, scale)`.

Every new node is in the module of the node that it stands for. Results are contiguous unless strides are given.
Where to look next: `compiler/templates/split_products.py` (uses it), `compiler/capture/op_graph.py` (nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stitchcuda.compiler.capture.op_graph import Arg, Node, OpGraph, ValueRef, contiguous_strides
from stitchcuda.state import TensorSpec


class GraphWriter:
    """Collects new nodes in `nodes`. `place` is the node that gives them their module."""

    def __init__(self, graph: OpGraph) -> None:
        self._taken = {spec.name for spec in graph.inputs} | {entry.spec.name for entry in graph.state}
        self._taken |= {name for node in graph.nodes for name in (node.name, *(spec.name for spec in node.outputs))}
        self.nodes: list[Node] = []
        self.place: Node | None = None

    def name(self, base: str) -> str:
        """Returns a name that no value or node of the graph has."""
        number, name = 1, base
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def add(
        self, op: str, args: Sequence[Arg | TensorSpec], shape: Iterable[int], dtype: str, *, strides: tuple[int, ...] = (),
        view: bool = False, name: str = "", options: Mapping[str, Arg] | None = None,
    ) -> TensorSpec:  # fmt: skip
        """Adds a call of `op`, such as "aten.mul.Tensor", and returns its result. `view`: it shows the memory of its first
        argument. `name`: of the result, which may be that of a node left out. `options`: arguments by name."""
        assert self.place is not None
        shape = tuple(shape)
        strides = strides or contiguous_strides(shape)
        result = TensorSpec(name=name or self.name(op.split(".")[1]), shape=shape, dtype=dtype, strides=strides)
        first = next(arg.name for arg in args if isinstance(arg, TensorSpec)) if view else None
        self.nodes.append(Node(
            name=result.name, op=op, args=tuple(map(_reference, args)), kwargs=dict(options or {}), outputs=(result,),
            scope=self.place.scope, scope_type=self.place.scope_type, aliases=first,
        ))  # fmt: skip
        return result


def _reference(arg: Arg | TensorSpec) -> Arg:
    if isinstance(arg, TensorSpec):
        return ValueRef(value=arg.name)
    return tuple(map(_reference, arg)) if isinstance(arg, tuple) else arg
