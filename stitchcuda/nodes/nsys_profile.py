"""The nsys_profile node: where the whole program's time goes. Where nsys cannot run, the record says so."""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.state import State


def nsys_profile(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    assert work.program is not None
    if work.system:
        return {}
    profile = context.hands.profile_system(context.program_folder(work.program))
    update: State = {"work": work.model_copy(update={"system": profile})}
    if profile.skipped:
        update["notes"] = context.note(state, f"nsys_profile skipped: {profile.skipped}")
    return update
