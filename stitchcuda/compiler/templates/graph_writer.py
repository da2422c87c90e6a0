"""Makes new nodes of a captured graph, one call for each operator, and state that is prepared once.

Every new node is in the module of the node that it stands for. Results are contiguous unless strides are given.
Where to look next: `compiler/templates/split_products.py` (uses it), `compiler/capture/op_graph.py` (nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stitchcuda.compiler.capture.op_graph import Arg, Node, OpGraph, Preparation, StateTensor, ValueRef, contiguous_strides
from stitchcuda.state import TensorSpec


class GraphWriter:
    """Collects the nodes of the rewritten graph in `nodes`. `place` is the node that gives new ones their module."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph, self._state, self._prepared = graph, list(graph.state), list(graph.prepared)
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

    def prepare(
        self, function: str, source: StateTensor, results: Mapping[str, tuple[tuple[int, ...], str, tuple[int, ...]]],
        **options: int,
    ) -> tuple[TensorSpec, ...]:  # fmt: skip
        """Adds state tensors that `function` of `compiler/printing/prelude.py` makes from `source`, and returns them.
        `results`: by what their names end with, shape, dtype and strides."""
        made = tuple(
            StateTensor(
                spec=TensorSpec(name=self.name(f"{source.spec.name}_{end}"), shape=shape, dtype=dtype, strides=strides),
                key=f"{source.key}_{end}", kind="prepared",
            )
            for end, (shape, dtype, strides) in results.items()
        )  # fmt: skip
        self._state += made
        self._prepared.append(Preparation(
            function=function, source=source.spec.name, results=tuple(entry.spec.name for entry in made),
            options=tuple(options.items()),
        ))  # fmt: skip
        return tuple(entry.spec for entry in made)

    def graph(self) -> OpGraph:
        """Returns the graph with the collected nodes, and with what was prepared."""
        update = {"nodes": tuple(self.nodes), "state": tuple(self._state), "prepared": tuple(self._prepared)}
        return self._graph.model_copy(update=update)

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
