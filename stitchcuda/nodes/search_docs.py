"""The search_docs node: opens the next attempt, and looks up documentation and lessons of earlier sessions for it.

There is no documentation index yet, so it records that and why; the attempt goes on without. It writes nothing else.
"""

from __future__ import annotations

from stitchcuda.nodes.brief import current_task, open_work
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.lessons import for_task
from stitchcuda.state import State

NO_INDEX = "search_docs skipped: there is no documentation index"


def search_docs(state: State, context: Context) -> State:
    task = None if state.get("halt") else current_task(state, context)
    if task is None:
        return {"work": None}
    lessons = for_task(state, context, task)
    return {"work": open_work(state, context, task, lessons=lessons), "notes": context.note(state, NO_INDEX)}
