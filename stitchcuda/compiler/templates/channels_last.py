"""Carries convolutions and what lies between them in channels-last order, which tensor cores want.

A convolution of channels-first tensors on tensor cores transposes them before and after. Here a region of the graph is found in
which each operator keeps the order (CARRIED); tensors are transposed where they enter and leave it, by nodes that fuse with
their neighbours; weights once (`channels_last` in `compiler/printing/prelude.py`). A bias becomes a node of its own, so that it
is fused too. Nothing is computed otherwise.

Where to look next: `compiler/templates/graph_writer.py` (makes nodes), `compiler/regions/partition.py` (fuses them).
"""

from __future__ import annotations

from typing import Any

from stitchcuda.compiler.capture.dependencies import base_name, references, writes
from stitchcuda.compiler.capture.op_graph import Literal_, Node, OpGraph, StateTensor, ValueRef
from stitchcuda.compiler.templates.graph_writer import GraphWriter
from stitchcuda.state import TensorSpec

CONVOLUTIONS = frozenset(("conv2d", "conv_transpose2d"))
CARRIED = frozenset((
    "abs", "adaptive_avg_pool2d", "add", "avg_pool2d", "batch_norm", "cat", "clamp", "div", "elu", "exp", "gelu", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "max_pool2d", "mish", "mul", "neg", "relu", "relu6", "sigmoid", "silu", "softplus",
    "sqrt", "sub", "tanh",
))  # fmt: skip
"""Operators of which torch returns channels-last results for channels-last arguments."""


