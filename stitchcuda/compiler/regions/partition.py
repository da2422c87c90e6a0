"""Cuts the captured graph into regions: each is one fused kernel, one library operator, or one view.

Operators are joined greedily, pairs that share the heaviest tensor first, as long as: no dependency path leaves the union and
comes back, in-place updates included; `lower` accepts it as one loop nest of at most `MOST_STEPS` steps and `MOST_ARGUMENTS`
tensors; and it moves no more bytes than its parts. So every region of kind "fusible" can be lowered. Equal regions, such as the
blocks of a transformer, become one region with several instances. Predicted times play no part.

Where to look next: `compiler/lower/lower.py` (which operators can be lowered), `compiler/regions/groups.py` (cycles),
`compiler/regions/cost.py` (times).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stitchcuda.compiler.capture.dependencies import base_name, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph, ValueRef
from stitchcuda.compiler.lower.ir import Kernel
from stitchcuda.compiler.lower.lower import (
    MOST_WORDS,
    CannotLower,
    has_rule,
    is_source,
    lower_nodes,
    operator_words,
    without_names,
)
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions.groups import Groups
from stitchcuda.compiler.regions.kernel_traffic import kernel_bytes
from stitchcuda.compiler.regions.operator_work import bytes_touched, work_of
from stitchcuda.state import Region, TensorSpec

MOST_STEPS = 200
MOST_ARGUMENTS = 40
"""Unions with more steps or arguments are not made: their kernels would spill registers."""


@dataclass(frozen=True)
class _Piece:
    """One group of nodes: a region's instance, before equal groups become one region."""

    nodes: tuple[str, ...]
    kind: str
    kernel: Kernel | None
    reason: str


def partition(graph: OpGraph) -> tuple[Region, ...]:
    """Returns the regions of a captured graph, in execution order. Every node belongs to exactly one instance of one region.

    A graph that could not be captured is one opaque region without nodes.
    """
    if graph.opaque:
        return (_opaque(graph),)
    flow = Flow(graph)
    cut = _Cut(flow)
    cut.grow()
    return _regions(flow, cut.pieces())


