"""Predicted times on a device, from bytes, flops and launches: eager, with regions stitched, as a CUDA graph, and the floor.

The model is a two-clock pipeline. The host issues operators one after another; the device runs each once it was issued and its
predecessor has ended:

    device time of an operator = max(bytes / bandwidth, flops / rate, launches * KERNEL_US)
    device clock               = max(device clock, host clock) + device time
    host clock                 += launch_us of an operator, less for further launches of the same one and for views

so a program of many small operators costs what the host costs, a program of large ones what the device costs, and removing a
launch saves nothing where the device is the bottleneck. Ceilings are those of `DeviceFacts`, which are reached rates, not data
sheets'. Nothing is measured here. Constants below: an H200 with torch 2.11 and 2.13 (see `benchmarks/`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from stitchcuda.fusion.dtypes import size_of
from stitchcuda.fusion.flow import Flow
from stitchcuda.fusion.graph import Node, OpGraph
from stitchcuda.fusion.order import base_name, references
from stitchcuda.fusion.work import Work, touched, work_of
from stitchcuda.state import DeviceFacts, Region

KERNEL_US = 2.0  # shortest kernel with its gap to the next, back to back on one stream
GRAPH_KERNEL_US = 1.2  # the same inside a CUDA graph
REPLAY_US = 8.0  # host cost of one graph launch
VIEW_SHARE = 0.3  # host cost of a view, of an operator that launches
FURTHER_SHARE = 0.4  # host cost of each further launch inside one operator
OWN_SHARE = 0.7  # host cost of a stitched kernel's call: no dispatcher, but an output to allocate


@dataclass(frozen=True)
class Unit:
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
    saved = sum(unit.launches for unit in units) * (KERNEL_US - GRAPH_KERNEL_US)
    inner = sum(unit.device_us for unit in units)
    copies = sum(max(2e6 * touched(spec) / (device.bandwidth_gbs * 1e9), KERNEL_US) for spec in graph.inputs)
    copying_host = len(graph.inputs) * device.launch_us
    return (max(inner - saved, 0.5 * inner) + max(copies, copying_host) + REPLAY_US) / 1e3


def graph_saving_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """What replaying the program as a CUDA graph saves; negative where the copies of inputs cost more than the launches."""
    return program_ms(graph, regions, kept, device) - graph_ms(graph, regions, kept, device)


def saving_ms(region: Region, device: DeviceFacts) -> float:
    """What a region's kernel saves of device time: bytes that no longer cross memory, and kernels that no longer start.

    `max(eager bytes / bandwidth, launches * KERNEL_US) - max(fused bytes / bandwidth, instances * KERNEL_US)`; never negative,
    and 0 for regions that stay library operators. In context (a host-bound program saves its launches on the host instead)
    see the difference of two `program_ms`.
    """
    if region.kind != "fusible":
        return 0.0
    bandwidth = device.bandwidth_gbs * 1e3  # bytes per microsecond
    eager = max(region.eager_bytes / bandwidth, region.launches * KERNEL_US)
    fused = max(region.fused_bytes / bandwidth, len(region.nodes) * KERNEL_US)
    return max(eager - fused, 0.0) / 1e3


def floor_ms(graph: OpGraph, device: DeviceFacts) -> float:
    """Speed of light: every input, parameter that is used, and result crosses memory once; products run at the matrix rate.

    `max(compulsory bytes / bandwidth, sum of flops / rate)`. No program with the same algorithm and precision is faster.
    """
    if graph.opaque:
        return 0.0
    flow = Flow(graph)
    used = set(references(graph.outputs)) | {value for node in graph.nodes for value in references((node.args, node.kwargs))}
    given = [*graph.inputs, *(tensor.spec for tensor in graph.state)]
    moved = sum(_needed_bytes(flow, spec.name) for spec in given if spec.name in used)
    moved += sum(flow.specs[name].elements * size_of(flow.specs[name].dtype) for name in flow.results if name in flow.producer)
    flops_us = sum(_matrix_us(work, node, flow, device) for node in graph.nodes if (work := work_of(flow, node)).matrix)
    return max(moved / (device.bandwidth_gbs * 1e3), flops_us) / 1e3


def _needed_bytes(flow: Flow, name: str) -> int:
    """Bytes of a given tensor that the program has to read: all of it, unless it is only looked up by index."""
    spec = flow.specs[name]
    readers = flow.readers.get(name, [])
    lookups = [node for node in readers if base_name(node.op) in ("embedding", "index_select", "gather", "embedding_bag")]
    if readers and len(lookups) == len(readers):
        return min(touched(spec), sum(out.elements * size_of(out.dtype) for node in lookups for out in node.outputs))
    return touched(spec)


def _units(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> Iterator[Unit]:
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
                moved = region.fused_bytes / len(region.nodes) / (device.bandwidth_gbs * 1e3)
                yield Unit(OWN_SHARE * device.launch_us, max(moved, KERNEL_US), 1)
            continue
        work = work_of(flow, node)
        if work.launches:
            host = device.launch_us * (1 + FURTHER_SHARE * (work.launches - 1))
            yield Unit(host, _device_us(work, node, flow, device), work.launches)
        elif live is None or node.name in live:
            yield Unit(VIEW_SHARE * device.launch_us, 0.0, 0)


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


def _device_us(work: Work, node: Node, flow: Flow, device: DeviceFacts) -> float:
    moved = work.bytes / (device.bandwidth_gbs * 1e3)
    return max(moved, _matrix_us(work, node, flow, device) if work.matrix else 0.0, work.launches * KERNEL_US)


def _matrix_us(work: Work, node: Node, flow: Flow, device: DeviceFacts) -> float:
    """Flops over the device's matrix rate. fp32 convolutions run in TF32 and fp32 products do not: torch's defaults."""
    dtype = node.outputs[0].dtype
    if dtype == "float32" and base_name(node.op).startswith("conv"):
        dtype = "tf32"
    rate = device.tflops.get(dtype) or device.tflops.get("float32") or max(device.tflops.values(), default=1.0)
    return work.flops / (rate * 1e6)
