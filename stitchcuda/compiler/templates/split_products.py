"""Rewrites an fp32 product as one product of fp16 matrices with three times the length: as exact, on tensor cores.

Rows of x [M, K] and columns of y [K, N] are scaled by powers of two (largest element in [2^14, 2^15), so that elements of
2^-18 of it still have all bits) and split: high = fp16(a), low = fp16(a - high). Of the four products of parts three matter:

    x · y = [low | high | high] of x  ·  [high | low | high] of y, one below the other, in fp16 with fp32 sums

and then both scales are undone. The error is 1.2 to 4.3 times fp32's own for K up to 4096 (H200, torch 2.11; the verifier
allows ten times). fp32 sums of more terms in tensor cores are off by more: longer products are sums of several, added in fp32.
Infinities and NaN give what fp32 gives: low parts meet only finite ones. Weights are split once (`split_weight` in
`compiler/printing/prelude.py`), what is computed in each call by nodes that fuse with their neighbours.

Where to look next: `compiler/regions/cost.py` (predicts what it gains), `compiler/printing/program.py` (prints the graph).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name, writes
from stitchcuda.compiler.capture.op_graph import (
    Literal_,
    Node,
    OpGraph,
    StateTensor,
    ValueRef,
    contiguous_strides,
)
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.templates.graph_writer import GraphWriter
from stitchcuda.state import DeviceFacts, TensorSpec

LENGTH = 4096                              # the most terms that tensor cores add up
MOST_PIECES = 16
_LEAST, _MOST = 2.0**-100, 2.0**127        # between these a row's scale follows its largest element, as in `split_weight`
_FLOAT, _HALF = Literal_(kind="dtype", text="float32"), Literal_(kind="dtype", text="float16")
Parts = tuple[TensorSpec, TensorSpec]      # of rows [..., R, K]: parts [..., R, 3K] in fp16, what undoes the scales [..., R, 1]


@dataclass(frozen=True)
class Product:
    """An fp32 product of the graph: left [..., M, K] by right [..., K, N], with the same leading sizes, and a bias [N].
    `weight`: it is a linear layer, and right is this parameter [N, K], transposed."""

    node: Node
    left: TensorSpec
    right: TensorSpec
    weight: StateTensor | None = None
    bias: TensorSpec | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of products (1 for a linear layer), M, N and K."""
        length = self.left.shape[-1]
        columns = self.node.outputs[0].shape[-1]
        count = 1 if self.weight else math.prod(self.left.shape[:-2])
        return count, self.left.elements // max(length * count, 1), columns, length

    @property
    def pieces(self) -> int:
        """How many sums a product is the sum of; 0 where there is no fitting number."""
        length = self.left.shape[-1]
        least = -(-length // LENGTH)
        return next((count for count in range(least, MOST_PIECES + 1) if length % count == 0), 0)


def find_products(graph: OpGraph) -> tuple[Product, ...]:
    """Returns the products that can be split, in the graph's order."""
    flow = Flow(graph)
    state = {entry.spec.name: entry for entry in graph.state if entry.kind == "parameter"}
    written = {value for node in graph.nodes for value in writes(node)}
    found = []
    for node in graph.nodes:
        base = base_name(node.op)
        if base not in ("linear", "matmul", "bmm", "mm") or node.kwargs or not node.op.endswith(".default"):
            continue
        given = [flow.specs[arg.value] for arg in node.args if isinstance(arg, ValueRef)]
        if {spec.dtype for spec in (*given, *node.outputs)} != {"float32"} or not all(spec.elements for spec in given):
            continue
        left, right = given[:2]
        if base == "linear":
            weight = state.get(right.name)
            made = Product(node, left, right, weight, given[2] if len(given) > 2 else None)
            fits = weight is not None and right.name not in written and len(left.shape) > 1
        else:
            made = Product(node, left, right)
            fits = len(left.shape) == len(right.shape) >= 2 and left.shape[:-2] == right.shape[:-2]
        if fits and made.pieces and (made.pieces == 1 or made.sizes[0] == 1):
            found.append(made)
    return tuple(found)


def gaining(products: Sequence[Product], device: DeviceFacts) -> tuple[Product, ...]:
    """Returns the products for which fp16's rate gains more than the larger operands cost."""
    single, half = device.tflops.get("float32", 0.0) * 1e6, device.tflops.get("float16", 0.0) * 1e6  # flops per microsecond
    if not single or not half:
        return ()

    def gains(product: Product) -> bool:
        count, rows, columns, length = product.sizes
        flops, bandwidth = 2.0 * count * rows * columns * length, device.bandwidth_gbs * 1e3
        left, right = count * rows * length, count * columns * length
        result = count * rows * columns
        before = max(flops / single, 4.0 * (left + right + result) / bandwidth)
        after = max(3.0 * flops / half, (6.0 * (left + right) + 4.0 * result * product.pieces) / bandwidth)
        made = left if product.weight else left + right  # is written in parts first, by a kernel more
        parts = 6.0 * made / bandwidth + 2.0
        return before > after + parts

    return tuple(filter(gains, products))


def split_products(graph: OpGraph, products: Collection[Product]) -> OpGraph:
    """Returns the graph with these products in three parts each. An input that several read is split once; so is a weight."""
    if not products:
        return graph
    chosen = {product.node.name: product for product in products}
    writer = GraphWriter(graph)
    weights: dict[str, Parts] = {}
    inputs: dict[tuple[str, bool, int], Parts] = {}

    def parts_of(value: TensorSpec, product: Product, *, turned: bool) -> Parts:
        key = value.name, turned, product.pieces
        if key not in inputs:
            inputs[key] = _split(writer, value, product.pieces, turned=turned)
        return inputs[key]

    for node in graph.nodes:
        product = chosen.get(node.name)
        if product is None:
            writer.nodes.append(node)
            continue
        writer.place = node
        entry = product.weight
        if entry is not None and entry.spec.name not in weights:
            weights[entry.spec.name] = _prepared_weight(writer, entry, product.pieces)
        left = parts_of(product.left, product, turned=False)
        right = weights[entry.spec.name] if entry is not None else parts_of(product.right, product, turned=True)
        _product(writer, product, left, right)
    return writer.graph()


def _prepared_weight(writer: GraphWriter, weight: StateTensor, pieces: int) -> Parts:
    columns, length = weight.spec.shape
    shapes = (columns, 3 * length), (columns, 1)
    parts, undo = (
        (shape, dtype, contiguous_strides(shape)) for shape, dtype in zip(shapes, ("float16", "float32"), strict=True)
    )
    made = writer.prepare("split_weight", weight, {"parts": parts, "scale": undo}, pieces=pieces)
    return made[0], made[1]


def _split(writer: GraphWriter, x: TensorSpec, pieces: int, *, turned: bool) -> Parts:
    """Adds the nodes that split the rows of x, or with `turned` its columns, in the order of parts for right operands then."""
    if turned:
        x = _turn(writer, x)
    rows, shape = (*x.shape[:-1], 1), x.shape
    size = writer.add("aten.abs.default", [x], shape, "float32")
    largest = writer.add("aten.amax.default", [size, (-1,), True], rows, "float32")
    largest = writer.add("aten.clamp.default", [largest, _LEAST, _MOST], rows, "float32")
    octave = writer.add("aten.floor.default", [writer.add("aten.log2.default", [largest], rows, "float32")], rows, "float32")
    exponent = writer.add("aten.rsub.Scalar", [octave, 14.0], rows, "float32")
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
    order: tuple[TensorSpec, ...] = (kept, low, high) if turned else (low, kept, high)
    if pieces > 1:
        cut = (*shape[:-1], pieces, shape[-1] // pieces)
        order = tuple(writer.add("aten.view.default", [part, cut], cut, "float16", view=True) for part in order)
    whole = (*order[0].shape[:-1], 3 * order[0].shape[-1])
    return writer.add("aten.cat.default", [order, -1], whole, "float16"), undo


def _turn(writer: GraphWriter, x: TensorSpec) -> TensorSpec:
    """Adds a view with the last two dimensions exchanged."""
    shape, strides = (*x.shape[:-2], x.shape[-1], x.shape[-2]), (*x.strides[:-2], x.strides[-1], x.strides[-2])
    return writer.add("aten.transpose.int", [x, -2, -1], shape, x.dtype, strides=strides, view=True)


def _product(writer: GraphWriter, product: Product, left: Parts, right: Parts) -> None:
    """Adds the product; its result has the name that it had."""
    (parts, undo_row), (right_parts, undo_column) = left, right
    count, rows, columns, length = product.sizes
    pieces, result = product.pieces, product.node.outputs[0]
    value = _multiply(writer, parts, right_parts, (count, rows, columns), pieces, length)
    value = writer.add("aten.view.default", [value, result.shape], result.shape, "float32", view=True)
    value = writer.add("aten.mul.Tensor", [value, _turn(writer, undo_column)], result.shape, "float32")
    last = "" if product.bias else result.name
    value = writer.add("aten.mul.Tensor", [value, undo_row], result.shape, "float32", strides=result.strides, name=last)
    if product.bias:
        writer.add("aten.add.Tensor", [value, product.bias], result.shape, "float32", strides=result.strides, name=result.name)


def _multiply(
    writer: GraphWriter, left: TensorSpec, right: TensorSpec, sizes: tuple[int, int, int], pieces: int, length: int
) -> TensorSpec:
    """Adds the product of parts: left [..., M, 3K] by right [..., N, 3K], turned, as [count, M, N] or [M, N]."""
    count, rows, columns = sizes
    inner = 3 * length // pieces
    if count == pieces == 1:
        left = writer.add("aten.view.default", [left, (rows, inner)], (rows, inner), "float16", view=True)
        right = writer.add("aten.view.default", [right, (columns, inner)], (columns, inner), "float16", view=True)
        return writer.add("aten.mm.dtype", [left, _turn(writer, right), _FLOAT], (rows, columns), "float32")

    def batched(value: TensorSpec, size: int) -> TensorSpec:
        """[count · pieces, size, inner]; pieces are taken from within rows where there is one product."""
        cut = (size, pieces, inner) if pieces > 1 else (count, size, inner)
        value = writer.add("aten.view.default", [value, cut], cut, "float16", view=True)
        if pieces == 1:
            return value
        moved, strides = (pieces, size, inner), (inner, pieces * inner, 1)
        return writer.add("aten.transpose.int", [value, 0, 1], moved, "float16", strides=strides, view=True)

    shape = (pieces if pieces > 1 else count, rows, columns)
    factors = batched(left, rows), _turn(writer, batched(right, columns))
    value = writer.add("aten.bmm.dtype", [*factors, _FLOAT], shape, "float32")
    return value if pieces == 1 else writer.add("aten.sum.dim_IntList", [value, (0,)], (rows, columns), "float32")
