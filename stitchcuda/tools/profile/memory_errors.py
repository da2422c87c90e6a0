"""Runs compute-sanitizer on the program that a session will hand over, and decides which findings are errors.

Findings of memcheck and synccheck in the program's kernels are errors: such a program is not handed over, even if its outputs
are right. Races, reads of unwritten memory (flags, padding) and failing calls of CUDA's API may be intended: warnings.
Where to look next: `tools/profile/profiling.py`, `tools/profile/sanitizer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stitchcuda.state import SanitizerResult
from stitchcuda.tools.profile import profiling
from stitchcuda.tools.profile.runner import Runner

_ERRORS = ("memcheck", "synccheck")


def sanitize(program: Path, judge: Runner) -> SanitizerResult:
    """Returns the findings of all tools in one call of the program; `skipped` gives the reason of each that could not run.

    `clean` is None if nothing was found, but no tool ran or one did not finish, as `notes` say.
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
    """Returns "TOOLS: note" for each different note, by tool."""
    different = dict.fromkeys(notes.values())
    return tuple(f"{', '.join(tool for tool, text in notes.items() if text == note)}: {note}" for note in different)
