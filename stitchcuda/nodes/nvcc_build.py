"""The nvcc_build node: compiles the step's drafts, all at once, and drops those that do the same as another.

Two drafts do the same if their sources without comments have the same fingerprint (`BuildResult.code`). Of equal candidates the
first stays; a draft equal to an earlier attempt from the same program takes over its evidence. No route is decided here.

Where to look next: `tools/build/nvcc.py` (builds), `nodes/pick_candidate.py` (which candidate goes on), `nodes/check.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from stitchcuda.nodes.brief import attempts_at
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.pick_candidate import pick_candidate
from stitchcuda.state import Attempt, BuildResult, Evidence, State, Work
from stitchcuda.tools.build.nvcc import NOTHING_TO_BUILD


def nvcc_build(state: State, context: Context) -> State:
    drafts = state["drafts"]
    written = [work for work in drafts if work.program]
    update: State = {"drafts": None}  # type: ignore[typeddict-item]
    if not written:
        return update | {"work": pick_candidate(drafts), "beside": ()}
    built = _build(written, context)
    notes = state
    for work in built:
        if work.build and work.build.skipped:
            about = f"{work.task.id} #{work.ordinal}: " if work.build.skipped in NOTHING_TO_BUILD else ""
            text = f"{about}nvcc_build skipped: {work.build.skipped}"
            notes = notes | {"notes": context.note(notes, text)}
    different, twins = _drop_twins(built)
    for work, other in twins:
        text = f"{work.task.id} #{work.ordinal}: candidate {work.candidate + 1} does the same as {other.candidate + 1}; dropped"
        context.emit("twin", text=text)
        notes = notes | {"notes": context.note(notes, text)}
    known = [_with_earlier_evidence(work, state, context) for work in different]
    chosen = pick_candidate(known)
    beside = tuple(work for work in known if work.id != chosen.id)
    return update | {"work": chosen, "beside": beside, "notes": notes.get("notes", ())}


def _build(works: list[Work], context: Context) -> list[Work]:
    """Returns the works with build results; those from the ledger keep theirs."""
    todo = [work for work in works if not work.build]
    folders = [context.program_folder(work.program) for work in todo if work.program]
    results = context.tools.build_many(folders) if len(todo) > 1 else [context.tools.build(folder) for folder in folders]
    found = dict(zip((work.id for work in todo), results, strict=True))
    return [work.model_copy(update={"build": found[work.id]}) if work.id in found else work for work in works]


def _drop_twins(works: Iterable[Work]) -> tuple[list[Work], list[tuple[Work, Work]]]:
    """Returns the works that differ from all before them, and pairs of a dropped work and the one it equals."""
    first: dict[str, Work] = {}
    different, twins = [], []
    for work in works:
        code = _code(work.build)
        if code and code in first:
            twins.append((work, first[code]))
        else:
            different.append(work)
            if code:
                first[code] = work
    return different, twins


def _with_earlier_evidence(work: Work, state: State, context: Context) -> Work:
    """Returns the work with the evidence of an earlier attempt at the task, if one from the same program does the same."""
    code = _code(work.build)
    earlier = [
        attempt for attempt in attempts_at(context.history(state), work.task)
        if code and attempt.code == code and attempt.base == state["program"] and attempt.id != work.id
    ]  # fmt: skip
    if not earlier or work.check:
        return work
    same: Attempt = earlier[-1]
    found = context.load(Evidence, same.evidence)
    tools = {tool: getattr(found, tool) for tool in ("check", "timing", "system", "kernels")}
    return work.model_copy(update=tools | {"twin": f"#{same.ordinal}"})


def _code(build: BuildResult | None) -> str:
    return build.code if build and build.ok else ""
