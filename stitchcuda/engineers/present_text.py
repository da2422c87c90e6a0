"""Writes the program as it is as text, the same for planner, coder and verifier: kept tasks, nodes in order, what is left.

Each figure says whether it is measured or predicted by the cost model; a model's own number stands beside them as its claim.
What the last check saw a call run shows the tensors as they are passed now. Text only.

Where to look next: `compiler/regions/present.py` (the description), `engineers/prompt.py` (the sections).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stitchcuda.compiler.regions.present import PresentNode, PresentProgram, PresentTask
from stitchcuda.counts import counted
from stitchcuda.engineers.attempt_history import milliseconds
from stitchcuda.engineers.folding import find_groups
from stitchcuda.state import MOST_STEPS as MOST_RECORDED
from stitchcuda.state import CallStep, DeviceFacts, Tier

MOST_NODES = 24                            # lines of nodes; of more, those that take most time
MOST_STEPS = 40                            # lines on what a call ran
LEAST_FOLDED = 4                           # steps, from which on repeated ones are folded


def present_text(present: PresentProgram, device: DeviceFacts, program_ms: float | None, speedup: float | None) -> str:
    """Returns kept tasks, times, nodes in order and what is left. `program_ms`, `speedup`: of one timing; None: not timed."""
    tasks = [_task(task) for task in present.tasks] or ["Nothing is stitched yet: torch runs every operator of the reference."]
    if present.tasks:
        tasks.insert(0, "Kept tasks in it, and what each covers now:")
    return "\n".join([*tasks, _call(present, device, program_ms, speedup), *_nodes(present), _left(present, program_ms)])


def steps_text(steps: Sequence[CallStep], tier: Tier | None) -> str:
    """Returns what a call ran, a line each; "" where no check has seen it. `tier`: of that check."""
    if not steps:
        return ""
    timed = tier in ("measured", "timed")
    lines: list[str] = []
    for group in find_groups([_step(step.model_copy(update={"amount": 0}), timed=timed) for step in steps]):
        end = group.start + group.period * group.times
        if group.times == 1 or group.period * group.times < LEAST_FOLDED:
            lines += [_step(step, timed=timed) for step in steps[group.start : end]]
            continue
        lines += [_step(step, timed=timed) for step in steps[group.start : group.start + group.period]]
        amount = _amount(sum(step.amount for step in steps[group.start : end]), timed=timed)
        what = "the one" if group.period == 1 else f"the {group.period}"
        lines.append(f"- {what} above × {group.times}, one after another: {amount} together")
    if len(lines) > MOST_STEPS:
        lines = [*lines[:MOST_STEPS], f"- and {counted(len(lines) - MOST_STEPS, 'more line')}"]
    if sum(step.times for step in steps) >= MOST_RECORDED:
        lines.append(f"- (of a call no more than its first {MOST_RECORDED} steps are recorded)")
    what = "device time" if timed else "tensors as they are passed now: own functions' arguments, others' results"
    return "\n".join([f"What its last check saw a call run, in order ({what}):", *lines])


def task_claim(claim_ms: float, claimed: bool) -> str:
    """Returns how a task's number is to be read: "the planner claims that it saves 0.1 ms" or "…the cost model predicts…"."""
    return f"{'the planner claims' if claimed else 'the cost model predicts'} that it saves {milliseconds(claim_ms)}"


def _task(task: PresentTask) -> str:
    covers = ", ".join(f"{region.id} ({region.title}){_times(len(region.nodes))}" for region in task.regions) or "the host side"
    figures = []
    if task.saving_ms is not None:
        figures.append(f"measured saving {milliseconds(task.saving_ms)}")
    elif task.regions:
        figures.append(f"saves {milliseconds(task.modelled_ms)} by the cost model")
    if task.measured_ms is not None:
        figures.append(f"its launches take {milliseconds(task.measured_ms)} measured")
    if task.claim_ms is not None:
        figures.append(f"claimed {milliseconds(task.claim_ms)}")
    return f"- {task.id}: {covers}{'; ' if figures else ''}{', '.join(figures)}"


