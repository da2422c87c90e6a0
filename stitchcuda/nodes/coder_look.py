"""Answers a coder's looks before it writes: compiles its files, shows profiles, searches documentation.

Results are text only: they are no verdict and do not become part of the attempt's evidence. How often a coder may look is
limited in `engineers/prompt.py` (LOOKS).

Where to look next: `engineers/chat_engineer.py` (carries out looks), `nodes/documentation.py` (searches).
"""

from __future__ import annotations

from stitchcuda.engineers import Files
from stitchcuda.engineers.diagnosis import describe_build
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import search_for_coder
from stitchcuda.state import Attempt, Evidence, ProfileResult, State


class ProgramLook:
    """Implements `engineers.Look` for one task, with profiles of the best program and of the last attempt at the task."""

    def __init__(self, context: Context, state: State, last: Attempt | None) -> None:
        self._context, self._state, self._last = context, state, last

    def compile(self, files: Files) -> str:
        found = self._context.tools.compile(self._context.program_folder(self._context.save_program(files)))
        return describe_build(found)

    def profile(self, kernel: str) -> str:
        shown = [("the program now", self._state.get("system")), ("the program now", self._state.get("counters"))]
        if self._last is not None:
            evidence = self._context.load(Evidence, self._last.evidence)
            shown += [("your last draft", evidence.system), ("your last draft", evidence.kernels)]
        lines = [f"{what}, by {found.source}: {line}" for what, found in shown if found for line in _lines_about(found, kernel)]
        return "\n".join(lines) or f"No profile names {kernel!r}."

    def docs(self, query: str) -> str:
        return search_for_coder(query, self._context.settings.model)


def _lines_about(found: ProfileResult, kernel: str) -> list[str]:
    if found.skipped:
        return [f"not looked at: {found.skipped}"]
    lines = [found.bottleneck, *found.lines]
    return [line for line in lines if not kernel or kernel.lower() in line.lower()]
