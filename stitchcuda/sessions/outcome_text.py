"""Says in sentences how a session ended, what may be claimed of its speed-up, and which commands come next.

A speed-up is stated for the tiers measured and timed only; anything else is called a prediction.

Where to look next: `sessions/outcome.py` (the figures), `cli/summary.py` and `report/report_facts.py` (who shows them).
"""

from __future__ import annotations

import shlex

from stitchcuda.counts import counted
from stitchcuda.sessions.outcome import Outcome
from stitchcuda.sessions.session import Session


def gain(outcome: Outcome, device: str) -> str:
    """The speed-up on `device` with its tier, or the prediction, called one."""
    if outcome.speedup is not None and outcome.tier in ("measured", "timed"):
        return f"{outcome.speedup:.2f}× over eager on {device}, {outcome.tier}"
    if outcome.prediction is not None:
        return f"predicted {outcome.prediction}"
    return "no speed-up is claimed"


def headline(outcome: Outcome) -> str:
    """How far the session is, or how it ended, in one sentence."""
    done = f"{outcome.tasks_done} of {counted(outcome.tasks_total, 'task')}, {counted(outcome.attempts, 'attempt')}"
    planned = counted(outcome.tasks_total, "planned task")
    so_far = f"{outcome.tasks_done} of {planned} done, {counted(outcome.attempts, 'attempt')} so far"
    reason = f" ({outcome.stop_reason})" if outcome.stop_reason else ""
    waits = (outcome.stop_reason or "").startswith("waits for ")
    if outcome.accepted:
        return f"accepted, tier {outcome.tier}, after {done}"
    if outcome.status == "nothing_to_do":
        return str(outcome.stop_reason)
    if outcome.status == "done":
        finished = f"{counted(outcome.attempts, 'attempt')}; {outcome.tasks_done} of {planned} finished"
        return f"ended without an accepted program after {finished}{reason}"
    if outcome.status == "parked":
        return f"parked: it {outcome.stop_reason}; {so_far}" if waits else f"parked: it was interrupted; {so_far}"
    return f"{outcome.status}: {so_far}{reason}"


def next_commands(session: Session, outcome: Outcome, *, shown: bool = False) -> list[str]:
    """The commands that a user may want to run next, as they are typed, some with a remark in brackets. `shown`: without
    `stitchcuda show`, which is the one that is running."""
    where = session.home.option
    show = [] if shown else [f"stitchcuda show {session.name}{where}"]
    if outcome.status in ("parked", "failed"):
        again = f"stitchcuda resume {session.name}{where}"
        paths = [session.folder / "waiting" / question.name for question in session.waiting]
        edits = [f"{again} --edit {shlex.quote(str(path))}   (after editing it)" for path in paths]
        return [*show, f"{again} --accept", *edits] if paths else [again]
    commands = show
    if outcome.program:
        path = session.home.prepared(session.record) / session.record.reference_name
        commands.append(f"stitchcuda verify {shlex.quote(outcome.program)} --reference {shlex.quote(str(path))}")
    if outcome.accepted and outcome.tier == "simulated":
        commands.append(f"stitchcuda resume {session.name} --device cuda{where}   (on a machine with a GPU: measures it)")
    return commands
