"""Predicts milliseconds on a device from bytes, flops and launches: eager, with kernels of ours, as a CUDA graph.

The model has two clocks. The host issues operators one after another; the device runs each once it was issued and its
predecessor has ended:

    device time of an operator = fixed time + max(bytes / (bandwidth * its share), flops / (matrix rate * its share))
    device clock               = max(device clock, host clock) + device time
    host clock                 += the operator's share of launch_us

so a program of many small operators costs what the host costs, a program of large ones what the device costs, and removing a
launch saves little where the device is the bottleneck. Ceilings are those of `DeviceFacts`, which are reached rates and not
data sheets'. Nothing is measured here.

Where to look next: `compiler/regions/operator_rates.py` (shares and fixed times), `compiler/regions/operator_work.py` (bytes,
flops, launches), `compiler/regions/floor.py` (speed of light).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stitchcuda.compiler.capture.dependencies import base_name, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import operator_rates
from stitchcuda.compiler.regions.contract import nodes_between
from stitchcuda.compiler.regions.floor import fastest_rate, matrix_rate, program_floor
from stitchcuda.compiler.regions.operator_work import OperatorWork, bytes_touched, read_bytes, work_of
from stitchcuda.state import DeviceFacts, Precision, Region

ROW_OPERATORS = ("norm", "softmax", "sum", "mean", "var", "std", "amax", "amin", "prod", "pool", "logsumexp")
Instance = tuple[Region, tuple[str, ...]]  # a region, and the nodes of one of its instances


@dataclass(frozen=True)
class IssuedWork:
    """An operator or kernel call that the host issues: microseconds on host and device, and how many kernels it launches."""

    host_us: float
    device_us: float
    launches: int


@dataclass(frozen=True)
class StitchedKernel:
    """A generated or hand-written kernel in a program: the captured nodes that it replaces, what one call of it costs, and the
    bytes that it moves. `task`: its task's number among those given, `regions`: ids of those of the task that it serves."""

    nodes: frozenset[str]
    unit: IssuedWork
    moved: float = 0.0
    task: int = 0
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one call (`ms`) and of the device's work in it (`device_ms`).

    In a CUDA graph `ms` can be the smaller: `device_ms` counts after each kernel the gap to the next one on a busy stream.
    """

    ms: float
    device_ms: float


def eager_ms(graph: OpGraph, regions: Sequence[Region], device: DeviceFacts) -> float:
    """Predicts one eager call, operator by operator. 0 for a program that could not be captured."""
    return program_ms(graph, regions, (), device)


def program_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """Predicts one call of the program in which the regions with ids in `kept` run as generated kernels."""
    return call_cost(graph, _kernels_of_regions(regions, kept, device), device).ms


def graph_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """Predicts the same program replayed as a CUDA graph: the device's time, one launch, and a copy of every input."""
    return call_cost(graph, _kernels_of_regions(regions, kept, device), device, replayed=True).ms


def call_cost(graph: OpGraph, kernels: Iterable[StitchedKernel], device: DeviceFacts, *, replayed: bool = False) -> Cost:
    """Predicts one call of the program with these kernels, and torch's operators for all other nodes.

    They are issued one after another, or with `replayed` all at once as a CUDA graph.
    """
    return cost_of_units(graph, [unit for _, unit in issued_units(graph, kernels, device)], device, replayed=replayed)


def cost_of_units(graph: OpGraph, units: Sequence[IssuedWork], device: DeviceFacts, *, replayed: bool = False) -> Cost:
    """Predicts one call that issues these units in this order."""
    launched = [unit for unit in units if unit.launches]
    busy = sum(unit.device_us for unit in launched)
    if not replayed:
        host = clock = 0.0
        for unit in units:
            host += unit.host_us
            if unit.launches:
                clock = max(clock, host) + unit.device_us
        return Cost(max(host, clock) / 1e3, busy / 1e3)
    inner = sum(max(unit.device_us - unit.launches * operator_rates.GRAPH_GAP_US, 0.5 * unit.device_us) for unit in launched)
    bandwidth, fixed_us = device.bandwidth_gbs * 1e3, operator_rates.POINTWISE.fixed_us
    copies = sum(fixed_us + 2 * bytes_touched(spec) / bandwidth for spec in graph.inputs)
    issued = len(graph.inputs) * operator_rates.POINTWISE.host * device.launch_us + operator_rates.REPLAY_US
    return Cost(max(inner + copies, issued) / 1e3, (busy + copies) / 1e3)


