"""The coder node: asks the engineer for one draft of a whole program. It neither builds nor runs it.

A step may have several candidates: the node runs once for each, side by side, and hands its draft in. An attempt that the
ledger knows already (a node rerun after a crash, a replay from an earlier checkpoint) is not written again: its program and
evidence are taken over, and the tool nodes leave them as they are.
"""

from __future__ import annotations

from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.brief import assignment_of
from stitchcuda.nodes.context import Context
from stitchcuda.state import Evidence, State


def coder(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    known = context.workspace.store.attempts(context.name).get(work.id)
    if known:
        found = context.load(Evidence, known.evidence)
        tools = {tool: getattr(found, tool) for tool in ("build", "check", "timing", "system", "kernels")}
        told = {"program": known.program, "note": known.note, "engineer": known.engineer}
        return {"drafts": (work.model_copy(update=told | tools),)}
    if spent := context.out_of_attempts(state):
        return {"drafts": (work.model_copy(update={"unpaid": spent}),)}
    engineer = context.engineer(state)
    try:
        draft = engineer.write(assignment_of(state, context, work))
    except OutOfBudget as error:
        return {"drafts": (work.model_copy(update={"unpaid": str(error)}),)}
    except Unusable as error:
        return {"drafts": (work.model_copy(update={"unusable": str(error)}),)}
    told = {"note": draft.note, "engineer": draft.engineer or engineer.name}
    if draft.exhausted or not draft.files:
        return {"drafts": (work.model_copy(update=told | {"exhausted": draft.exhausted or "an empty draft"}),)}
    return {"drafts": (work.model_copy(update=told | {"program": context.save_program(draft.files)}),)}
