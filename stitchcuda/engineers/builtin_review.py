"""Reviews one attempt by rule: what held it back, one suggestion, and the route to propose.

A saving of at least PAID of the predicted one counts as reached; below that, and after a failure, the kernel's next variant is
suggested while there is one. The route is a proposal only: `graph/routes.py` decides. Pure functions of records.

Where to look next: `engineers/builtin.py` (calls this), `graph/routes.py` (decides the route).
"""

from __future__ import annotations

from stitchcuda.compiler.regions.operator_rates import OWN_POINTWISE
from stitchcuda.engineers import Assignment
from stitchcuda.state import BuildResult, CheckResult, Evidence, Region, Review, TimingResult

PAID = 0.7  # of the predicted saving counts as reached


def review_by_rule(assignment: Assignment, region: Region | None, evidence: Evidence, following: str = "") -> Review:
    """Returns the review of one attempt. `following` describes the kernel's next variant, "" if there is none."""
    if not evidence.build.ok and not evidence.build.skipped:
        return _failed(f"does not build: {_first_error(evidence.build)}", following)
    if evidence.check is None or not evidence.check.ok:
        return _failed(f"not correct: {_worst(evidence.check)}", following)
    if evidence.timing is None:
        share = f"own kernels now hold {evidence.check.own_share:.0%} of the bytes"
        return Review(
            bottleneck=f"correct ({evidence.check.tier}); nothing was timed here, and {share}",
            suggestion="Time it on a GPU; until then the predicted saving stands.",
            route="next_task",
            expected_gain=f"{assignment.task.predicted_ms:.4f} ms predicted",
        )
    return _review_timing(assignment, region, evidence, evidence.timing, following)


def _review_timing(
    assignment: Assignment, region: Region | None, evidence: Evidence, timing: TimingResult, following: str
) -> Review:
    predicted = assignment.task.predicted_ms
    measured = f"saves {timing.saving_ms:.4f} ms of {predicted:.4f} ms predicted"
    cause, citations = _cause(assignment, region, evidence)
    if timing.saving_low_ms > 0 and timing.saving_ms >= PAID * predicted:
        return Review(bottleneck=f"{measured}; {cause}", suggestion="Go on.", route="next_task", citations=citations)
    if following:
        return Review(
            bottleneck=f"{measured}; {cause}",
            suggestion=f"Try the next variant: {following}.",
            route="code",
            citations=citations,
            expected_gain=f"up to {max(predicted - timing.saving_ms, 0.0):.4f} ms",
        )
    return Review(
        bottleneck=f"{measured}; {cause}",
        suggestion="No further variant is known; leave it at the best one.",
        route="next_task",
        citations=citations,
    )


def _cause(assignment: Assignment, region: Region | None, evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """Returns what bounds the kernel, and citations: by a profiler if one looked, else by the cost model."""
    for profile in (evidence.kernels, evidence.system):
        if profile is not None and not profile.skipped and profile.bottleneck:
            return profile.bottleneck, profile.lines[:2]
    if region is None:
        return "bound by launches on the host", ()
    bytes_us = region.fused_bytes / len(region.nodes) / (assignment.brief.baseline.device.bandwidth_gbs * 1e3)
    if bytes_us < OWN_POINTWISE.fixed_us:
        return f"bound by launch latency: {bytes_us:.2f} us of memory traffic a call, less than a kernel takes to start", ()
    return f"bound by memory: {bytes_us:.1f} us of traffic a call at full bandwidth", ()


def _failed(fault: str, following: str) -> Review:
    if following:
        return Review(bottleneck=fault, suggestion=f"Try the next variant: {following}.", route="code")
    return Review(bottleneck=fault, suggestion="No variant is left: this region stays with the library.", route="next_task")


def _first_error(build: BuildResult) -> str:
    lines = [line.strip() for line in build.log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "the compiler said nothing")


def _worst(check: CheckResult | None) -> str:
    if check is None:
        return "the check did not run"
    wrong = [output for output in check.outputs if not output.ok]
    if not wrong:
        return check.reasons[0] if check.reasons else "the check gave no reason"
    worst = max(wrong, key=lambda output: output.max_error / output.max_bound if output.max_bound else float("inf"))
    if not worst.max_bound:                # nothing could be measured (shape, type, NaN), or it must be exact
        return f"{worst.name}: {worst.note}"
    note = f" ({worst.note})" if worst.note else ""
    return f"{worst.name} is off by {worst.max_error:.3g} where {worst.max_bound:.3g} is allowed{note}"
