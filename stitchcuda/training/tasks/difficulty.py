"""Says how difficult a task is by what the compiler captures of it: kernels, speed of light, share of library work, distance.

All times are the cost model's for one device, not measured. `fused_ms` stands in for torch.compile: the same program with each
fusible region as one generated kernel and libraries for products and convolutions.
Where to look next: `training/tasks/histogram.py` (shows them), `compiler/regions/cost.py`, `compiler/regions/floor.py`.
"""

from __future__ import annotations

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.lower.value_flow import Flow
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.floor import program_floor
from stitchcuda.compiler.regions.operator_work import work_of
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.state import DeviceFacts, Record


class Difficulty(Record):
    """`operators`: nodes that do work. `kernels`: launches of one eager call. `library`: share of the eager device time that
    products, convolutions, attention and recurrent layers take. `gap`: `fused_ms` over `floor_ms`."""

    operators: int
    kernels: int
    eager_ms: float
    fused_ms: float
    floor_ms: float
    floor_binds: str
    library: float
    gap: float


def difficulty_of(graph: OpGraph, device: DeviceFacts) -> Difficulty:
    """Measures a captured task; `graph.opaque` has to be empty."""
    flow = Flow(graph)
    works = {node.name: work_of(flow, node) for node in graph.nodes}
    units = [(what, unit) for what, unit in cost.issued_units(graph, (), device) if unit.launches]
    library = sum(
        unit.device_us for what, unit in units if not isinstance(what, cost.StitchedKernel) and works[what.name].matrix
    )
    whole = sum(unit.device_us for _, unit in units)
    regions = partition(graph)
    floor = program_floor(graph, device)
    eager = cost.program_ms(graph, regions, (), device)
    fused = min(eager, cost.program_ms(graph, regions, [region.id for region in regions if region.kind == "fusible"], device))
    return Difficulty(
        operators=sum(work.launches > 0 for work in works.values()), kernels=sum(work.launches for work in works.values()),
        eager_ms=_short(eager), fused_ms=_short(fused), floor_ms=_short(floor.ms), floor_binds=floor.binds,
        library=round(library / whole, 3) if whole else 0.0, gap=round(fused / floor.ms, 2) if floor.ms else 0.0,
    )  # fmt: skip


def _short(ms: float) -> float:
    return float(f"{ms:.4g}")
