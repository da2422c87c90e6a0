"""Lowers a region of the captured graph to a `Kernel`, and says which graph values fill the kernel's arguments.

`lower` walks the region's nodes in order, asks each operator's rule for steps, folds views into loops and strides, and stores
every value that is returned or read outside of the region. `RULES` is the table of operators that can be lowered. It raises
`CannotLower`, with one clause that says why, and never decides which nodes belong together.

Where to look next: `compiler/lower/call.py` (what a rule is), `compiler/lower/nest.py` (how steps are collected),
`compiler/regions/partition.py` (decides what is fused), `compiler/codegen/emit.py` (writes the CUDA).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from stitchcuda.compiler.capture.dependencies import base_name, references
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower import activations, data_movement, pointwise, reductions
from stitchcuda.compiler.lower.call import OperatorCall, Rule
from stitchcuda.compiler.lower.ir import Argument, Kernel
from stitchcuda.compiler.lower.nest import CannotLower, Leaf, NestBuilder, Value
from stitchcuda.compiler.lower.value_flow import LIST_VIEWS, Flow
from stitchcuda.state import Region, TensorSpec

__all__ = ["CannotLower", "bind", "has_rule", "is_source", "lower", "lower_nodes", "without_names"]

RULES: dict[str, Rule] = {**pointwise.RULES, **activations.RULES, **data_movement.RULES, **reductions.RULES}
SOURCES = data_movement.SOURCES
PERMUTATIONS = frozenset(
    {"permute", "transpose", "t", "numpy_T", "mT", "T", "movedim", "moveaxis", "swapaxes", "swapdims", "adjoint", "mH"}
)
EXPANSIONS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_tensors"})
CUTS = frozenset({"select", "slice", "narrow", "diagonal", "unfold"}) | LIST_VIEWS


MOST_WORDS = 5                             # in a region's title
LONGEST_NAME = 40                          # characters of a kernel's name


def has_rule(node: Node) -> bool:
    """Whether the operator is one that kernels are written for. Its arguments may still rule it out."""
    return node.op.startswith("aten.") and base_name(node.op) in RULES and bool(node.outputs)


def is_source(node: Node) -> bool:
    """Whether the operator makes a constant tensor or a range, which a kernel computes on the spot."""
    return node.op.startswith("aten.") and base_name(node.op) in SOURCES


def lower(graph: OpGraph, region: Region) -> Kernel:
    """Returns the kernel of a region's first instance; the `key` of each argument is a value name of the graph.

    Raises `CannotLower`, with one clause that says why, for a region that is no single loop nest.
    """
    if region.kind != "fusible":
        raise CannotLower(f"a {region.kind} region")
    flow = Flow(graph)
    return lower_nodes(flow, region.nodes[0], name=kernel_name(flow, region), comment=region.title)


def kernel_name(flow: Flow, region: Region) -> str:
    """Returns a C identifier of at most `LONGEST_NAME` characters that says what the region's kernel does, such as
    "layer_norm_gelu_r05": its operators, or the module's class if there are more than `MOST_WORDS` and they are all that the
    module does. Longer names lose repeated operators and conversions first, then the last ones. The region's id is appended."""
    nodes = [flow.nodes[name] for name in region.nodes[0]]
    words = operator_words(flow, nodes)
    if len(words) > MOST_WORDS and (module := _whole_module(flow, nodes)):
        words = [module]

    def joined() -> str:
        return identifier("_".join([*words, region.id]))

    if len(joined()) > LONGEST_NAME:
        words = list(dict.fromkeys(word for word in words if word != "to"))
    while len(joined()) > LONGEST_NAME and len(words) > 1:
        words.pop()
    return joined()


def operator_words(flow: Flow, nodes: Sequence[Node]) -> list[str]:
    """Lists what these nodes do, in order, in words for people; views and constants only where there is nothing else."""
    words: list[str] = []
    for node in nodes:
        if len(nodes) > 1 and (flow.is_view(node) or is_source(node)):
            continue
        word = base_name(node.op).strip("_")
        if word == "add" and _adds_activations(flow, node):
            word = "residual add"
        if not words or words[-1] != word:
            words.append(word)
    return words


def _adds_activations(flow: Flow, node: Node) -> bool:
    """Whether an add joins two tensors of the result's shape, neither of them a parameter."""
    state = {tensor.spec.name for tensor in flow.graph.state}
    read = list(references(node.args))
    return len(read) == 2 and all(flow.specs[value].shape == node.outputs[0].shape and value not in state for value in read)


