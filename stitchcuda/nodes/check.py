"""The check node: correctness on secret inputs, then, on a GPU, time against the program before it. It decides nothing."""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.state import State


def check(state: State, context: Context) -> State:
    work, previous = state["work"], state["program"]
    assert work is not None
    assert work.program is not None
    assert previous is not None
    if work.check:
        return {}
    program = context.program_folder(work.program)
    found = context.hands.check(program, context.settings.seeds)
    timing = context.hands.time(program, context.program_folder(previous)) if found.ok else None
    if timing and timing.refused:          # right when looked at, and not when timed: that is not right
        found = found.model_copy(update={"ok": False, "reasons": (*found.reasons, *timing.refused)})
        timing = None
    return {"work": work.model_copy(update={"check": found, "timing": timing})}
