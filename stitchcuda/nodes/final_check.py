"""Verifies a session's best program again on fresh secret seeds: at the end, and after a move to another device.

If it fails, the program kept before it is verified instead, down to the program without own kernels; each failure is noted. A
program fails if it does not build, is wrong, has memory errors, its timing is refused, its speed-up is below SLOWER, or the
session's policy refuses it, which is asked again once it is timed. The ledger is not changed.

Where to look next: `verify/judge/judge.py` (the checks), `verify/policy.py` (policies), `nodes/report.py` and
`nodes/baseline.py` (call this).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stitchcuda.nodes.attempt_figures import tier_of
from stitchcuda.state import Attempt, Digest, Evidence, State
from stitchcuda.verify.policy import apply_policy

if TYPE_CHECKING:
    from stitchcuda.nodes.context import Context

GIVEN_UP = " is given up: "                # in a note, before the reason
SLOWER = 0.98
"""Least speed-up over eager of a final program: timings differ by up to 2 % from run to run."""


def verify_best(state: State, context: Context, *, seeds: int) -> State:
    """Returns an update of program, best, kept tasks, final evidence and notes for the newest kept program that still holds. If
    none holds, that is the program without own kernels. Programs are timed against the one that a chat model started from, else
    against the program without own kernels."""
    first = state["first"]
    kept = [attempt for attempt in context.history(state) if attempt.kept]
    previous = starting_program(kept) or first
    notes = state.get("notes", ())
    for position in range(len(kept) - 1, -1, -1):
        attempt = kept[position]
        evidence = _gather(context, attempt.program, previous, seeds)
        refusal = _refusal(evidence)
        if not refusal:
            tasks = tuple(dict.fromkeys(earlier.task for earlier in kept[: position + 1]))
            speedup = evidence.timing.speedup if evidence.timing else None
            program_ms = evidence.timing.program_ms if evidence.timing else attempt.program_ms
            best = attempt.model_copy(update={"speedup": speedup, "program_ms": program_ms, "tier": evidence.tier})
            return {"program": attempt.program, "best": best, "tasks_kept": tasks, "final": evidence, "notes": notes}
        notes = context.note({"notes": notes}, f"the program of attempt {attempt.id} ({attempt.task}){GIVEN_UP}{refusal}")
    return {"program": first, "best": None, "tasks_kept": (), "final": None, "notes": notes}


def starting_program(kept: Sequence[Attempt]) -> Digest | None:
    """Returns the built-in engineer's last kept program before the chat model's first kept one; None if there are not both."""
    writers = [attempt.engineer == "builtin" for attempt in kept]
    return kept[writers.index(False) - 1].program if True in writers and False in writers else None


def _gather(context: Context, program: Digest, previous: Digest, seeds: int) -> Evidence:
    folder = context.program_folder(program)
    build = context.tools.build(folder)
    check = timing = None
    if build.ok or build.skipped:
        check = found = context.tools.verify(folder, seeds)
        check = apply_policy(folder, context.settings.policy, found)
        if check.ok and (timing := context.tools.time(folder, context.program_folder(previous), twice=True)):
            check = apply_policy(folder, context.settings.policy, found, timing)
    evidence = Evidence(build=build, check=check, timing=timing)
    if timing and check and check.ok and not timing.refused:  # a winner on a GPU
        asked = context.settings.sanitize
        context.emit("step", text=f"looking where its time goes{', and for memory errors' if asked else ''}")
        system, whole = context.tools.profile_system(folder)
        evidence = evidence.model_copy(update={
            "system": context.store_profile(system, whole),
            "kernels": context.store_profile(*context.tools.profile_kernels(folder, whole)),
            "sanitizer": context.tools.sanitize(folder) if asked else None,
        })  # fmt: skip
    return evidence.model_copy(update={"tier": tier_of(evidence)})


def _refusal(evidence: Evidence) -> str:
    """Returns why the program does not hold; "" if it does."""
    if not evidence.check:
        return f"it no longer builds: {evidence.build.log.strip()[:200]}"
    if not evidence.check.ok:
        return "; ".join(evidence.check.reasons) or "it is no longer correct"
    if evidence.sanitizer and evidence.sanitizer.errors:
        return "; ".join(evidence.sanitizer.errors)
    if evidence.timing and evidence.timing.refused:
        return "; ".join(evidence.timing.refused)
    if evidence.timing and evidence.timing.speedup < SLOWER:
        return f"it is slower than eager ({evidence.timing.speedup:.2f}x)"
    return ""