def _whole_module(flow: Flow, nodes: Sequence[Node]) -> str:
    """Returns the class of the module whose operators these are; "" if they are of several modules or only part of one."""
    scope, module = nodes[0].scope, nodes[0].scope_type
    inside = {node.name for node in flow.graph.nodes if f"{node.scope}.".startswith(f"{scope}.")}
    whole = scope and inside == {node.name for node in nodes}
    return module if whole and module.isascii() and len(module) <= LONGEST_NAME // 2 else ""


def bind(graph: OpGraph, region: Region, kernel: Kernel) -> tuple[tuple[str, ...], ...]:
    """Returns, for each instance of the region, the value names that fill the kernel's arguments, in argument order.

    Raises `CannotLower` if an instance does not lower to the same kernel (which `partition` rules out).
    """
    flow = Flow(graph)
    bound: list[tuple[str, ...]] = []
    for nodes in region.nodes:
        own = lower_nodes(flow, nodes, name=kernel.name)
        if without_names(own) != without_names(kernel):
            raise CannotLower(f"instance {nodes[0]} differs from the first")
        bound.append(tuple(argument.key for argument in own.arguments))
    return tuple(bound)


def without_names(kernel: Kernel) -> Kernel:
    """Returns the kernel without what may differ between equal regions: names and keys. Equal results are the same kernel."""
    names = {argument.name: f"a{i}" for i, argument in enumerate(kernel.arguments)}
    arguments = tuple(replace(argument, name=names[argument.name], key="") for argument in kernel.arguments)
    steps = tuple(replace(step, args=(names[str(step.args[0])],)) if step.fn == "load" else step for step in kernel.steps)
    stores = tuple(replace(store, argument=names[store.argument]) for store in kernel.stores)
    return Kernel("", kernel.axes, arguments, steps, stores)


def identifier(text: str) -> str:
    """Returns `text` as a C identifier: lower case, with underscores for everything else."""
    return re.sub(r"\W+", "_", text).strip("_").lower()


def lower_nodes(flow: Flow, nodes: Sequence[str], *, name: str = "kernel", comment: str = "") -> Kernel:
    """Returns the kernel of these nodes, which must be in graph order. Raises `CannotLower`."""
    try:
        return _Lowering(flow, nodes, share_loads=True).kernel(name, comment)
    except CannotLower as first:
        # a tensor that meets its own transpose has to be read twice, over different loops
        try:
            return _Lowering(flow, nodes, share_loads=False).kernel(name, comment)
        except CannotLower:
            raise first from None


class _Lowering:
    """One walk over a region's nodes. It is the `Scope` in which rules look up their tensors."""

    def __init__(self, flow: Flow, nodes: Sequence[str], *, share_loads: bool) -> None:
        self.flow = flow
        self.inside = set(nodes)
        self.nodes = [flow.nodes[name] for name in nodes]
        self.nest = NestBuilder()
        self.values: dict[str, Value] = {}
        self.stored: set[str] = set()
        self.loads: dict[Leaf, Value] | None = {} if share_loads else None

    def kernel(self, name: str, comment: str) -> Kernel:
        for node in self.nodes:
            if self.flow.is_view(node) or is_source(node):
                continue  # folded in where it is read
            rule = RULES.get(base_name(node.op)) if node.op.startswith("aten.") else None
            if rule is None:
                raise CannotLower(f"no rule for {node.op}")
            made = rule(OperatorCall(node, self.nest, self))
            if made == ():  # stored in parts
                self.stored.update(spec.name for spec in node.outputs)
                continue
            for spec, value in zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True):
                self.values[spec.name] = _as_stated_type(self.nest, value, spec)
        for spec in self._values_to_store():
            self.nest.store(self.values[spec.name], spec)
        kernel = self.nest.finish(name, self.flow.specs, comment)
        return self._name_arguments(kernel)

    def value(self, name: str) -> Value:
        """Returns the value that a rule asks for: one computed before, a view of one, a constant, or a load from memory."""
        if name in self.values:
            return self.values[name]
        made = self.flow.producer.get(name)
        if made is not None:
            node, which = made
            source = self.flow.source(node, which)
            if source is None and is_source(node) and node.name not in self.flow.filled:
                return SOURCES[base_name(node.op)](OperatorCall(node, self.nest, self))  # type: ignore[return-value]
            if source is not None and self.leaf(name) is None:
                return self._view(node, self.value(source), self.flow.specs[name])
        leaf = self.leaf(name)
        if leaf is None:
            raise CannotLower("a value is read before it is made")
        if self.loads is None:
            return self.nest.load(leaf)
        if leaf not in self.loads:
            self.loads[leaf] = self.nest.load(leaf)
        return self.loads[leaf]

    def leaf(self, name: str) -> Leaf | None:
        leaf = self.flow.leaf(name)
        made = self.flow.producer.get(leaf.key)
        if made is None:
            return leaf
        if made[0].name in self.inside or (is_source(made[0]) and made[0].name not in self.flow.filled):
            return None
        return leaf

    def spec(self, name: str) -> TensorSpec:
        return self.flow.specs[name]

    def _view(self, node: Node, value: Value, spec: TensorSpec) -> Value:
        base = base_name(node.op)
        if base in PERMUTATIONS:
            return self.nest.permute(value, _permutation(node, len(value.shape)))
        if base in EXPANSIONS:
            return self.nest.expand(value, spec.shape)
        if base in CUTS and spec.shape != value.shape:
            raise CannotLower("a part of a value that is not in memory")
        return self.nest.reshape(value, spec.shape)

    def _values_to_store(self) -> list[TensorSpec]:
        """The values made here that are read outside, or returned."""
        needed = []
        for node in self.nodes:
            if self.flow.is_view(node) or is_source(node):
                continue
            for spec in node.outputs:
                if spec.name not in self.stored and needed_outside(self.flow, spec.name, self.inside):
                    needed.append(spec)
        return needed

    def _name_arguments(self, kernel: Kernel) -> Kernel:
        """Names the arguments after what they are: a parameter's last word, or the operator that made the value."""
        state = {tensor.spec.name: tensor.key.split(".")[-1] for tensor in self.flow.graph.state}
        names: dict[str, str] = {}
        for argument in kernel.arguments:
            wish = identifier(re.sub(r"_\d+$", "", state.get(argument.key, argument.key))) or "tensor"
            if argument.role == "out":
                wish = f"{wish}_out"
            label, count = wish, 1
            while label in names.values():
                count += 1
                label = f"{wish}{count}"
            names[argument.name] = label
        arguments: tuple[Argument, ...] = tuple(replace(argument, name=names[argument.name]) for argument in kernel.arguments)
        steps = tuple(replace(step, args=(names[str(step.args[0])],)) if step.fn == "load" else step for step in kernel.steps)
        stores = tuple(replace(store, argument=names[store.argument]) for store in kernel.stores)
        return replace(kernel, arguments=arguments, steps=steps, stores=stores)


