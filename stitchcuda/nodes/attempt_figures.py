"""From a finished attempt's evidence to figures that rules and people read: tier, diagnosis.

Pure functions on records. The rules that act on them are in `graph/routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from stitchcuda.state import Evidence, Tier, Work

UNREAD = "not for this engineer, which goes by times; what the session ends with is profiled"


def evidence_of(work: Work) -> Evidence:
    """What the tools said about the attempt under way; its tier is set."""
    assert work.build is not None
    evidence = Evidence(build=work.build, check=work.check, timing=work.timing, system=work.system, kernels=work.kernels)
    return evidence.model_copy(update={"tier": tier_of(evidence)})


def tier_of(evidence: Evidence) -> Tier | None:
    """How strong the evidence is; None when not even a compiler accepted the program."""
    if evidence.check is None:
        return "compiled" if evidence.build.ok and not evidence.build.skipped else None
    if evidence.check.tier in ("simulated", "compiled"):
        return evidence.check.tier
    counted = evidence.kernels is not None and not evidence.kernels.skipped
    return "measured" if counted else "timed" if evidence.timing else evidence.check.tier


def list_skipped_tools(found: Iterable[Evidence]) -> tuple[str, ...]:
    """"TOOL: why" for each that did not look at one of these programs on a GPU, or something lesser in its place; each once."""
    said = []
    for evidence in found:
        said += [
            f"{profile.tool}: {profile.skipped or f'{profile.source} in its place, since {profile.why}'}"
            for profile in (evidence.system, evidence.kernels)
            if profile is not None and (profile.skipped or profile.why) and profile.skipped != UNREAD
        ]
        said += evidence.sanitizer.skipped if evidence.sanitizer else ()
    return tuple(dict.fromkeys(said))


def diagnosis_of(evidence: Evidence) -> str:
    """The error in full, for its fingerprint; "" when the program is correct. `first_line` makes a line for people of it."""
    if not evidence.build.ok and not evidence.build.skipped:
        return evidence.build.log.strip() or "the build failed without a message"
    if evidence.check and not evidence.check.ok:
        outputs = [output for output in evidence.check.outputs if not output.ok]
        wrong = [f"{output.name}: {output.note or 'outside the error bound'}" for output in outputs]
        return "\n".join([*evidence.check.reasons, *wrong]) or "the check failed without a reason"
    return ""


def first_line(text: str) -> str:
    """The line that says what is wrong: the first with "error" in it, else the first; at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return chosen if len(chosen) <= 200 else chosen[:199] + "…"
