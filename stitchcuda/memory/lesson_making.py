"""Makes situations and lessons from a session's records.

A lesson is made of the attempt that settled its task: the one that was kept, else the last one; the caller chooses it. Its
outcome is "accepted" if the attempt was kept, else "refuted" with a reason. Pure functions: nothing is read or stored.

Where to look next: `memory/lesson.py` (the records), `nodes/lessons.py` (when a lesson is made).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from stitchcuda.memory.lesson import MOST_OPERATORS, MOST_TENSORS, Lesson, Situation, Tensor
from stitchcuda.state import Attempt, Baseline, Evidence, Region, Review, Settings, Task


def make_situation(regions: Sequence[Region], baseline: Baseline, settings: Settings, bottleneck: str = "") -> Situation:
    """Returns the situation of a task that replaces `regions` together; for a host-side task give all regions."""
    counts: Counter[str] = Counter()
    for region in regions:
        for operator in region.operators:
            counts[operator] += len(region.nodes) or 1
    common = math.gcd(*counts.values()) or 1
    kept = {name for name, _ in counts.most_common(MOST_OPERATORS)}
    tensors = [Tensor(shape=spec.shape, dtype=spec.dtype) for region in regions for spec in (*region.inputs, *region.outputs)]
    tensors.sort(key=lambda tensor: (-tensor.elements, tensor.shape, tensor.dtype))
    return Situation(
        operators=tuple((name, count // common) for name, count in counts.items() if name in kept),
        tensors=tuple(tensors[:MOST_TENSORS]),
        bottleneck=bottleneck,
        device=baseline.device.name,
        arch=baseline.device.arch,
        precision=settings.precision,
        torch=baseline.device.torch,
    )


def make_lesson(
    session: str,
    task: Task,
    attempt: Attempt,
    evidence: Evidence,
    review: Review | None,
    *,
    regions: Sequence[Region],
    baseline: Baseline,
    settings: Settings,
) -> Lesson:
    """Returns the lesson of `task` from the attempt that settled it. `regions` are all regions of the program."""
    own = [region for region in regions if region.id in task.regions]
    timing = evidence.timing
    before = timing.previous_ms if timing else baseline.eager_ms or baseline.predicted_ms
    return Lesson(
        situation=make_situation(
            own or [region for region in regions if region.kind != "view"],
            baseline,
            settings,
            review.bottleneck if review else "",
        ),
        kind="host" if task.kind == "host" else "region",
        title=task.title,
        strategy=task.strategy,
        note=attempt.note,
        feature=task.id.removeprefix("host:") if task.kind == "host" else "",
        predicted_ms=_finite(task.predicted_ms) or 0.0,
        saving_ms=_finite(timing.saving_ms) if timing else None,
        saving_low_ms=_finite(timing.saving_low_ms) if timing else None,
        saving_high_ms=_finite(timing.saving_high_ms) if timing else None,
        runtime_ms=_finite(before),
        tier=attempt.tier,
        outcome="accepted" if attempt.kept else "refuted",
        reason="" if attempt.kept else _reason(attempt),
        evidence=attempt.evidence,
        program=attempt.program,
        session=session,
        attempt=attempt.id,
    )


def _reason(attempt: Attempt) -> str:
    if not attempt.built or not attempt.correct:
        what = "not correct" if attempt.built else "not built"
        return f"{what}: {attempt.diagnosis}" if attempt.diagnosis else what
    return "does not pay" if attempt.saving_ms is not None else attempt.route_reason or "correct, but not timed"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
