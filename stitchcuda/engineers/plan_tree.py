"""Tells what became of each branch of a session's plans: a task, or one of the structures that compete for it.

The tree is made from the plans and the attempts alone, without code: what was expected, what was measured, and why a branch was
left. Text and records only; it decides nothing.

Where to look next: `nodes/brief.py` (which structure is tried next), `engineers/prompt.py`, `nodes/report_text.py` (show it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stitchcuda.counts import counted
from stitchcuda.engineers.attempt_history import milliseconds, saved_by
from stitchcuda.state import Attempt, Plan, Task


@dataclass(frozen=True)
class Branch:
    """A task of one plan, or one structure of it. Milliseconds; None: not timed. `why` says why it was left, if it was."""

    plan: int                              # the plan's version
    task: str
    structure: str                         # "" for the task as its strategy says
    expected_ms: float
    claimed: bool                          # the expectation is a chat model's
    attempts: int
    saving_ms: float | None
    program_ms: float | None
    fate: Literal["kept", "left", "open", "not tried"]
    why: str


def plan_branches(plans: Sequence[Plan], history: Sequence[Attempt], finished: Sequence[str]) -> tuple[Branch, ...]:
    """Returns the branches in the order of the plans. `history`: all attempts, oldest first; `finished`: ids of tasks that are
    done with, kept or not. A task with structures has a branch for each, and one for drafts that followed none of them."""
    found = []
    for plan in plans:
        for task in plan.tasks:
            tried = [attempt for attempt in history if attempt.task == task.id and attempt.plan_version == plan.version]
            names = [structure.name for structure in task.structures]
            if not names or any(attempt.structure not in names for attempt in tried):
                names.append("")
            done = task.id in finished or plan is not plans[-1]
            found += [_branch(plan, task, name, tried, done=done) for name in names]
    return tuple(found)


def plan_tree_text(plans: Sequence[Plan], history: Sequence[Attempt], finished: Sequence[str]) -> str:
    """Returns the tree, a line for each plan and for each branch below it; "" without plans."""
    lines, branches = [], plan_branches(plans, history, finished)
    for plan in plans:
        lines.append(f"Plan {plan.version}: {plan.summary}" if plan.tasks else f"Plan {plan.version}: no tasks. {plan.summary}")
        lines += [f"- {_line(branch)}" for branch in branches if branch.plan == plan.version]
    return "\n".join(lines)


def _branch(plan: Plan, task: Task, name: str, tried: Sequence[Attempt], *, done: bool) -> Branch:
    mine = [attempt for attempt in tried if attempt.structure == name]
    timed = [attempt for attempt in mine if attempt.saving_ms is not None]
    kept = [attempt for attempt in mine if attempt.kept]
    best = kept[-1] if kept else max(timed, key=lambda attempt: attempt.saving_ms or 0.0, default=None)
    saving = saved_by(kept, task.id) if kept else best.saving_ms if best else None
    winner = next((attempt for attempt in reversed(tried) if attempt.kept), None)
    why, holds = "", winner is not None and winner.structure == name
    if kept and not holds and winner is not None:
        why = f"{winner.structure or 'another draft'} took its place"
    elif not kept and mine:
        why = mine[-1].route_reason + (f": {mine[-1].diagnosis}" if mine[-1].diagnosis else "")
    elif not kept and done:
        why = f"{winner.structure or 'another draft'} was kept" if winner else "the plan went on without it"
    fate: Literal["kept", "left", "open", "not tried"]
    fate = "kept" if holds else "not tried" if not mine else "left" if kept or done or mine[-1].beside else "open"
    return Branch(
        plan=plan.version, task=task.id, structure=name, expected_ms=task.predicted_by(name), claimed=plan.claimed,
        attempts=len(mine), saving_ms=saving, program_ms=best.program_ms if best else None,
        fate=fate, why=why,
    )  # fmt: skip


def _line(branch: Branch) -> str:
    name = f"{branch.task} / {branch.structure}" if branch.structure else branch.task
    figures = []
    if branch.expected_ms:                 # an agent's open task has none
        figures.append(f"{'claimed' if branch.claimed else 'predicted'} {milliseconds(branch.expected_ms)}")
    if branch.saving_ms is not None:
        call = f" (a call takes {milliseconds(branch.program_ms)})" if branch.program_ms is not None else ""
        figures.append(f"measured {milliseconds(branch.saving_ms)}{call}")
    elif branch.attempts:
        figures.append("not timed")
    tries = f" after {counted(branch.attempts, 'draft')}" if branch.attempts else ""
    told = "; ".join(filter(None, [", ".join(figures), branch.fate]))
    return f"{name}: {told}{tries}{f' ({branch.why})' if branch.why else ''}"