def needed_outside(flow: Flow, name: str, inside: set[str]) -> bool:
    """Whether a value, or a view of it, is returned or read by a node that is not `inside`."""
    if name in flow.results:
        return True
    for reader in flow.readers.get(name, []):
        if reader.name in inside and not flow.is_view(reader):
            continue
        if reader.name in inside or flow.is_view(reader):
            if any(needed_outside(flow, spec.name, inside) for spec in reader.outputs):
                return True
        else:
            return True
    return False


def _as_stated_type(nest: NestBuilder, value: Value, spec: TensorSpec) -> Value:
    """Returns `value` in the element type and shape that the graph states; the shape may only need broadcasting."""
    if value.shape != spec.shape:
        value = nest.expand(value, spec.shape)
    if value.dtype == spec.dtype:
        return value
    if value.kind == "bool" or spec.dtype == "bool" or "int" in spec.dtype:
        return nest.cast(value, spec.dtype)
    return Value(value.step, spec.dtype, value.shape, value.dims) if _same_kind(value, spec) else nest.cast(value, spec.dtype)


def _same_kind(value: Value, spec: TensorSpec) -> bool:
    return value.kind == ("float64" if spec.dtype == "float64" else "float32")


def _permutation(node: Node, rank: int) -> list[int]:
    """Returns the order in which a transposing view (`permute`, `transpose`, `movedim`, ...) has its source's dimensions."""
    base = base_name(node.op)
    order = list(range(rank))
    if base == "permute":
        dims = node.args[1] if len(node.args) > 1 else node.kwargs["dims"]
        assert isinstance(dims, (tuple, list))
        return [dim % rank for dim in dims]
    if base in ("movedim", "moveaxis"):
        source, target = node.args[1], node.args[2]
        sources = [source] if isinstance(source, int) else list(source)  # type: ignore[arg-type]
        targets = [target] if isinstance(target, int) else list(target)  # type: ignore[arg-type]
        rest = [dim for dim in order if dim not in {item % rank for item in sources}]
        for place, dim in sorted(zip((item % rank for item in targets), (item % rank for item in sources), strict=True)):
            rest.insert(place, dim)
        return rest
    if base in ("numpy_T", "T") or (base == "t" and rank < 2):
        return order[::-1]
    if base == "t":
        return [1, 0]
    first, second = (-2, -1) if base in ("mT", "mH", "adjoint") else node.args[1:3]
    assert isinstance(first, int)
    assert isinstance(second, int)
    order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return order
