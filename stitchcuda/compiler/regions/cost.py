"""Predicted times on a device, from bytes, flops and launches: eager, with regions stitched, as a CUDA graph, and the floor.

The model is a two-clock pipeline. The host issues operators one after another; the device runs each once it was issued and its
predecessor has ended:

    device time of an operator = fixed time + max(bytes / (bandwidth * its share), flops / (matrix rate * its share))
    device clock               = max(device clock, host clock) + device time
    host clock                 += the operator's share of launch_us

so a program of many small operators costs what the host costs, a program of large ones what the device costs, and removing a
launch saves little where the device is the bottleneck. Shares and fixed times: `compiler/regions/operator_rates.py`; ceilings:
`DeviceFacts`, which are reached rates, not data sheets'. Nothing is measured here. Where to look next:
`compiler/regions/floor.py`, the speed of light.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import operator_rates
from stitchcuda.compiler.regions.floor import matrix_rate, program_floor
from stitchcuda.compiler.regions.operator_work import OperatorWork, touched, work_of
from stitchcuda.state import DeviceFacts, Precision, Region

ROW_OPERATORS = ("norm", "softmax", "sum", "mean", "var", "std", "amax", "amin", "prod", "pool", "logsumexp")


@dataclass(frozen=True)
class IssuedWork:
    """One thing that the host issues: microseconds on the host and on the device, and how many kernels it launches."""

    host_us: float
    device_us: float
    launches: int


def eager_ms(graph: OpGraph, regions: Sequence[Region], device: DeviceFacts) -> float:
    """One eager call, operator by operator. 0 for a program that could not be captured."""
    return program_ms(graph, regions, (), device)


def program_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """One call of the program in which the regions with ids in `kept` are kernels of ours."""
    host = clock = 0.0
    for unit in _units(graph, regions, kept, device):
        host += unit.host_us
        if unit.launches:
            clock = max(clock, host) + unit.device_us
    return max(host, clock) / 1e3


def graph_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """The same program replayed as a CUDA graph: the device's time alone, one launch, and a copy of every input."""
    units = [unit for unit in _units(graph, regions, kept, device) if unit.launches]
    inner = sum(max(unit.device_us - unit.launches * operator_rates.GRAPH_GAP_US, 0.5 * unit.device_us) for unit in units)
    copies = sum(operator_rates.POINTWISE.fixed_us + 2 * touched(spec) / (device.bandwidth_gbs * 1e3) for spec in graph.inputs)
    issued = len(graph.inputs) * operator_rates.POINTWISE.host * device.launch_us + operator_rates.REPLAY_US
    return max(inner + copies, issued) / 1e3


def graph_saving_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """What replaying the program as a CUDA graph saves; negative where the copies of inputs cost more than the launches."""
    return program_ms(graph, regions, kept, device) - graph_ms(graph, regions, kept, device)


def saving_ms(region: Region, device: DeviceFacts) -> float:
    """What a region's kernel saves of device time: operator by operator in eager, against one kernel per instance.

    Bytes are shared out evenly over the operators. Never negative, and 0 for regions that stay library operators. In context
    (a host-bound program saves its launches on the host instead) see the difference of two `program_ms`.
    """
    if region.kind != "fusible":
        return 0.0
    count, bandwidth = len(region.nodes), device.bandwidth_gbs * 1e3
    running = [operator_rates.rate_of(op) for op in region.operators][: max(region.launches // count, 1)]
    each = region.eager_bytes / count / len(running)
    half = any(spec.dtype in ("float16", "bfloat16") for spec in region.outputs)
    eager = sum(rate.fixed_us + each / (bandwidth * (rate.half if half else rate.bandwidth)) for rate in running)
    return max(eager - _own(region, device).device_us, 0.0) * count / 1e3


def floor_ms(graph: OpGraph, device: DeviceFacts, precision: Precision = "reference") -> float:
    """Speed of light of the whole program in milliseconds (`compiler/regions/floor.py`). 0 for one that could not be
    captured."""
    return program_floor(graph, device, precision).ms


def _units(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> Iterator[IssuedWork]:
    """What the host issues, in the graph's order; a stitched region in the place of its first node."""
    flow = Flow(graph)
    stitched: dict[str, tuple[Region, int]] = {}
    for region in regions:
        if region.id in kept:
            stitched.update({name: (region, i) for i, nodes in enumerate(region.nodes) for name in nodes})
    begun: set[tuple[str, int]] = set()
    live = _live_views(flow, stitched) if stitched else None
    for node in graph.nodes:
        if node.name in stitched:
            region, instance = stitched[node.name]
            if (region.id, instance) not in begun:
                begun.add((region.id, instance))
                yield _own(region, device)
            continue
        work = work_of(flow, node)
        if work.launches:
            yield IssuedWork(_host_us(work, node, device), _device_us(work, node, device), work.launches)
        elif live is None or node.name in live:
            yield IssuedWork(operator_rates.VIEW_HOST * device.launch_us, 0.0, 0)


def _own(region: Region, device: DeviceFacts) -> IssuedWork:
    """One call of a region's kernel."""
    rows = any(word in op for op in region.operators for word in ROW_OPERATORS)
    rate = operator_rates.OWN_ROWS if rows else operator_rates.OWN_POINTWISE
    moved = region.fused_bytes / len(region.nodes) / (device.bandwidth_gbs * 1e3 * rate.bandwidth)
    return IssuedWork(rate.host * device.launch_us, rate.fixed_us + moved, 1)


def _live_views(flow: Flow, stitched: Collection[str]) -> set[str]:
    """Views that somebody outside of the stitched regions still reads."""
    live: set[str] = set()
    for node in reversed(flow.graph.nodes):
        if node.name in stitched or not flow.is_view(node):
            continue
        for spec in node.outputs:
            readers = flow.readers.get(spec.name, [])
            if spec.name in flow.results or any(
                reader.name in live or (reader.name not in stitched and not flow.is_view(reader)) for reader in readers
            ):
                live.add(node.name)
    return live


def _host_us(work: OperatorWork, node: Node, device: DeviceFacts) -> float:
    """Recurrent layers launch from C++ inside one operator; other operators' launches are part of their measured share."""
    inner = 0.3 * work.launches if work.launches > 10 else 0.0
    return (operator_rates.rate_of(node.op).host + inner) * device.launch_us


def _device_us(work: OperatorWork, node: Node, device: DeviceFacts) -> float:
    rate = operator_rates.rate_of(node.op)
    half = bool(node.outputs) and node.outputs[0].dtype in ("float16", "bfloat16")
    fixed, share = rate.fixed_us, rate.half if half else rate.bandwidth
    if base_name(node.op) == "batch_norm" and writes(node):
        fixed, share = 8.0, min(0.85, node.outputs[0].shape[1] / operator_rates.CHANNELS_AT_FULL_RATE)
    moved = work.bytes / (device.bandwidth_gbs * 1e3 * share)
    if work.matrix:
        fixed += (work.launches - 1) * operator_rates.POINTWISE.fixed_us
        return fixed + max(moved, _matrix_us(work, node, device) / rate.flops)
    return fixed + moved


def _matrix_us(work: OperatorWork, node: Node, device: DeviceFacts) -> float:
    """Flops over the device's matrix rate."""
    return 1e6 * work.flops / (matrix_rate(node.op, node.outputs[0].dtype, device) or 1e12)
