"""The nsys_profile node: records where the whole program's time goes, by which profiler, and why not by a better one.

The whole profile is stored in the workspace, a few lines of it in the state.

Where to look next: `tools/profile/nsys.py` (how it is measured), `nodes/ncu_profile.py` (the next node).
"""

from __future__ import annotations

from stitchcuda.nodes.attempt_figures import UNREAD
from stitchcuda.nodes.context import Context
from stitchcuda.state import ProfileResult, State


def nsys_profile(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    assert work.program is not None
    if work.system:
        return {}
    if not context.profiles_attempts(state):
        return {"work": work.model_copy(update={"system": ProfileResult(tool="nsys", skipped=UNREAD)})}
    result = context.store_profile(*context.tools.profile_system(context.program_folder(work.program)))
    update: State = {"work": work.model_copy(update={"system": result})}
    if result.skipped:
        update["notes"] = context.note(state, f"nsys_profile skipped: {result.skipped}")
    elif result.why:
        update["notes"] = context.note(state, f"nsys_profile: {result.source} in place of nsys ({result.why})")
    return update
