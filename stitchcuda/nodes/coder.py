"""The coder node: has the engineer write one draft, and a person approve or edit it if the settings say so.

The node runs once for each candidate of a step, side by side. An attempt that is in the ledger already (the node runs again
after a crash, or from an earlier checkpoint) is not written again: its program and evidence are reused, and the tool nodes skip
it. A draft that a person has edited is an attempt of its own. What an agent hands in is recorded: it is handed in once, also if
the node runs again. Nothing is built or run here.

Where to look next: `engineers/__init__.py` (Engineer.write), `nodes/approval.py` (a person's answer), `nodes/nvcc_build.py`.
"""

from __future__ import annotations

from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.approval import ask_about_draft
from stitchcuda.nodes.brief import assignment_of, named
from stitchcuda.nodes.context import Context
from stitchcuda.sandbox.foreign_text import plain
from stitchcuda.state import Evidence, State, Work

EDITED = "(edited by a person)"


def coder(state: State, context: Context) -> State:
    work = state["work"]
    assert work is not None
    asks = "code" in context.settings.approve
    if not asks and (known := _from_ledger(work, context)):
        return {"drafts": (known,)}
    if spent := context.out_of_attempts(state):
        return {"drafts": (work.model_copy(update={"unpaid": spent}),)}
    try:
        if not asks and context.engineers.agent is None:
            return {"drafts": (_write(state, context, work),)}
        proposal = context.record_proposal(work.id, lambda: _write(state, context, work).model_dump_json())
    except OutOfBudget as error:
        return {"drafts": (work.model_copy(update={"unpaid": str(error)}),)}
    except Unusable as error:
        return {"drafts": (work.model_copy(update={"unusable": str(error)}),)}
    draft = Work.model_validate_json(proposal)
    return {"drafts": (_let_person_edit(draft, state, context) if asks and draft.program else draft,)}


def _write(state: State, context: Context, work: Work) -> Work:
    engineer = context.engineer(state)
    draft = engineer.write(assignment_of(state, context, work))
    fields = {"note": plain(draft.note), "engineer": draft.engineer or engineer.name}
    if draft.exhausted or not draft.files:
        return work.model_copy(update=fields | {"exhausted": plain(draft.exhausted) or "an empty draft"})
    return work.model_copy(update=fields | {"program": context.save_program(draft.files)})


def _let_person_edit(draft: Work, state: State, context: Context) -> Work:
    """Returns the draft as a person accepts or edits it, with the ledger's evidence if it is there (as in a fork)."""
    before = state["program"]
    assert before is not None
    files = ask_about_draft(draft, context.files(before), context)
    if files is not None:
        program = context.save_program(files)
        name, note = named(draft.id, program), f"{draft.note} {EDITED}".strip()
        draft = draft.model_copy(update={"id": name, "program": program, "note": note, "edited": True})
    return _from_ledger(draft, context) or draft


def _from_ledger(work: Work, context: Context) -> Work | None:
    """Returns the attempt with program and evidence from the ledger; None if it is not there."""
    known = context.workspace.store.attempts(context.name).get(work.id)
    if known is None:
        return None
    found = context.load(Evidence, known.evidence)
    tools = {tool: getattr(found, tool) for tool in ("build", "check", "timing", "system", "kernels")}
    fields = {"program": known.program, "note": known.note, "engineer": known.engineer, "edited": known.edited}
    return work.model_copy(update=fields | tools)
