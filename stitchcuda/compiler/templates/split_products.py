"""Rewrites an fp32 product as one product of fp16 matrices with three times the length: as exact, on tensor cores.

Rows of both operands are scaled by powers of two (largest element in [8, 16)) and split: high = fp16(a), low = fp16(a - high).
Of the four products of parts three matter:

    x · wᵀ = [low | high | high] of x  ·  [high | low | high] of w, transposed, in fp16 with fp32 sums

and then both scales are undone. The error is 1.2 to 6 times fp32's own for lengths up to 8192 (H200, torch 2.11; the verifier
allows ten times). Beyond, fp32 sums of so many terms in tensor cores are off by more, and the product stays as it is.
Infinities and NaN give what fp32 gives: low parts meet only finite ones. Weights are split once (`split_weight` in
`compiler/printing/prelude.py`); the other operand by nodes that fuse with their neighbours.

Where to look next: `compiler/regions/cost.py` (predicts what it gains), `compiler/printing/program.py` (prints the graph).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name, writes
from stitchcuda.compiler.capture.op_graph import (
    Literal_,
    Node,
    OpGraph,
    Preparation,
    StateTensor,
    ValueRef,
    contiguous_strides,
)
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.templates.graph_writer import GraphWriter
from stitchcuda.state import DeviceFacts, TensorSpec

HALF_PRODUCT = "aten.mm.dtype"
MOST_LENGTH = 8192
_LEAST, _MOST = 2.0**-100, 2.0**126        # largest elements of a row between which its scale follows them
_FLOAT, _HALF = Literal_(kind="dtype", text="float32"), Literal_(kind="dtype", text="float16")


@dataclass(frozen=True)
class Product:
    """An fp32 linear layer of the graph: its node, input [..., K], weight [N, K] (state), and bias [N]."""

    node: Node
    source: TensorSpec
    weight: StateTensor
    bias: TensorSpec | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        columns, length = self.weight.spec.shape
        return self.source.elements // length, columns, length


def find_products(graph: OpGraph) -> tuple[Product, ...]:
    """Returns the products that can be split, in the graph's order."""
    flow = Flow(graph)
    state = {entry.spec.name: entry for entry in graph.state if entry.kind == "parameter"}
    written = {value for node in graph.nodes for value in writes(node)}
    found = []
    for node in graph.nodes:
        if base_name(node.op) != "linear" or node.kwargs or not all(isinstance(arg, ValueRef) for arg in node.args[:2]):
            continue
        source, weight = (flow.specs[arg.value] for arg in node.args[:2] if isinstance(arg, ValueRef))
        bias = node.args[2] if len(node.args) > 2 else None
        entry = state.get(weight.name)
        if entry is None or weight.name in written or len(weight.shape) != 2 or not 0 < weight.shape[1] <= MOST_LENGTH:
            continue
        if {source.dtype, weight.dtype, node.outputs[0].dtype} != {"float32"} or not source.elements:
            continue
        found.append(Product(node, source, entry, flow.specs[bias.value] if isinstance(bias, ValueRef) else None))
    return tuple(found)


def gaining(products: Sequence[Product], device: DeviceFacts) -> tuple[Product, ...]:
    """Returns the products for which fp16's rate gains more than the larger operands cost."""
    single, half = device.tflops.get("float32", 0.0) * 1e6, device.tflops.get("float16", 0.0) * 1e6  # flops per microsecond
    if not single or not half:
        return ()

    def gains(product: Product) -> bool:
        rows, columns, length = product.sizes
        flops, bandwidth = 2.0 * rows * columns * length, device.bandwidth_gbs * 1e3
        before = max(flops / single, 4.0 * (rows + columns) * length / bandwidth)
        after = max(3.0 * flops / half, 6.0 * (rows + columns) * length / bandwidth)
        parts = 6.0 * rows * length / bandwidth + 2.0  # of its input are written first, by a kernel more
        return before > after + parts

    return tuple(filter(gains, products))


def split_gaining(graph: OpGraph, device: DeviceFacts) -> OpGraph:
    """Returns the graph with all products split that gain by it; the same graph if it was rewritten before."""
    return graph if graph.prepared else split_products(graph, gaining(find_products(graph), device))


