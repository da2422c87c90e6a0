"""Derives an attempt's tier, error text and skipped tools from its evidence.

The tier is "measured" with hardware counters, "timed" with a time on a GPU, else "simulated" or "compiled" (nothing ran). Pure
functions on records.

Where to look next: `state.py` (Evidence, Tier), `graph/routes.py` (acts on them), `nodes/verifier.py` (records them).
"""

from __future__ import annotations

from collections.abc import Iterable

from stitchcuda.state import Evidence, Tier, Work

UNREAD = "not for this engineer, which goes by times; what the session ends with is profiled"
"""Why a profile was skipped: the engineer does not read profiles. Not listed among skipped tools."""


def evidence_of(work: Work) -> Evidence:
    """Returns the tools' results for the current attempt, with their tier."""
    assert work.build is not None
    evidence = Evidence(build=work.build, check=work.check, timing=work.timing, system=work.system, kernels=work.kernels)
    return evidence.model_copy(update={"tier": tier_of(evidence)})


def tier_of(evidence: Evidence) -> Tier | None:
    """Returns how strong the evidence is; None if not even a compiler accepted the program."""
    if evidence.check is None:
        return "compiled" if evidence.build.ok and not evidence.build.skipped else None
    if evidence.check.tier in ("simulated", "compiled"):
        return evidence.check.tier
    counted = evidence.kernels is not None and not evidence.kernels.skipped
    return "measured" if counted else "timed" if evidence.timing else evidence.check.tier


def list_skipped_tools(found: Iterable[Evidence]) -> tuple[str, ...]:
    """Returns "TOOL: why" for each profiler or sanitizer that did not run, or was replaced by a lesser one; each text once."""
    reasons: list[str] = []
    for evidence in found:
        reasons += [
            f"{profile.tool}: {profile.skipped or f'{profile.source} in its place, since {profile.why}'}"
            for profile in (evidence.system, evidence.kernels)
            if profile is not None and (profile.skipped or profile.why) and profile.skipped != UNREAD
        ]
        reasons += evidence.sanitizer.skipped if evidence.sanitizer else ()
    return tuple(dict.fromkeys(reasons))


def diagnosis_of(evidence: Evidence) -> str:
    """Returns the whole error; "" if the program is correct. `first_line` shortens it for people."""
    if not evidence.build.ok and not evidence.build.skipped:
        return evidence.build.log.strip() or "the build failed without a message"
    if evidence.check and not evidence.check.ok:
        outputs = [output for output in evidence.check.outputs if not output.ok]
        wrong = [f"{output.name}: {output.note or 'outside the error bound'}" for output in outputs]
        return "\n".join([*evidence.check.reasons, *wrong]) or "the check failed without a reason"
    return ""


def first_line(text: str) -> str:
    """Returns the first line with "error" in it, else the first line; at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return chosen if len(chosen) <= 200 else chosen[:199] + "…"
