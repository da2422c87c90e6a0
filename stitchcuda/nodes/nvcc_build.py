"""The nvcc_build node: compiles the draft. What a failed build means is the verifier's to say."""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.state import State


def nvcc_build(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    assert work.program is not None
    if work.build:
        return {}
    build = context.hands.build(context.program_folder(work.program))
    update: State = {"work": work.model_copy(update={"build": build})}
    if build.skipped:
        update["notes"] = context.note(state, f"nvcc_build skipped: {build.skipped}")
    return update
