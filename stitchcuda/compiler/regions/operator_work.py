"""Counts what one operator costs in eager mode: bytes moved, flops, kernel launches, and whether the host waits for it.

Each tensor argument counts once, as far as it is read, and each result once; views cost nothing. Flops are two per
multiply-add of products and convolutions (of an einsum: in its cheapest order), and one per element and arithmetic step
elsewhere (`STEPS`). Launch counts (`LAUNCHES`, else 1) are those of torch's CUDA kernels (aten/src/ATen/native/cuda, 2.8 to
2.13).

Where to look next: `compiler/regions/cost.py` (makes times from these), `compiler/regions/kernel_traffic.py` (bytes of
generated kernels).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name, references, writes
from stitchcuda.compiler.capture.op_graph import Node
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions.einsum_flops import least_einsum_flops
from stitchcuda.state import TensorSpec

# Kernels per call: group_norm computes moments, per-group factors and the result; rms_norm is composed of operators.
LAUNCHES = {
    "group_norm": 3, "instance_norm": 3, "rms_norm": 5, "cosine_similarity": 8, "mse_loss": 2, "l1_loss": 3, "normalize": 4,
    "linalg_vector_norm": 1, "logsumexp": 5, "mish": 1, "scaled_dot_product_attention": 1, "log_softmax": 1,
    "lerp": 1, "addcmul": 1,
    "sort": 4, "topk": 3, "cumsum": 1, "index_put_": 3, "cross_entropy_loss": 2, "multi_head_attention_forward": 8,
    "repeat_interleave": 2,
    "std_mean": 1, "var_mean": 1,
}  # fmt: skip
STEPS = {
    "layer_norm": 8, "group_norm": 8, "batch_norm": 6, "instance_norm": 8, "rms_norm": 5, "softmax": 5,
    "log_softmax": 5, "gelu": 8,
    "silu": 4, "mish": 6, "softplus": 4, "var": 4, "std": 4,
}  # fmt: skip
SYNCHRONISING = frozenset({
    "item", "_local_scalar_dense", "nonzero", "nonzero_static", "unique", "_unique", "_unique2",
    "unique_consecutive", "unique_dim",
    "masked_select", "argwhere", "equal", "is_nonzero", "allclose", "bincount", "histc", "sym_size", "tolist",
})  # fmt: skip
MATRIX = frozenset({
    "linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "addbmm", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "scaled_dot_product_attention", "lstm", "gru",
    "rnn_tanh", "rnn_relu",
    "bilinear", "mv", "dot", "tensordot", "addmv", "chain_matmul", "linalg_multi_dot",
})  # fmt: skip


@dataclass(frozen=True)
class OperatorWork:
    """The bytes, flops and kernel launches of one eager operator. `matrix`: its flops run at the device's matrix rate."""

    bytes: int
    flops: int
    launches: int
    matrix: bool = False


def work_of(flow: Flow, node: Node) -> OperatorWork:
    """Returns what a node costs in eager mode; zero for views."""
    base = base_name(node.op)
    if flow.is_view(node) or not (node.outputs or writes(node)):
        return OperatorWork(0, 0, 0)
    read = sum(read_bytes(flow, node, name) for name in dict.fromkeys(references((node.args, node.kwargs))))
    written = sum(spec.elements * size_of(spec.dtype) for spec in node.outputs)
    matrix = base in MATRIX
    flops = matrix_flops(flow, node) if matrix else _elements(flow, node) * STEPS.get(base, 1)
    return OperatorWork(read + written, flops, _launches(flow, node), matrix)


def synchronises(flow: Flow, node: Node) -> bool:
    """Whether the host waits for this operator's result, so that a CUDA graph cannot hold it."""
    base = base_name(node.op)
    if base == "where" and len(node.args) == 1:
        return True
    if base in ("index", "index_put", "index_put_") and len(node.args) > 1:  # a mask: the host waits for its count
        return any(flow.specs[name].dtype in ("bool", "uint8") for name in references(node.args[1]) if name in flow.specs)
    return base in SYNCHRONISING


def read_bytes(flow: Flow, node: Node, name: str) -> int:
    """Counts the bytes of one argument that an operator reads; of a table looked up by index, no more than it returns."""
    spec = flow.specs.get(name)
    if spec is None:
        return 0
    base = base_name(node.op)
    if base in ("embedding", "index_select", "index", "gather") and node.args and name in set(references(node.args[0])):
        return min(bytes_touched(spec), sum(out.elements * size_of(out.dtype) for out in node.outputs))
    return bytes_touched(spec)


def bytes_touched(spec: TensorSpec) -> int:
    """Counts the bytes that reading a tensor brings from memory: expanded dimensions (stride 0) count once."""
    return size_of(spec.dtype) * math.prod(
        size for size, stride in zip(spec.shape, spec.strides, strict=True) if stride != 0 or size == 0
    )


def _elements(flow: Flow, node: Node) -> int:
    specs: Iterable[TensorSpec] = (flow.specs[name] for name in references(node.args) if name in flow.specs)
    return max([spec.elements for spec in (*node.outputs, *specs)], default=0)


def _launches(flow: Flow, node: Node) -> int:
    base = base_name(node.op)
    if base in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return _recurrent_launches(flow, node)
    if base == "batch_norm":
        return 2 if writes(node) or (len(node.args) > 5 and node.args[5] is True) else 1
    if base.startswith("conv") and len(node.args) > 2 and node.args[2] is not None:
        return 2  # cuDNN's convolution and the bias
    return LAUNCHES.get(base, 1)


def _recurrent_launches(flow: Flow, node: Node) -> int:
    """Estimates a recurrent layer's launches: cuDNN runs about one product and one cell kernel per time step and layer."""
    source = flow.specs[next(references(node.args[0]))]
    layers = node.args[4] if len(node.args) > 4 and isinstance(node.args[4], int) else 1
    return 2 * layers * max(source.shape[:2])


def matrix_flops(flow: Flow, node: Node) -> int:
    """Counts the flops of a product, convolution, attention or recurrent layer: two per multiply-add."""
    base = base_name(node.op)
    specs = [flow.specs[name] for name in references(node.args) if name in flow.specs]
    out = node.outputs[0]
    if base.startswith("conv_transpose"):
        return 2 * specs[0].elements * specs[1].elements // max(specs[1].shape[0], 1)
    if base.startswith("conv"):
        return 2 * out.elements * specs[1].elements // max(specs[1].shape[0], 1)
    if base == "scaled_dot_product_attention":
        query, key, value = specs[:3]
        causal = node.kwargs.get("is_causal", node.args[5] if len(node.args) > 5 else False)
        full = 2 * query.elements * key.shape[-2] + 2 * query.elements // query.shape[-1] * key.shape[-2] * value.shape[-1]
        return full // 2 if causal else full
    if base in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        source = specs[0]
        steps = math.prod(source.shape[:-1])
        return sum(2 * spec.elements * steps for spec in specs[2:] if len(spec.shape) == 2)
    if base == "einsum":
        return least_einsum_flops(str(node.args[0]), [spec.shape for spec in specs])
    if base == "bilinear":
        return 2 * math.prod(specs[0].shape[:-1]) * specs[2].elements
    if base in ("addmm", "baddbmm", "addbmm", "addmv"):
        return 2 * specs[1].elements * (specs[2].shape[-1] if base != "addmv" else 1)
    if base == "linear":
        return 2 * specs[0].elements * specs[1].shape[0]
    if base in ("mv", "dot"):
        return 2 * specs[0].elements
    return 2 * out.elements * (specs[0].shape[-1] if specs[0].shape else 1)