def split_products(graph: OpGraph, products: Collection[Product]) -> OpGraph:
    """Returns the graph with these products in three parts each. An input that several read is split once; so is a weight."""
    chosen = {product.node.name: product for product in products}
    writer = GraphWriter(graph)
    state, prepared = list(graph.state), list(graph.prepared)
    weights: dict[str, tuple[TensorSpec, TensorSpec]] = {}
    inputs: dict[str, tuple[TensorSpec, TensorSpec]] = {}
    for node in graph.nodes:
        product = chosen.get(node.name)
        if product is None:
            writer.nodes.append(node)
            continue
        writer.place = node
        entry = product.weight
        if entry.spec.name not in weights:
            made = _prepared_weight(writer, entry)
            weights[entry.spec.name] = made[0].spec, made[1].spec
            state += made
            results = tuple(part.spec.name for part in made)
            prepared.append(Preparation(function="split_weight", source=entry.spec.name, results=results))
        if product.source.name not in inputs:
            inputs[product.source.name] = _split(writer, product.source)
        _product(writer, product, inputs[product.source.name], weights[entry.spec.name])
    return graph.model_copy(update={"nodes": tuple(writer.nodes), "state": tuple(state), "prepared": tuple(prepared)})


def _prepared_weight(writer: GraphWriter, weight: StateTensor) -> tuple[StateTensor, StateTensor]:
    columns, length = weight.spec.shape

    def prepared(suffix: str, shape: tuple[int, ...], dtype: str) -> StateTensor:
        name = writer.name(f"{weight.spec.name}_{suffix}")
        spec = TensorSpec(name=name, shape=shape, dtype=dtype, strides=contiguous_strides(shape))
        return StateTensor(spec=spec, key=f"{weight.key}_{suffix}", kind="prepared")

    return prepared("parts", (columns, 3 * length), "float16"), prepared("scale", (columns,), "float32")


def _split(writer: GraphWriter, x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Returns the parts [..., 3K] of x [..., K] in fp16, and what undoes the scale of each row, [..., 1]."""
    rows, shape = (*x.shape[:-1], 1), x.shape
    size = writer.add("aten.abs.default", [x], shape, "float32")
    largest = writer.add("aten.amax.default", [size, (-1,), True], rows, "float32")
    largest = writer.add("aten.clamp.default", [largest, _LEAST, _MOST], rows, "float32")
    octave = writer.add("aten.floor.default", [writer.add("aten.log2.default", [largest], rows, "float32")], rows, "float32")
    exponent = writer.add("aten.rsub.Scalar", [octave, 3.0], rows, "float32")
    scale = writer.add("aten.exp2.default", [exponent], rows, "float32")
    undo = writer.add("aten.reciprocal.default", [scale], rows, "float32")
    scaled = writer.add("aten.mul.Tensor", [x, scale], shape, "float32")
    high = writer.add("aten.to.dtype", [scaled, _HALF], shape, "float16")
    wide = writer.add("aten.to.dtype", [high, _FLOAT], shape, "float32")
    finite = writer.add("aten.isfinite.default", [wide], shape, "bool")
    rest = writer.add("aten.sub.Tensor", [scaled, wide], shape, "float32")
    rest = writer.add("aten.where.ScalarOther", [finite, rest, 0.0], shape, "float32")
    low = writer.add("aten.to.dtype", [rest, _HALF], shape, "float16")
    kept = writer.add("aten.where.ScalarOther", [finite, high, 0.0], shape, "float16")
    return writer.add("aten.cat.default", [(low, kept, high), -1], (*shape[:-1], 3 * shape[-1]), "float16"), undo


def _product(
    writer: GraphWriter, product: Product, source: tuple[TensorSpec, TensorSpec], weight: tuple[TensorSpec, TensorSpec]
) -> None:
    """Adds the product; its result has the name that it had."""
    (parts, undo_row), (weight_parts, undo_column) = source, weight
    rows, columns, length = product.sizes
    result = product.node.outputs[0]
    flat = writer.add("aten.view.default", [parts, (rows, 3 * length)], (rows, 3 * length), "float16", view=True)
    turned = writer.add(
        "aten.t.default", [weight_parts], (3 * length, columns), "float16", strides=(1, 3 * length), view=True
    )
    value = writer.add(HALF_PRODUCT, [flat, turned, _FLOAT], (rows, columns), "float32")
    value = writer.add("aten.view.default", [value, result.shape], result.shape, "float32", view=True)
    value = writer.add("aten.mul.Tensor", [value, undo_column], result.shape, "float32")
    last = "" if product.bias else result.name
    value = writer.add("aten.mul.Tensor", [value, undo_row], result.shape, "float32", strides=result.strides, name=last)
    if product.bias:
        writer.add("aten.add.Tensor", [value, product.bias], result.shape, "float32", strides=result.strides, name=result.name)
