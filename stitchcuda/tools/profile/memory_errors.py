"""Runs compute-sanitizer on a program that a session will hand over, and decides which findings are errors.

Memory and barriers used wrongly in its kernels are errors: such a program is not handed out, right as its answers may be.
Races and reads of what nothing wrote can be meant (flags, padding), and calls of CUDA's API that fail are handled by somebody:
these are warnings. Where to look next: `tools/profile/profiling.py`, `tools/profile/sanitizer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stitchcuda.state import SanitizerResult
from stitchcuda.tools.profile import profiling
from stitchcuda.tools.profile.runner import Runner

_ERRORS = ("memcheck", "synccheck")


def sanitize(program: Path, judge: Runner) -> SanitizerResult:
    """Findings of all tools in one call; `skipped` names each that could not run, with the reason.

    `clean` is None where nothing was found, but no tool ran, or one that did came to no good end: `notes` say so.
    """
    found = profiling.sanitized(judge, program)
    ran = [result for result in found if not result.skipped]
    findings = [finding for result in ran for finding in result.findings if finding.severity != "info"]
    errors = [finding for finding in findings if finding.tool in _ERRORS and finding.kernel]
    return SanitizerResult(
        clean=False if findings else True if ran and all(result.clean for result in ran) else None,
        tools=tuple(result.tool for result in ran),
        errors=tuple(map(str, errors)),
        warnings=tuple(str(finding) for finding in findings if finding not in errors),
        notes=_shared({result.tool: result.note for result in ran if result.note}),
        skipped=tuple(f"{result.tool}: {result.skipped}" for result in found if result.skipped),
    )


def _shared(notes: Mapping[str, str]) -> tuple[str, ...]:
    """"TOOLS: note", each note once."""
    said = dict.fromkeys(notes.values())
    return tuple(f"{', '.join(tool for tool, text in notes.items() if text == note)}: {note}" for note in said)