def kernels_of_tasks(
    graph: OpGraph, tasks: Iterable[Sequence[Region]], device: DeviceFacts, precision: Precision = "reference",
    *, best: int | None = None,
) -> list[StitchedKernel]:  # fmt: skip
    """Returns the kernels of `tasks`; each task is the list of regions that it replaces together.

    A task of one region is one kernel for each of its instances, as the built-in engineer writes it. Which kernels a task of
    several regions consists of is not known: it was written by hand. They are taken at their best: instances that hand
    tensors to each other are one kernel with one launch, and each tensor that crosses their border crosses memory once.
    Products run at the rate that libraries reach, so that nothing is credited for writing them by hand. Only of the task with
    number `best` they run at their fastest rate, and parts that hand each other nothing are one kernel too, if no operator of
    others is between them.
    """
    made, flow = [], Flow(graph)
    for number, regions in enumerate(tasks):
        places = [(region, nodes) for region in regions if region.kind != "view" for nodes in region.nodes]
        groups = _group_instances(flow, places) if len(regions) > 1 else [[place] for place in places]
        if number == best and not nodes_between(flow, {name for _, nodes in places for name in nodes}):
            groups = [places] if places else []
        for group in groups:
            (region, _), names = group[0], frozenset(name for _, nodes in group for name in nodes)
            moved = region.fused_bytes / len(region.nodes) if len(group) == 1 else _border_bytes(flow, names)
            inside = [(node, work_of(flow, node)) for node in graph.nodes if node.name in names]
            products = [(node, work) for node, work in inside if work.matrix]
            matrix_us = sum(
                _matrix_us(work, node, device, precision, fastest=number == best) / operator_rates.rate_of(node.op).flops
                for node, work in products
            )
            operators = [node.op for node, _ in inside]
            served = tuple(dict.fromkeys(region.id for region, _ in group))
            made.append(StitchedKernel(names, _own_kernel(operators, moved, device, matrix_us), moved, number, served))
    return made


