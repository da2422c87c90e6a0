"""Judges programs: looks at a program's source, has it checked, and once more where memory or the reference's process failed.

Runs in the judge process. A final check on a GPU uses two workers of a program at once; when that runs out of memory, it is
repeated with one at a time. When the reference's process ends, a check is made once more with a new one. The result says how
many seconds each question took.
Where to look next: `verify/judge/program_check.py` (the questions), `verify/judge/judge_resources.py` (workers and secret
inputs).
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.state import CheckResult
from stitchcuda.verify.ablation import state_mismatch
from stitchcuda.verify.inputs.secret_inputs import InputTerms, ReferenceKilled, ReferenceLost
from stitchcuda.verify.integrity.screen import screen
from stitchcuda.verify.judge.judge_resources import JudgeResources
from stitchcuda.verify.judge.program_check import ProgramCheck

_MEMORY = re.compile(r"ran out of memory|used more memory than it may")


class Examination:
    """Judges programs of one reference, one after the other."""

    def __init__(self, resources: JudgeResources) -> None:
        self._resources = resources
        self._question_seconds: dict[str, float] = {}  # of the check that runs

    @contextlib.contextmanager
    def _asking(self, question: str) -> Iterator[None]:
        """Adds the time of the block to the question's seconds."""
        started = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - started
            self._question_seconds[question] = self._question_seconds.get(question, 0.0) + took

    def check(self, path: str, seeds: int, *, fresh: bool) -> CheckResult:
        """Judges the program at `path` (a folder or a file) on `seeds` input sets. `fresh`: a final check, on parameters and
        inputs that no program has seen. Raises `BadInput` if the reference cannot be used."""
        started, to_be_timed = time.monotonic(), False
        self._question_seconds = {}
        try:
            with self._resources.program_copy(path) as program:
                result, self._resources.terms[path] = self._screen_and_check(path, program, seeds, fresh=fresh)
            to_be_timed = fresh and result.ok and self._resources.target == "cuda"
        finally:
            with self._asking("ending"):
                if not to_be_timed:        # a timing waits for it too, when it has loaded its workers
                    self._resources.close_waiting()
                    self._resources.background.quiet()
        taken = tuple(self._question_seconds.items())
        return result.model_copy(update={"seconds": time.monotonic() - started, "question_seconds": taken})

    def _screen_and_check(self, path: str, program: Path, seeds: int, *, fresh: bool) -> tuple[CheckResult, InputTerms]:
        with self._asking("source"):
            findings = screen(program)
        refused = tuple(f"the source itself: {finding.sentence}" for finding in findings if finding.severity == "refused")
        if refused:
            on_gpu = self._resources.target == "cuda"
            return CheckResult(ok=False, tier="timed" if on_gpu else "simulated", reasons=refused), InputTerms()

        def check(*, two: bool) -> tuple[CheckResult, InputTerms]:
            def check_once(terms: InputTerms) -> CheckResult:
                asked = ProgramCheck(self._resources, self._asking, program, seeds, terms, fresh=fresh, two=two)
                return asked.run(functools.partial(self._resources.start_for_timing, path))

            try:
                return state_mismatch.judge_on_terms(check_once)
            except (ReferenceLost, ReferenceKilled) as lost:
                if isinstance(lost, ReferenceLost) and lost.late:
                    raise                  # the next one would take as long
                # It held the program's answers: the next one starts anew.
                self._resources.background.quiet()
                return state_mismatch.judge_on_terms(check_once)

        two = fresh and self._resources.two_at_once
        result, terms = check(two=two)
        if two and any(map(_MEMORY.search, result.reasons)):     # there may be enough for one worker
            self._resources.background.quiet()
            result, terms = check(two=False)
        noted = tuple(f"the source: {finding.sentence}" for finding in findings)
        return result.model_copy(update={"notes": (*result.notes, *noted)}), terms
