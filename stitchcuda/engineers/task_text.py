"""Writes a task's contract as text for a prompt: its tensors with layouts, its instances, the operators between them.

Layouts are those of the captured reference. Text only.

Where to look next: `compiler/regions/contract.py` (finds the contract), `engineers/prompt.py` (the sections).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions.contract import Border, task_contract
from stitchcuda.engineers.operator_significand import describe_significand
from stitchcuda.state import Region, TensorSpec


def tensor_text(spec: TensorSpec) -> str:
    """Returns `x [8, 64] float32 strides [64, 1]`."""
    return f"{spec.name} {list(spec.shape)} {spec.dtype} strides {list(spec.strides)}"


def task_text(graph: OpGraph, regions: Sequence[Region], carried: Mapping[str, int] | None = None) -> str:
    """Returns the regions, inputs, outputs and operators of a task; "" for one without regions. `carried`: as in
    `describe_significand`."""
    if not regions:
        return ""
    found = task_contract(graph, regions)
    heading = f"### {', '.join(f'{region.id} ({region.title})' for region in regions)}"
    first, count = found.instances[0], len(found.instances)
    if count == 1:
        times = [f"{region.id} × {len(region.nodes)}" for region in regions if len(region.nodes) > 1]
        lines = [heading, *([f"All instances belong to the task: {', '.join(times)}."] if times else []), *_tensors(first)]
    else:
        scopes = sorted({scope or "the root module" for region in regions for scope in region.scopes})
        equal = f"{count} equal instances, in {', '.join(scopes)}; serve all with the same kernels."
        lines = [heading, equal, *_other_instances(found.instances), "The first instance:", *_tensors(first)]
    lines += [f"{region.id}: {said}" for region in regions if (said := describe_significand(region, carried))]
    if found.between:
        lines.append(f"Between parts of the task run {', '.join(found.between)}: one kernel cannot do it all.")
    return "\n".join([*lines, "```", first.listing, "```"])


def _tensors(border: Border) -> list[str]:
    def shown(spec: TensorSpec) -> str:
        view = border.views.get(spec.name)
        return f"{tensor_text(spec)} ({view})" if view else tensor_text(spec)

    lines = [
        f"in: {'; '.join(map(shown, border.inputs)) or 'nothing'}",
        f"out: {'; '.join(map(tensor_text, border.outputs)) or 'nothing'}",
    ]
    return lines + ([f"updated in place: {'; '.join(map(tensor_text, border.updates))}"] if border.updates else [])


def _other_instances(instances: Sequence[Border]) -> list[str]:
    """Returns a line for each instance but the first: its tensors in the first one's order, and which come from others."""
    makers = {spec.name: number for number, border in enumerate(instances, 1) for spec in border.outputs}
    lines = []
    for number, border in enumerate(instances[1:], 2):
        given, made = _names(border.inputs, makers), _names(border.outputs, {})
        updated = f", updates {_names(border.updates, {})}" if border.updates else ""
        lines.append(f"- instance {number}: in {given}; out {made}{updated}")
    return lines


def _names(specs: Sequence[TensorSpec], makers: Mapping[str, int]) -> str:
    return ", ".join(f"{spec.name} (from {makers[spec.name]})" if spec.name in makers else spec.name for spec in specs)