def graph_saving_ms(graph: OpGraph, regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> float:
    """Predicts what a CUDA graph saves; negative where the copies of inputs cost more than the launches."""
    return program_ms(graph, regions, kept, device) - graph_ms(graph, regions, kept, device)


def saving_ms(region: Region, device: DeviceFacts) -> float:
    """Predicts the device time that a region's kernel saves: eager operators against one kernel per instance.

    Bytes are shared out evenly over the operators. Never negative, and 0 for regions that stay library operators. For the
    saving within a whole program (which may be on the host) subtract two `program_ms`.
    """
    if region.kind != "fusible":
        return 0.0
    count, bandwidth = len(region.nodes), device.bandwidth_gbs * 1e3
    running = [operator_rates.rate_of(op) for op in region.operators][: max(region.launches // count, 1)]
    each = region.eager_bytes / count / len(running)
    half = any(spec.dtype in ("float16", "bfloat16") for spec in region.outputs)
    eager = sum(rate.fixed_us + each / (bandwidth * (rate.half if half else rate.bandwidth)) for rate in running)
    return max(eager - _own_region_kernel(region, device).device_us, 0.0) * count / 1e3


def floor_ms(graph: OpGraph, device: DeviceFacts, precision: Precision = "reference") -> float:
    """Returns the speed of light of the whole program (`compiler/regions/floor.py`). 0 if it could not be captured."""
    return program_floor(graph, device, precision).ms


def issued_units(
    graph: OpGraph, kernels: Iterable[StitchedKernel], device: DeviceFacts
) -> Iterator[tuple[StitchedKernel | Node, IssuedWork]]:
    """Yields what the host issues, in the graph's order, and its cost; a kernel comes at the place of its first node."""
    flow = Flow(graph)
    owner = {name: kernel for kernel in kernels for name in kernel.nodes}
    begun: set[frozenset[str]] = set()
    live = _live_views(flow, owner) if owner else None
    for node in graph.nodes:
        if node.name in owner:
            kernel = owner[node.name]
            if kernel.nodes not in begun:
                begun.add(kernel.nodes)
                yield kernel, kernel.unit
            continue
        work = work_of(flow, node)
        if work.launches:
            yield node, IssuedWork(_host_us(work, node, device), _device_us(work, node, device), work.launches)
        elif live is None or node.name in live:
            yield node, IssuedWork(operator_rates.VIEW_HOST * device.launch_us, 0.0, 0)


def _kernels_of_regions(regions: Sequence[Region], kept: Collection[str], device: DeviceFacts) -> list[StitchedKernel]:
    """Returns a kernel for each instance of the regions with ids in `kept`, as the built-in engineer writes them."""
    own = [(region, _own_region_kernel(region, device)) for region in regions if region.id in kept]
    return [StitchedKernel(frozenset(nodes), unit) for region, unit in own for nodes in region.nodes]


def _own_region_kernel(region: Region, device: DeviceFacts) -> IssuedWork:
    """Returns the cost of one call of a region's kernel."""
    return _own_kernel(region.operators, region.fused_bytes / len(region.nodes), device)


def _own_kernel(operators: Sequence[str], moved: float, device: DeviceFacts, matrix_us: float = 0.0) -> IssuedWork:
    """Returns the cost of one kernel that moves `moved` bytes and whose products need `matrix_us` by themselves."""
    rows = any(word in op for op in operators for word in ROW_OPERATORS)
    rate = operator_rates.OWN_ROWS if rows else operator_rates.OWN_POINTWISE
    moved_us = moved / (device.bandwidth_gbs * 1e3 * rate.bandwidth)
    return IssuedWork(rate.host * device.launch_us, rate.fixed_us + max(moved_us, matrix_us), 1)


def _group_instances(flow: Flow, places: Sequence[Instance]) -> list[list[Instance]]:
    """Groups the instances that pass tensors to each other, directly or through views; in the order of `places`."""
    group = list(range(len(places)))
    maker = {name: at for at, (_, nodes) in enumerate(places) for name in nodes}
    for at, (_, nodes) in enumerate(places):
        read = [value for name in nodes for value in references((flow.nodes[name].args, flow.nodes[name].kwargs))]
        for name in flow.makers(value for value in read if value in flow.specs):
            if name in maker and group[maker[name]] != group[at]:
                old, new = group[maker[name]], group[at]
                group = [new if number == old else number for number in group]
    return [[place for place, number in zip(places, group, strict=True) if number == own] for own in dict.fromkeys(group)]


def _border_bytes(flow: Flow, names: Collection[str]) -> int:
    """Counts the bytes that a kernel replacing these nodes reads from other nodes and writes for them, each tensor once."""
    read: dict[str, dict[str, int]] = {}
    for node in (node for node in flow.graph.nodes if node.name in names and not flow.is_view(node)):
        for value in references((node.args, node.kwargs)):
            made = flow.producer.get(flow.base(value)) if value in flow.specs else None
            if value in flow.specs and (made is None or made[0].name not in names):
                read.setdefault(flow.base(value), {})[value] = read_bytes(flow, node, value)
    whole = sum(min(sum(parts.values()), bytes_touched(flow.specs[base])) for base, parts in read.items())
    wanted = {flow.base(value) for value in flow.results if value in flow.specs}
    for node in flow.graph.nodes:
        if node.name not in names and not flow.is_view(node):
            wanted.update(flow.base(value) for value in references((node.args, node.kwargs)) if value in flow.specs)
    inside = [flow.nodes[name] for name in names]
    written = {spec.name for node in inside if not flow.is_view(node) for spec in node.outputs if spec.name in wanted}
    written.update(value for node in inside for value in writes(node))
    return whole + sum(bytes_touched(flow.specs[value]) for value in written)


def _live_views(flow: Flow, stitched: Collection[str]) -> set[str]:
    """Returns the views that the program returns or a node outside of the `stitched` nodes reads."""
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
    """Returns the host time of one operator. A recurrent layer (over 10 launches) adds 0.3 `launch_us` per launch."""
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


def _matrix_us(
    work: OperatorWork, node: Node, device: DeviceFacts, precision: Precision = "reference", *, fastest: bool = False
) -> float:
    """Returns the microseconds of an operator's flops at the device's matrix rate, or at the fastest."""
    rate = fastest_rate if fastest else matrix_rate
    return 1e6 * work.flops / (rate(node.op, node.outputs[0].dtype, device, precision) or 1e12)
