"""Writes a lesson when a session leaves a task, and looks up lessons of other sessions before a plan and a draft.

What was looked up is stored by digest in the state, so a step that runs again sees the same lessons, whatever other sessions
have added since. Up to FOR_A_PLAN or FOR_A_DRAFT lessons are shown. If the memory cannot be used, that is noted and the session
goes on without lessons.

Where to look next: `memory/__init__.py` (the memory), `memory/similarity.py` (which lessons fit), `nodes/advance.py` (when).
"""

from __future__ import annotations

from collections.abc import Sequence

from stitchcuda.errors import StitchError
from stitchcuda.memory import describe_experiences, find_similar, make_lesson, make_situation
from stitchcuda.memory.experience import SimilarExperience
from stitchcuda.nodes.brief import attempts_at
from stitchcuda.nodes.context import Context
from stitchcuda.state import Digest, Evidence, Region, Review, State, Task

FOR_A_PLAN = 8
FOR_A_DRAFT = 5


def remember_lesson(state: State, context: Context, task: Task) -> tuple[str, ...]:
    """Stores the lesson of a task that is left, from its kept attempt, else its last one; returns the notes. A replay stores
    none: it repeats recorded replies, so its results are no new evidence."""
    notes = state.get("notes", ())
    attempts = [attempt for attempt in attempts_at(context.history(state), task) if not attempt.beside]
    baseline = state["baseline"]
    if context.memory is None or context.engineers.recorded or not attempts or baseline is None or task.kind == "open":
        return notes
    settled = next((attempt for attempt in reversed(attempts) if attempt.kept), attempts[-1])
    lesson = make_lesson(
        context.name, task, settled, context.load(Evidence, settled.evidence), context.load(Review, settled.review),
        regions=context.regions(baseline.regions), baseline=baseline, settings=context.settings,
    )  # fmt: skip
    try:
        context.memory.remember(lesson)
    except StitchError as error:
        return context.note(state, f"the lesson of {task.id} is not kept: {error}")
    return notes


def lessons_for_plan(state: State, context: Context) -> Digest | None:
    """Returns the digest of lessons for any of the program's regions and its host side; None if there are none."""
    baseline = state["baseline"]
    assert baseline is not None
    regions = [region for region in context.regions(baseline.regions) if region.kind != "view"]
    return _find_and_store(state, context, [[region] for region in regions] + [regions], FOR_A_PLAN)


def lessons_for_task(state: State, context: Context, task: Task) -> Digest | None:
    """Returns the digest of lessons for the situation of one task; None if there are none."""
    baseline = state["baseline"]
    assert baseline is not None
    regions = context.regions(baseline.regions)
    own = [region for region in regions if region.id in task.regions] or [region for region in regions if region.kind != "view"]
    return _find_and_store(state, context, [own], FOR_A_DRAFT)


def _find_and_store(state: State, context: Context, situations: Sequence[Sequence[Region]], limit: int) -> Digest | None:
    baseline = state["baseline"]
    if context.memory is None or baseline is None:
        return None
    try:
        known = context.memory.lessons()
    except StitchError as error:
        context.note(state, f"the lessons of earlier sessions are not read: {error}")
        return None
    others = [experience for experience in known if any(lesson.session != context.name for lesson in experience.lessons)]
    found: dict[str, SimilarExperience] = {}
    for regions in situations:
        for experience in find_similar(others, make_situation(regions, baseline, context.settings), limit):
            if experience.experience.key not in found or found[experience.experience.key].score < experience.score:
                found[experience.experience.key] = experience
    best = sorted(found.values(), key=lambda experience: -experience.score)[:limit]
    lines = describe_experiences(best, notes=True).splitlines()
    return context.workspace.store.put("\n".join(line.removeprefix("- ") for line in lines).encode()) if lines else None
