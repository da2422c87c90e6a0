"""The ncu_profile node: hardware counters of each own kernel. Where ncu cannot run, the record says so."""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.state import State


def ncu_profile(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    assert work.program is not None
    if work.kernels:
        return {}
    profile = context.hands.profile_kernels(context.program_folder(work.program))
    update: State = {"work": work.model_copy(update={"kernels": profile})}
    if profile.skipped:
        update["notes"] = context.note(state, f"ncu_profile skipped: {profile.skipped}")
    return update