class _Cut:
    """The groups of one graph while they grow: first every node alone, then joined as far as one kernel can hold."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.groups = Groups(flow.graph, frozenset(node.name for node in flow.graph.nodes if flow.is_view(node)))
        self.kernels: dict[int, Kernel] = {}  # by group number; groups that cannot be a kernel are missing
        self.reasons: dict[str, str] = {}
        self.failed: set[tuple[frozenset[str], frozenset[str]]] = set()
        for node in flow.graph.nodes:
            if flow.is_view(node) or is_source(node) or not has_rule(node):
                continue
            try:
                self.kernels[self.groups.group_of[node.name]] = self._kernel((node.name,))
            except CannotLower as error:
                self.reasons[node.name] = error.reason

    def grow(self) -> None:
        """Joins groups until nothing more can be joined."""
        for edges in (self._makers_and_readers(), self._readers_of_same_tensor()):
            changed = True
            while changed:
                changed = False
                for left, right in edges:
                    changed |= self._join(left, right)

    def pieces(self) -> list[_Piece]:
        """Returns all groups, in execution order of their first nodes."""
        made = []
        for group, nodes in self.groups.members.items():
            first = self.flow.nodes[nodes[0]]
            if group in self.kernels:
                made.append(_Piece(nodes, "fusible", self.kernels[group], ""))
            elif self.flow.is_view(first):
                made.append(_Piece(nodes, "view", None, ""))
            else:
                made.append(_Piece(nodes, "library", None, self.reasons.get(first.name, "")))
        return sorted(made, key=lambda piece: self.flow.position[piece.nodes[0]])

    def _kernel(self, nodes: Sequence[str]) -> Kernel:
        if any(writes(self.flow.nodes[name]) and base_name(self.flow.nodes[name].op) != "batch_norm" for name in nodes):
            raise CannotLower("writes into memory that others see")
        kernel = lower_nodes(self.flow, nodes)
        if len(kernel.steps) > MOST_STEPS or len(kernel.arguments) > MOST_ARGUMENTS:
            raise CannotLower("too large for one kernel")
        return kernel

    def _join(self, left: str, right: str) -> bool:
        a, b = self.groups.group_of[left], self.groups.group_of[right]
        if a == b or a not in self.kernels or b not in self.kernels:
            return False
        first, second = self.groups.members[a], self.groups.members[b]
        attempt = (frozenset(first), frozenset(second))
        if attempt in self.failed:
            return False
        union = self._with_views_and_constants({*first, *second})
        try:
            if not self.groups.is_convex(union):
                return False  # may become possible once what lies between has joined
            kernel = self._kernel(union)
            if kernel_bytes(kernel) > kernel_bytes(self.kernels[a]) + kernel_bytes(self.kernels[b]):
                raise CannotLower("it would move more bytes")
        except CannotLower:
            self.failed.add(attempt)
            return False
        del self.kernels[a], self.kernels[b]
        self.kernels[self.groups.join(union)] = kernel
        return True

    def _with_views_and_constants(self, nodes: set[str]) -> tuple[str, ...]:
        """Adds the views between these nodes and the constants that only they read; returns all in graph order."""
        inside = set(nodes)
        stack = list(nodes)
        while stack:
            node = self.flow.nodes[stack.pop()]
            for value in references((node.args, node.kwargs)):
                made = self.flow.producer.get(value)
                if made is None or made[0].name in inside or made[0].name in self.flow.results:
                    continue
                if self._can_absorb(made[0], inside):
                    inside.add(made[0].name)
                    stack.append(made[0].name)
        return tuple(sorted(inside, key=self.flow.position.__getitem__))

    def _can_absorb(self, node: Node, inside: set[str]) -> bool:
        if not self._only_read_by(node, inside):
            return False
        if is_source(node):
            return node.name not in self.flow.filled
        return self.flow.is_view(node) and bool(self.flow.makers(spec.name for spec in node.outputs) & inside)

    def _only_read_by(self, node: Node, inside: set[str]) -> bool:
        for spec in node.outputs:
            if spec.name in self.flow.results:
                return False
            for reader in self.flow.readers.get(spec.name, []):
                if reader.name not in inside:
                    return False
        return True

    def _makers_and_readers(self) -> list[tuple[str, str]]:
        """Lists the pairs (maker, reader) of each tensor, largest tensor first."""
        pairs: list[tuple[int, int, str, str]] = []
        for node in self.flow.graph.nodes:
            if self.groups.group_of[node.name] not in self.kernels:
                continue
            for value in dict.fromkeys(references((node.args, node.kwargs))):
                for maker in self.flow.makers([value]):
                    if self.groups.group_of[maker] in self.kernels:
                        weight = bytes_touched(self.flow.specs[value])
                        pairs.append((-weight, self.flow.position[node.name], maker, node.name))
        return [(maker, reader) for _, _, maker, reader in sorted(pairs)]

    def _readers_of_same_tensor(self) -> list[tuple[str, str]]:
        """Lists pairs of nodes that read the same tensor, largest tensor first; parameters do not count."""
        readers: dict[str, list[str]] = {}
        state = {tensor.spec.name for tensor in self.flow.graph.state}
        for node in self.flow.graph.nodes:
            if self.groups.group_of[node.name] in self.kernels:
                for value in dict.fromkeys(references(node.args)):
                    base = self.flow.base(value)
                    if base not in state:
                        readers.setdefault(base, []).append(node.name)
        heavy = sorted(readers, key=lambda base: (-bytes_touched(self.flow.specs[base]), base))
        return [pair for base in heavy for pair in zip(readers[base], readers[base][1:], strict=False)]


def _regions(flow: Flow, pieces: Iterable[_Piece]) -> tuple[Region, ...]:
    """Returns one region for each set of equal pieces."""
    same: dict[Any, list[_Piece]] = {}
    for piece in pieces:
        same.setdefault(_signature(flow, piece), []).append(piece)
    width = max(2, len(str(len(same) - 1)))
    letter = chr(ord("r") + len(flow.graph.rewritten))  # a rewritten graph's regions are others
    return tuple(_region(flow, f"{letter}{number:0{width}d}", equal) for number, equal in enumerate(same.values()))


def _region(flow: Flow, name: str, equal: Sequence[_Piece]) -> Region:
    piece, count = equal[0], len(equal)
    nodes = [flow.nodes[node] for node in piece.nodes]
    works = [work_of(flow, node) for node in nodes]
    eager = sum(work.bytes for work in works)
    if piece.kernel is not None:
        inputs = [flow.specs[argument.key] for argument in piece.kernel.arguments if argument.role != "out"]
        outputs = [flow.specs[argument.key] for argument in piece.kernel.arguments if argument.role != "in"]
        fused = kernel_bytes(piece.kernel)
    else:
        inside = {spec.name for node in nodes for spec in node.outputs}
        read = dict.fromkeys(value for node in nodes for value in references((node.args, node.kwargs)))
        inputs = [flow.specs[value] for value in read if value in flow.specs and value not in inside]
        outputs = [spec for node in nodes for spec in node.outputs]
        fused = eager
    return Region(
        id=name,
        title=_title(flow, nodes),
        kind=piece.kind,  # type: ignore[arg-type]
        operators=tuple(node.op for node in nodes),
        nodes=tuple(other.nodes for other in equal),
        scopes=tuple(_scope(flow, other.nodes) for other in equal),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        launches=count * sum(work.launches for work in works),
        eager_bytes=count * eager,
        fused_bytes=count * fused,
        flops=count * sum(work.flops for work in works),
        reason=piece.reason,
    )


def _signature(flow: Flow, piece: _Piece) -> Any:
    """Returns a value that is equal for pieces that belong to the same region."""
    operators = tuple(flow.nodes[node].op for node in piece.nodes)
    if piece.kernel is not None:
        return operators, repr(without_names(piece.kernel))
    shapes = []
    for name in piece.nodes:
        node = flow.nodes[name]
        read = [flow.specs.get(value) for value in references((node.args, node.kwargs))]
        specs = tuple((spec.shape, spec.strides, spec.dtype) for spec in (*read, *node.outputs) if spec is not None)
        shapes.append((specs, _constants(node.args), _constants(tuple(sorted(node.kwargs.items())))))
    return operators, piece.kind, repr(shapes)


def _constants(arg: Any) -> Any:
    if isinstance(arg, ValueRef):
        return "tensor"
    return tuple(_constants(item) for item in arg) if isinstance(arg, (tuple, list)) else arg


def _scope(flow: Flow, nodes: Sequence[str]) -> str:
    """Returns the path of the innermost module that holds all these nodes."""
    paths = [flow.nodes[name].scope.split(".") for name in nodes]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def _title(flow: Flow, nodes: Sequence[Node]) -> str:
    """Says what a region does: its operators, or the module's class if there are more than `MOST_WORDS` and all are in it."""
    words = operator_words(flow, nodes)
    if len(words) > MOST_WORDS:
        homes = {(node.scope, node.scope_type) for node in nodes}
        scope, module = next(iter(homes))
        if len(homes) == 1 and scope and module:
            return f"{module} ({len(nodes)} operators)"
        words = [*words[: MOST_WORDS - 1], f"{len(words) - MOST_WORDS + 1} more"]
    return " + ".join(words)


def _opaque(graph: OpGraph) -> Region:
    def listed(item: Any) -> list[TensorSpec]:
        return [spec for spec in graph.inputs if spec.name in set(references(item))]

    return Region(
        id="r00", title="the whole program", kind="opaque", operators=(), nodes=(), scopes=(), inputs=graph.inputs,
        outputs=tuple(listed(graph.outputs)), launches=0, eager_bytes=0, fused_bytes=0, flops=0, reason=graph.opaque,
    )  # fmt: skip
