"""The coder node: asks the engineer for one draft of a whole program. It neither builds nor runs it.

An attempt that the ledger knows already (a node rerun after a crash, a replay from an earlier checkpoint) is not written again:
its program and evidence are taken over, and the tool nodes leave them as they are.
"""

from __future__ import annotations

from stitchcuda.nodes.brief import assignment_of
from stitchcuda.nodes.context import Context
from stitchcuda.state import Evidence, State


def coder(state: State, context: Context) -> State:
    work = state.get("work")
    if work is None:
        return {}
    known = context.workspace.store.attempts(context.name).get(work.id)
    if known:
        found = context.load(Evidence, known.evidence)
        tools = {tool: getattr(found, tool) for tool in ("build", "check", "timing", "system", "kernels")}
        return {"work": work.model_copy(update={"program": known.program} | tools)}
    draft = context.engineer.write(assignment_of(state, context, work))
    if draft.exhausted or not draft.files:
        return {"work": work.model_copy(update={"note": draft.note, "exhausted": draft.exhausted or "an empty draft"})}
    return {"work": work.model_copy(update={"program": context.save_program(draft.files), "note": draft.note})}
