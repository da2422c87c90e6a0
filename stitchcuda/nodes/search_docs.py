"""The search_docs node: opens the next attempt, and looks up documentation and lessons of earlier sessions for it.

It runs before each draft. Queries are made from the task, and from the error and the review of the draft that a candidate goes
on from: the last one of its structure. At the end of the plan there
is no attempt to open, and the verifier runs next.

Where to look next: `nodes/documentation.py` (queries, citations), `nodes/lessons.py` (lessons), `rag/lookup.py` (the search).
"""

from __future__ import annotations

from stitchcuda.engineers.program_excerpts import changed_files
from stitchcuda.nodes.attempt_figures import diagnosis_of
from stitchcuda.nodes.brief import attempts_at, current_task, last_draft, open_work, split_candidates
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import Documented, search_for_draft
from stitchcuda.nodes.lessons import lessons_for_task
from stitchcuda.state import Attempt, Evidence, Review, State, Work


def search_docs(state: State, context: Context) -> State:
    work = state.get("work")               # open already if the same task is tried again
    task = work.task if work else None if state.get("halt") else current_task(state, context)
    if task is None:
        return {"work": None}
    work = work or open_work(state, context, task, lessons=lessons_for_task(state, context, task))
    found: dict[str, Documented] = {}      # by the draft that is gone on from, "" for none
    earlier = attempts_at(context.history(state), task)
    docs, notes = [], state.get("notes", ())
    for candidate in split_candidates(work):
        last = last_draft(earlier, candidate.structure)
        name = last.id if last else ""
        if name not in found:
            found[name] = _search(state, context, candidate, last)
        for note in found[name].notes:
            notes = context.note({"notes": notes}, note)
        text = found[name].text
        docs.append(context.workspace.store.put(text.encode()) if text else None)
    return {"work": work.model_copy(update={"docs": docs[0], "docs_beside": tuple(docs[1:])}), "notes": notes}


def _search(state: State, context: Context, work: Work, last: Attempt | None) -> Documented:
    program = state["program"]
    assert program is not None
    error = diagnosis_of(context.load(Evidence, last.evidence)) if last else ""
    review = context.load(Review, last.review) if last else None
    changed = changed_files(context.files(program), context.files(last.program)) if last and error else {}
    return search_for_draft(state, context, work.task, work.id, error, review, changed)