def _call(present: PresentProgram, device: DeviceFacts, program_ms: float | None, speedup: float | None) -> str:
    if program_ms is not None:
        over = f", {speedup:.2f}× over eager beside it ({milliseconds(speedup * program_ms)})" if speedup else ""
        text = f"A call takes {milliseconds(program_ms)} measured{over}; by the cost model {milliseconds(present.ms)}"
    else:
        text = f"A call takes {milliseconds(present.ms)} by the cost model for {device.name} (nothing was timed)"
    if present.replayed:
        text += ", replayed as a CUDA graph"
    else:
        text += f", {milliseconds(present.device_ms)} of it device work"
        text += "; the host issues more slowly than the device works" if present.ms > 1.05 * present.device_ms else ""
    return f"{text}. Speed-of-light floor of the whole: {milliseconds(present.floor.ms)}."


def _nodes(present: PresentProgram) -> list[str]:
    """Returns a line for each node, equal ones together, with those that take least time left out where there are many."""
    equal: dict[PresentNode, list[PresentNode]] = {}
    for node in present.nodes:
        known = None if node.measured_ms is None else 0.0
        equal.setdefault(replace(node, makes="", measured_ms=known), []).append(node)
    groups = list(equal.values())
    most = sorted(groups, key=lambda group: -_took(group))[:MOST_NODES]
    figures = "launches, bytes, flops, time on the device and floor"
    if any(node.measured_ms is not None for node in present.nodes):
        figures += "; measured: by the kernels of a recorded call, predicted: by the cost model"
    else:
        figures += " by the cost model"
    lines = [f"Its {counted(len(present.nodes), 'node')} in order ({figures}):"]
    lines += [f"- {_node(group)}" for group in groups if group in most]
    rest = [node for group in groups if group not in most for node in group]
    if rest:
        lines.append(f"- {counted(len(rest), 'smaller node')}: {milliseconds(_took(rest))} together")
    return lines


def _node(group: Sequence[PresentNode]) -> str:
    node, count = group[0], len(group)
    what = f"{node.name} of {node.task}" if node.task else node.name
    flops = f", {scaled(count * node.flops, 'FLOP')}" if node.flops else ""
    time = f"{milliseconds(_took(group))} predicted"
    if node.measured_ms is not None:
        times = [each.took_ms for each in group]
        apart = f" ({milliseconds(min(times))} to {milliseconds(max(times))} each)" if max(times) > 1.1 * min(times) else ""
        time = f"{milliseconds(_took(group))} measured{apart}, {milliseconds(count * node.ms)} predicted"
    return (
        f"{what} [{', '.join(node.regions)}]{_times(count)} → {node.makes}: "
        f"{counted(count * node.launches, 'launch')}, {scaled(count * node.moved, 'B')}"
        f"{flops}; {time}, floor {milliseconds(count * node.floor.ms)} by {node.floor.binds}, "
        f"{milliseconds(sum(each.above_ms for each in group))} above it"
    )


def _took(nodes: Sequence[PresentNode]) -> float:
    return sum(node.took_ms for node in nodes)


def _left(present: PresentProgram, program_ms: float | None) -> str:
    left = present.left_ms if program_ms is None else max(program_ms - present.floor.ms, 0.0)

    def time_of(nodes: Sequence[PresentNode]) -> str:
        above = sum(node.above_ms for node in nodes)
        known = [node for node in nodes if node.measured_ms is not None]
        some = f" ({milliseconds(_took(known))} of it measured)" if known else ""
        part = " measured" if known and len(known) == len(nodes) else some
        return f"{milliseconds(_took(nodes))}{part}, {milliseconds(above)} above floors"

    own, torch = [node for node in present.nodes if node.task], [node for node in present.nodes if not node.task]
    return (
        f"What is left: at most {milliseconds(left)} of a call, if all became one kernel at its floor. "
        f"Torch's operators take {time_of(torch)}; own kernels {time_of(own)}."
    )


def _step(step: CallStep, *, timed: bool) -> str:
    who = {"own": "own", "vendor": "library", "framework": "torch"}[step.who]
    tensors = step.tensors and (f" ({step.tensors})" if step.who == "own" else f" → {step.tensors}")
    return f"- {who} {step.name}{_times(step.times)}{tensors}: {_amount(step.amount, timed=timed)}"


def _amount(amount: int, *, timed: bool) -> str:
    return f"{amount / 1e3:.1f} µs" if timed else scaled(amount, "B")


def _times(count: int) -> str:
    return f" × {count}" if count > 1 else ""


def scaled(value: float, unit: str) -> str:
    """Returns a number with its unit's prefix: 8448 B → "8.45 kB"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
