"""Writes the stop reason of a session in which no task was worth doing: what was looked at, why, and what would help.

The sentence begins with NOTHING, by which other code recognises it. A lower precision is suggested only if it lowers the
floor time of the regions.

Where to look next: `nodes/advance.py` (ends sessions), `sessions/outcome.py` (reads NOTHING).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stitchcuda.compiler.capture.dependencies import base_name
from stitchcuda.compiler.regions.floor import region_floors
from stitchcuda.nodes.context import Context
from stitchcuda.state import Baseline, Precision, Region, Settings, State

NOTHING = "nothing to do: "
_NAMES = 4                                 # the most operators named in the sentence
_LOWER: Precision = "bf16"


def explain_nothing_to_do(state: State, context: Context) -> str:
    """Returns the sentence; "" if a task was planned in this session, or if the reference could not be captured."""
    baseline = state["baseline"]
    assert baseline is not None
    if state.get("attempts", 0) or state.get("tasks_total", 0) or baseline.opaque:
        return ""
    regions = [region for region in context.regions(baseline.regions) if region.kind != "view"]
    if not regions:
        return f"{NOTHING}the program has no operator that computes"
    engineer = context.engineer(state).name
    plan = context.plan(state)
    if engineer == "builtin":
        why = "the built-in engineer has no faster kernel for any of them, and a CUDA graph would not pay"
        helps, how = "a chat model, which writes such kernels too (--model openai:NAME)", "with"
        if context.settings.policy == "strict" and plan and plan.summary and not plan.tasks:
            why, helps = plan.summary, f"--policy stitched, or {helps}"
    else:
        why = f"{engineer} planned no task" + (f" ({plan.summary.rstrip('.')})" if plan and plan.summary else "")
        helps, how = "another --model", "or"
    if _faster_in_bf16(regions, baseline, context.settings):
        helps += f", {how} --precision {_LOWER} if products may be less exact"
    return f"{NOTHING}{_count_operators(regions)}; {why}; what would help: {helps}"


def _count_operators(regions: Sequence[Region]) -> str:
    """Returns the operators by name, most frequent first: "3 operators were looked at (2 matmul, softmax)"."""
    counts: Counter[str] = Counter()
    for region in regions:
        for operator in region.operators:
            counts[base_name(operator)] += len(region.nodes)
    names = [name if count == 1 else f"{count} {name}" for name, count in counts.most_common(_NAMES)]
    if len(counts) > _NAMES:
        names.append(f"{len(counts) - _NAMES} other kinds")
    total = counts.total()
    return f"{total} operator{'s were' if total > 1 else ' was'} looked at ({', '.join(names)})"


def _faster_in_bf16(regions: Sequence[Region], baseline: Baseline, settings: Settings) -> bool:
    """Whether the floor time of these regions falls with a lower precision."""
    now, least = (
        sum(floor.ms for floor in region_floors(regions, baseline.device, precision).values())
        for precision in (settings.precision, _LOWER)
    )
    return least < now
