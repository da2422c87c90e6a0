"""What a coder may look at before it writes: the compiler's word on its files, profiles, documentation.

Each answer is a text of its own, in the same words on every machine; what the tools find is never a verdict and is not recorded
with the attempt. The engineer bounds how often it looks.
"""

from __future__ import annotations

from stitchcuda.engineers import Files
from stitchcuda.engineers.diagnosis import describe_build
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import search_for_coder
from stitchcuda.state import Attempt, Evidence, ProfileResult, State


class ProgramLook:
    """Implements `engineers.Look` for one task: the program as it stands and the last attempt at the task."""

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
        lines = [f"{what}, by {found.source}: {line}" for what, found in shown if found for line in _about(found, kernel)]
        return "\n".join(lines) or f"No profile names {kernel!r}."

    def docs(self, query: str) -> str:
        return search_for_coder(query, self._context.settings.model)


def _about(found: ProfileResult, kernel: str) -> list[str]:
    if found.skipped:
        return [f"not looked at: {found.skipped}"]
    lines = [found.bottleneck, *found.lines]
    return [line for line in lines if not kernel or kernel.lower() in line.lower()]
