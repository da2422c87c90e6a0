"""The coder node: asks the engineer for one draft of a whole program, and a person for a word on it if the settings say so. It
neither builds nor runs it.

A step may have several candidates: the node runs once for each, side by side, and hands its draft in. An attempt that the
ledger knows already (a node rerun after a crash, a replay from an earlier checkpoint) is not written again: its program and
evidence are taken over, and the tool nodes leave them as they are. A draft that a person has changed is an attempt of its own.
"""

from __future__ import annotations

from stitchcuda.errors import OutOfBudget, Unusable
from stitchcuda.nodes.approval import ask_about_draft
from stitchcuda.nodes.brief import assignment_of, named
from stitchcuda.nodes.context import Context
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
        if not asks:
            return {"drafts": (_write(state, context, work),)}
        made = context.record_proposal(work.id, lambda: _write(state, context, work).model_dump_json())
    except OutOfBudget as error:
        return {"drafts": (work.model_copy(update={"unpaid": str(error)}),)}
    except Unusable as error:
        return {"drafts": (work.model_copy(update={"unusable": str(error)}),)}
    draft = Work.model_validate_json(made)
    return {"drafts": (_let_person_edit(draft, state, context) if draft.program else draft,)}


def _write(state: State, context: Context, work: Work) -> Work:
    """The attempt with the engineer's draft, or with why there is none."""
    engineer = context.engineer(state)
    draft = engineer.write(assignment_of(state, context, work))
    told = {"note": draft.note, "engineer": draft.engineer or engineer.name}
    if draft.exhausted or not draft.files:
        return work.model_copy(update=told | {"exhausted": draft.exhausted or "an empty draft"})
    return work.model_copy(update=told | {"program": context.save_program(draft.files)})


def _let_person_edit(draft: Work, state: State, context: Context) -> Work:
    """The draft as a person wants it. One that was accepted may be known already: a fork is asked about it once more."""
    before = state["program"]
    assert before is not None
    files = ask_about_draft(draft, context.files(before), context)
    if files is not None:
        program = context.save_program(files)
        name, note = named(draft.id, program), f"{draft.note} {EDITED}".strip()
        draft = draft.model_copy(update={"id": name, "program": program, "note": note, "edited": True})
    return _from_ledger(draft, context) or draft


def _from_ledger(work: Work, context: Context) -> Work | None:
    """The attempt as the ledger has it, with its program and evidence; None where it does not."""
    known = context.workspace.store.attempts(context.name).get(work.id)
    if known is None:
        return None
    found = context.load(Evidence, known.evidence)
    tools = {tool: getattr(found, tool) for tool in ("build", "check", "timing", "system", "kernels")}
    told = {"program": known.program, "note": known.note, "engineer": known.engineer, "edited": known.edited}
    return work.model_copy(update=told | tools)
