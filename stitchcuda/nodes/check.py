"""The check node: checks all candidates on secret inputs, then, on a GPU, times each against the previous program.

Candidates are timed one after the other, each alone on the device. A program whose timing is refused counts as not correct. The
step goes on with the best candidate. No route is decided here.

Where to look next: `verify/api.py` (correctness), `nodes/pick_candidate.py` (the best), `nodes/verifier.py` (the route).
"""

from __future__ import annotations

from stitchcuda.nodes.context import Context
from stitchcuda.nodes.pick_candidate import pick_candidate
from stitchcuda.state import CheckResult, Digest, State, Work


def check(state: State, context: Context) -> State:
    work, previous = state["work"], state["program"]
    assert work is not None
    assert previous is not None
    works = sorted((work, *state.get("beside", ())), key=lambda draft: draft.candidate)
    built = [draft for draft in works if draft.program and draft.build and (draft.build.ok or draft.build.skipped)]
    unchecked = [draft for draft in built if not draft.check]
    if not unchecked:
        return {}
    folders = [context.program_folder(draft.program) for draft in unchecked if draft.program]
    found = dict(zip((draft.id for draft in unchecked), context.tools.check_many(folders, context.settings.seeds), strict=True))
    judged = [_time_if_correct(draft, found[draft.id], previous, context) if draft.id in found else draft for draft in works]
    chosen = pick_candidate(judged)
    return {"work": chosen, "beside": tuple(draft for draft in judged if draft.id != chosen.id)}


def _time_if_correct(work: Work, found: CheckResult, previous: Digest, context: Context) -> Work:
    assert work.program is not None
    timing = context.tools.time(context.program_folder(work.program), context.program_folder(previous)) if found.ok else None
    if timing and timing.refused:          # such as outputs that were wrong in timed calls
        found = found.model_copy(update={"ok": False, "reasons": (*found.reasons, *timing.refused)})
        timing = None
    return work.model_copy(update={"check": found, "timing": timing})
