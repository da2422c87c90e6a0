"""Computes the speed of light: the time below which no program with the same algorithm can go, per region and in all.

The formula:

    floor = max(compulsory bytes / bandwidth, flops of products / fastest rate, launches * the least a launch takes)

It is a bound that no program with cold caches beats. Each tensor crosses memory once, also where a library reads it twice
(statistics of a norm). An einsum is contracted in its cheapest order. An fp32 product may be written as three fp16 products,
and a TF32 convolution in fp16, and still be exact enough (`fastest_rate`), whatever libraries do.
All functions are pure: they take the captured graph and `DeviceFacts`, whose ceilings are reached rates;
`DeviceFacts.measured` says whether they were measured. Fusing regions with each other removes bytes that a region alone needs,
so the program's floor is below the sum over its regions. Nothing is predicted here, and no program is refused.

Where to look next: `compiler/regions/cost.py` (predictions), `verify/integrity/speed_of_light.py` (refuses results that are
faster than possible).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stitchcuda.compiler.capture.dependencies import base_name, references
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import operator_rates
from stitchcuda.compiler.regions.operator_work import MATRIX, bytes_touched, work_of
from stitchcuda.state import DeviceFacts, Precision, Region

Binding = Literal["bandwidth", "matrix rate", "launch", "nothing"]
LAUNCH_US = operator_rates.POINTWISE.fixed_us - operator_rates.GRAPH_GAP_US
"""Device time of a kernel that does next to nothing, inside a CUDA graph."""

_SPLIT = frozenset((
    "linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "addbmm", "einsum", "tensordot", "scaled_dot_product_attention",
))  # fmt: skip
"""Products that can be written as three fp16 products each."""
_FASTER: dict[Precision, str] = {"tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Floor:
    """Milliseconds that each ceiling (bandwidth, matrix rate, launches) alone would need; `ms` is the largest."""

    bytes_ms: float = 0.0
    matrix_ms: float = 0.0
    launch_ms: float = 0.0

    @property
    def ms(self) -> float:
        return max(self.bytes_ms, self.matrix_ms, self.launch_ms)

    @property
    def binds(self) -> Binding:
        """The ceiling that needs most time."""
        if self.ms == 0.0:
            return "nothing"
        if self.ms == self.launch_ms:
            return "launch"
        return "matrix rate" if self.ms == self.matrix_ms else "bandwidth"

    def __str__(self) -> str:
        return f"{self.ms:.4f} ms ({self.binds})"


def region_floor(region: Region, device: DeviceFacts, precision: Precision = "reference") -> Floor:
    """Returns the floor of all instances of a region, each run as one kernel. Zero for views and opaque regions."""
    if region.kind in ("view", "opaque"):
        return Floor()
    products = [op for op in region.operators if base_name(op) in MATRIX]
    rate = 0.0
    if products and region.outputs:
        rate = fastest_rate(products[0], region.outputs[0].dtype, device, precision)
    return Floor(
        bytes_ms=_ms(region.fused_bytes, device.bandwidth_gbs * 1e9),
        matrix_ms=_ms(region.flops, rate),
        launch_ms=len(region.nodes) * LAUNCH_US / 1e3,
    )


def program_floor(graph: OpGraph, device: DeviceFacts, precision: Precision = "reference") -> Floor:
    """Returns the floor of the whole program, run as one kernel.

    Every input, used parameter and result crosses memory once; products run at their fastest rate. Zero if it was not captured.
    """
    if graph.opaque:
        return Floor()
    flow = Flow(graph)
    used = set(references(graph.outputs)) | {value for node in graph.nodes for value in references((node.args, node.kwargs))}
    given = [*graph.inputs, *(tensor.spec for tensor in graph.state)]
    moved = sum(_needed_bytes(flow, spec.name) for spec in given if spec.name in used)
    moved += sum(flow.specs[name].elements * size_of(flow.specs[name].dtype) for name in flow.results if name in flow.producer)
    works = [(node, work_of(flow, node)) for node in graph.nodes]
    seconds = sum(
        work.flops / rate
        for node, work in works
        if work.matrix and (rate := fastest_rate(node.op, node.outputs[0].dtype, device, precision))
    )
    return Floor(
        bytes_ms=_ms(moved, device.bandwidth_gbs * 1e9),
        matrix_ms=1e3 * seconds,
        launch_ms=LAUNCH_US / 1e3 if any(work.launches for _, work in works) else 0.0,
    )


def region_floors(regions: Sequence[Region], device: DeviceFacts, precision: Precision = "reference") -> dict[str, Floor]:
    """Returns each region's floor by its id. Their sum is the best that this cut of the program can reach, kernel by kernel."""
    return {region.id: region_floor(region, device, precision) for region in regions}


def matrix_rate(op: str, dtype: str, device: DeviceFacts, precision: Precision = "reference") -> float:
    """Returns the flops per second of a library's product with results of `dtype`; 0 for a device without any rate.

    fp32 convolutions run in TF32 and fp32 products do not: torch's defaults. A `precision` of "tf32", "fp16" or
    "bf16" uses that type's rate for both. Products of fp16 matrices with fp32 results (`mm.dtype`) run at fp16's.
    """
    if op.endswith("mm.dtype"):
        return device.tflops.get("float16", 0.0) * 1e12
    if dtype == "float32":
        dtype = _FASTER.get(precision) or ("tf32" if base_name(op).startswith("conv") else dtype)
    rate = device.tflops.get(dtype) or device.tflops.get("float32") or max(device.tflops.values(), default=0.0)
    return rate * 1e12


def fastest_rate(op: str, dtype: str, device: DeviceFacts, precision: Precision = "reference") -> float:
    """Returns the flops per second that the same product may reach as a kernel written for it: an fp32 product as three fp16
    ones (split products) and a TF32 convolution as one of fp16, which has as many bits, where these are faster than
    `matrix_rate`."""
    rate, half = matrix_rate(op, dtype, device, precision), device.tflops.get("float16", 0.0) * 1e12
    if dtype != "float32" or op.endswith("mm.dtype"):
        return rate
    if precision == "tf32" or base_name(op).startswith("conv"):
        return max(rate, half)
    return max(rate, half / 3) if base_name(op) in _SPLIT else rate


def _ms(amount: float, rate: float) -> float:
    return 1e3 * amount / rate if rate else 0.0


def _needed_bytes(flow: Flow, name: str) -> int:
    """Counts the bytes of an input or parameter that the program has to read: all, unless it is only looked up by index."""
    spec = flow.specs[name]
    readers = flow.readers.get(name, [])
    lookups = [node for node in readers if base_name(node.op) in ("embedding", "index_select", "gather", "embedding_bag")]
    if readers and len(lookups) == len(readers):
        return min(bytes_touched(spec), sum(out.elements * size_of(out.dtype) for node in lookups for out in node.outputs))
    return bytes_touched(spec)