def carry_channels_last(graph: OpGraph) -> OpGraph:
    """Returns the graph with its fp32 convolutions, and what carries their order on, in channels-last order; the same graph if
    it has none whose weight is a parameter."""
    carrier = _Carrier(graph)
    return carrier.carry() if carrier.convolutions else graph


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides in elements of a channels-last tensor of shape [N, C, H, W]."""
    _, channels, height, width = shape
    return channels * height * width, 1, width * channels, channels


def _find_convolutions(graph: OpGraph) -> frozenset[str]:
    """Returns the names of the fp32 convolutions whose weight is a parameter that nobody writes to."""
    parameters = {entry.spec.name for entry in graph.state if entry.kind == "parameter"}
    fixed = parameters - {value for node in graph.nodes for value in writes(node)}
    return frozenset(
        node.name for node in graph.nodes
        if base_name(node.op) in CONVOLUTIONS and not node.kwargs and {spec.dtype for spec in node.outputs} == {"float32"}
        and isinstance(weight := node.args[1], ValueRef) and weight.value in fixed
    )  # fmt: skip


class _Carrier:
    """Rewrites one graph. `inside`: by the name of a value as captured, what holds the same in channels-last order."""

    def __init__(self, graph: OpGraph) -> None:
        self.convolutions = _find_convolutions(graph)
        self._graph, self._writer = graph, GraphWriter(graph)
        self._specs = {spec.name: spec for spec in graph.inputs} | {entry.spec.name: entry.spec for entry in graph.state}
        self._specs |= {spec.name: spec for node in graph.nodes for spec in node.outputs}
        self._entries = {entry.spec.name: entry for entry in graph.state}
        self._inside: dict[str, TensorSpec] = {}
        self._outside = set(self._specs) - {spec.name for node in graph.nodes for spec in node.outputs}  # values that are there
        self._weights: dict[str, TensorSpec] = {}

    def carry(self) -> OpGraph:
        for node in self._graph.nodes:
            self._writer.place = node
            if node.name in self.convolutions:
                self._convolution(node)
            elif self._carries(node):
                self._carry(node)
            else:
                for value in dict.fromkeys((*references(node.args), *references(node.kwargs))):
                    self._leave(value)
                self._writer.nodes.append(node)
                self._outside.update(spec.name for spec in node.outputs)
        for value in dict.fromkeys(references(self._graph.outputs)):
            self._leave(value)
        return self._writer.graph()

    def _carries(self, node: Node) -> bool:
        """Whether an operator reads a channels-last value and makes another, and all else that it reads may stay as it is."""
        if base_name(node.op) not in CARRIED or len(node.outputs) != 1 or node.aliases is not None:
            return False
        result = node.outputs[0]
        values = [self._specs[name] for name in references(node.args)]
        if len(result.shape) != 4 or result.dtype != "float32" or not any(spec.name in self._inside for spec in values):
            return False
        if base_name(node.op) == "cat":
            return all(len(spec.shape) == 4 and spec.dtype == "float32" for spec in values) and 1 in node.args[1:]
        if base_name(node.op) == "batch_norm":
            return True
        return all(self._is_whole(spec, result) or spec.shape[2:] == (1, 1) or not spec.shape for spec in values)

    def _is_whole(self, spec: TensorSpec, result: TensorSpec) -> bool:
        """Whether it is a tensor to carry: with batch and channels of the result, and more than one place."""
        places = spec.shape[2:]
        return len(spec.shape) == 4 and spec.dtype == "float32" and spec.shape[:2] == result.shape[:2] and places != (1, 1)

    def _convolution(self, node: Node) -> None:
        weight, result = self._specs[_value(node.args[1])], node.outputs[0]
        bias = node.args[2] if len(node.args) > 2 else None
        args = [self._enter(_value(node.args[0])), self._weight(self._entries[weight.name]), None, *node.args[3:]]
        strides = channels_last_strides(result.shape)
        made = self._writer.add(node.op, args, result.shape, "float32", strides=strides)
        if isinstance(bias, ValueRef):
            spec, shape = self._specs[bias.value], (1, result.shape[1], 1, 1)
            shown = self._writer.add("aten.view.default", [spec, shape], shape, spec.dtype, view=True)
            made = self._writer.add("aten.add.Tensor", [made, shown], result.shape, "float32", strides=strides)
        self._inside[result.name] = made

    def _carry(self, node: Node) -> None:
        result = node.outputs[0]
        whole = base_name(node.op) in ("cat", "batch_norm")

        def replaced(arg: Any) -> Any:
            if isinstance(arg, tuple):
                return tuple(map(replaced, arg))
            if not isinstance(arg, ValueRef):
                return arg
            spec = self._specs[arg.value]
            if (whole and len(spec.shape) == 4) or self._is_whole(spec, result):
                return self._enter(arg.value)
            self._leave(arg.value)
            return spec

        args = list(map(replaced, node.args))
        strides = channels_last_strides(result.shape)
        self._inside[result.name] = self._writer.add(
            node.op, args, result.shape, result.dtype, strides=strides, options=dict(node.kwargs)
        )

    def _enter(self, value: str) -> TensorSpec:
        """Returns the value in channels-last order; the first time, adds the node that brings it into it."""
        if value not in self._inside:
            shape = self._specs[value].shape
            self._inside[value] = self._writer.add(
                "aten.clone.default", [self._specs[value]], shape, "float32", strides=channels_last_strides(shape),
                options={"memory_format": Literal_(kind="memory_format", text="channels_last")},
            )  # fmt: skip
        return self._inside[value]

    def _leave(self, value: str) -> None:
        """Makes the value as it was captured, if it is only there in channels-last order."""
        if value in self._outside or value not in self._inside:
            return
        spec = self._specs[value]
        self._writer.add(
            "aten.clone.default", [self._inside[value]], spec.shape, spec.dtype, strides=spec.strides, name=value,
            options={"memory_format": Literal_(kind="memory_format", text="contiguous_format")},
        )  # fmt: skip
        self._outside.add(value)

    def _weight(self, entry: StateTensor) -> TensorSpec:
        if entry.spec.name not in self._weights:
            shape = entry.spec.shape
            made = {"last": (shape, entry.spec.dtype, channels_last_strides(shape))}
            (self._weights[entry.spec.name],) = self._writer.prepare("channels_last", entry, made)
        return self._weights[entry.spec.name]


def _value(arg: Any) -> str:
    assert isinstance(arg, ValueRef)
    return arg.value
