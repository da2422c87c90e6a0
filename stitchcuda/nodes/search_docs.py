"""The search_docs node: opens the next attempt, and looks up documentation and lessons of earlier sessions for it.

It runs before each draft. Queries are made from the task, the last draft's error and its review. At the end of the plan there
is no attempt to open, and the verifier runs next.

Where to look next: `nodes/documentation.py` (queries, citations), `nodes/lessons.py` (lessons), `rag/lookup.py` (the search).
"""

from __future__ import annotations

from stitchcuda.engineers.program_excerpts import changed_files
from stitchcuda.nodes.attempt_figures import diagnosis_of
from stitchcuda.nodes.brief import attempts_at, current_task, open_work
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import search_for_draft
from stitchcuda.nodes.lessons import lessons_for_task
from stitchcuda.state import Evidence, Review, State


def search_docs(state: State, context: Context) -> State:
    work = state.get("work")               # open already if the same task is tried again
    task = work.task if work else None if state.get("halt") else current_task(state, context)
    if task is None:
        return {"work": None}
    work = work or open_work(state, context, task, lessons=lessons_for_task(state, context, task))
    last = next((attempt for attempt in reversed(attempts_at(context.history(state), task)) if not attempt.beside), None)
    error = diagnosis_of(context.load(Evidence, last.evidence)) if last else ""
    review = context.load(Review, last.review) if last else None
    program = state["program"]
    assert program is not None
    changed = changed_files(context.files(program), context.files(last.program)) if last and error else {}
    found = search_for_draft(state, context, task, work.id, error, review, changed)
    notes = state.get("notes", ())
    for note in found.notes:
        notes = context.note({"notes": notes}, note)
    docs = context.workspace.store.put(found.text.encode()) if found.text else None
    return {"work": work.model_copy(update={"docs": docs}), "notes": notes}
