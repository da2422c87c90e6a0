"""Answers a coder's looks before it writes: compiles, checks or times its files, shows profiles, searches documentation.

Results are text only: they are no verdict, no attempt, and no part of the attempt's evidence. How often a coder may look is
limited in `engineers/prompt.py` (LOOKS, LOOK_LIMITS).

Where to look next: `engineers/chat_engineer.py` (carries out looks), `nodes/local_tools.py` (the tools),
`nodes/documentation.py` (searches).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stitchcuda.counts import counted
from stitchcuda.engineers import Files, Looked
from stitchcuda.engineers.diagnosis import describe_build, describe_check, describe_strictness, describe_timing
from stitchcuda.engineers.present_text import steps_text
from stitchcuda.nodes.context import Context
from stitchcuda.nodes.documentation import search_for_coder
from stitchcuda.state import Attempt, CheckResult, Evidence, ProfileResult, State


class ProgramLook:
    """Implements `engineers.Look` for one task, with profiles of the best program and of the last attempt at the task."""

    def __init__(self, context: Context, state: State, last: Attempt | None) -> None:
        self._context, self._state, self._last = context, state, last
        self.gpu_s = 0.0
        profiled = any(not found.skipped for _, found in self._profiles())
        self.tools: tuple[str, ...] = ("compile", "check", "bench", *(["profile"] if profiled else []), "docs")

    def compile(self, files: Files) -> Looked:
        built = self._context.tools.compile(self._folder(files))
        return Looked(built.ok, describe_build(built))

    def check(self, files: Files) -> Looked:
        folder = self._folder(files)
        found = self._judge(folder)
        if isinstance(found, str):
            return Looked(False, found)
        agent = self._context.engineers.agent is not None  # it was told once what is never looked for
        built = f"{describe_build(self._context.tools.build(folder))}\n" if agent else ""
        strictness = describe_strictness(self._context.settings, found)
        return Looked(found.ok, f"{built}{describe_check(found, limits=not agent)}{strictness}")

    def bench(self, kernel: str, files: Files) -> Looked:
        folder = self._folder(files)
        found = self._judge(folder)
        if isinstance(found, str) or not found.ok:
            return Looked(False, f"Not timed.\n{found if isinstance(found, str) else describe_check(found)}")
        if self._context.settings.target != "cuda":
            whole = "" if not kernel else " The simulator counts the whole call, not one kernel."
            others = sum(step.times for step in found.steps if step.who != "own")
            text = (
                f"One call: own kernels move {found.own_bytes:,} bytes in {counted(found.launches, 'launch')}, torch and "
                f"libraries {found.elsewhere:,} bytes in {counted(others, 'operator')}. Nothing is timed on the "
                f"simulator.{whole}\n{steps_text(found.steps, None)}"
            )
            return Looked(True, text.strip())
        if kernel:
            with self._on_device():
                profile, _ = self._context.tools.profile_system(folder)
            lines = _lines_about(profile, kernel)
            return Looked(bool(lines), "\n".join(lines) or f"No line of the profile names {kernel!r}.")
        before = self._state["program"]
        assert before is not None
        with self._on_device():
            timing = self._context.tools.time(folder, self._context.program_folder(before))
        if timing is None:
            return Looked(False, "Nothing was timed.")
        return Looked(False, "\n".join(timing.refused)) if timing.refused else Looked(True, describe_timing(timing))

    def profile(self, kernel: str) -> str:
        profiles = self._profiles()
        lines = [f"{what}, by {found.source}: {line}" for what, found in profiles for line in _lines_about(found, kernel)]
        return "\n".join(lines) or f"No profile names {kernel!r}."

    def docs(self, query: str) -> Looked:
        baseline, settings = self._state["baseline"], self._context.settings
        return search_for_coder(query, settings.model, settings.target, baseline.device.arch if baseline else "")

    def _folder(self, files: Files) -> Path:
        return self._context.program_folder(self._context.save_program(files))

    def _judge(self, folder: Path) -> CheckResult | str:
        """Returns the judge's result on the drafts' questions; the compiler's errors where the program does not build."""
        built = self._context.tools.compile(folder)
        if not built.ok:
            return describe_build(built)
        with self._on_device():
            return self._context.tools.check(folder, self._context.settings.seeds)

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Lets one look at a time ask the judge or a profiler, which answer one thread while candidates look side by side, and
        counts its seconds on a GPU; what it waits for its turn is not counted."""
        with self._context.looking:
            started = time.monotonic()
            try:
                yield
            finally:
                self.gpu_s += time.monotonic() - started if self._context.settings.target == "cuda" else 0.0

    def _profiles(self) -> list[tuple[str, ProfileResult]]:
        shown = [("the program now", self._state.get("system")), ("the program now", self._state.get("counters"))]
        if self._last is not None:
            evidence = self._context.load(Evidence, self._last.evidence)
            shown += [("your last draft", evidence.system), ("your last draft", evidence.kernels)]
        return [(what, found) for what, found in shown if found]


def _lines_about(found: ProfileResult, kernel: str) -> list[str]:
    if found.skipped:
        return [f"not looked at: {found.skipped}"]
    lines = [found.bottleneck, *found.lines]
    return [line for line in lines if not kernel or kernel.lower() in line.lower()]
