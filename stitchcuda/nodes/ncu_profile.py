"""The ncu_profile node: reads hardware counters of the kernels that take most time, or records why it cannot.

The whole profile is stored in the workspace, a few lines of it in the state.

Where to look next: `nodes/nsys_profile.py` (which kernels those are), `tools/profile/ncu.py` (how they are read).
"""

from __future__ import annotations

from stitchcuda.nodes.attempt_figures import UNREAD
from stitchcuda.nodes.context import Context
from stitchcuda.state import ProfileResult, State
from stitchcuda.tools.profile.system_profile import SystemProfile


def ncu_profile(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    assert work.program is not None
    if work.kernels:
        return {}
    if not context.profiles_attempts(state):
        return {"work": work.model_copy(update={"kernels": ProfileResult(tool="ncu", skipped=UNREAD)})}
    system = context.load(SystemProfile, work.system.digest) if work.system and work.system.digest else None
    result = context.store_profile(*context.tools.profile_kernels(context.program_folder(work.program), system))
    update: State = {"work": work.model_copy(update={"kernels": result})}
    if result.skipped:
        update["notes"] = context.note(state, f"ncu_profile skipped: {result.skipped}")
    return update
