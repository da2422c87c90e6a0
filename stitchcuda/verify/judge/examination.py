"""Judges one program's correctness from beginning to end: sources, exam, kernels left out, what it does while nobody calls.

Of the judge's process. Where to look next: `verify/judge/correctness.py` (what is asked and compared),
`verify/ablation/ablation.py`, `verify/judge/judge_resources.py` (with what).
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import NamedTuple

from stitchcuda.state import CheckResult
from stitchcuda.verify.ablation import ablation, own_work, state_mismatch
from stitchcuda.verify.inputs.input_terms import InputTerms
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, draw_other_sizes, read_free_sizes, redraw_parameters
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity.screen import screen
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge_resources import JudgeResources, large
from stitchcuda.verify.processes.builder import Builder
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Trial

_MEMORY = re.compile(r"ran out of memory|used more memory than it may")
_IDLE_S = 0.3                              # for which a program is not called: whether it works by itself


class LoadingProgram(NamedTuple):
    """A program that is being loaded into a new worker, with switches for its kernels, and that worker's own builder if any."""

    worker: Worker
    trial: Trial
    loading: Future[None]
    builder: Builder | None

    def close(self) -> None:
        """From any state, once. Who waits for its loading sees it die, and is done before anything is closed."""
        if self.builder:
            self.builder.stop()
        self.worker.child.kill()
        wait([self.loading])
        self.worker.close()
        if self.builder:
            self.builder.close()


class Examination:
    """Of any program of one reference, one after the other."""

    def __init__(self, room: JudgeResources) -> None:
        self._room = room

    def check(self, path: str, seeds: int, *, fresh: bool) -> CheckResult:
        """Judge the program of this path; `fresh` draws parameters and input sets that no program has seen."""
        started = time.monotonic()
        try:
            with self._room.copy(path) as program:
                result, self._room.terms[path] = self._screened(program, seeds, fresh=fresh)
        finally:
            self._room.errands.quiet()
        return result.model_copy(update={"seconds": time.monotonic() - started})

    def _screened(self, program: Path, seeds: int, *, fresh: bool) -> tuple[CheckResult, InputTerms]:
        findings = screen(program)
        refused = tuple(f"the source itself: {finding.sentence}" for finding in findings if finding.severity == "refused")
        if refused:
            on_gpu = self._room.target == "cuda"
            return CheckResult(ok=False, tier="timed" if on_gpu else "simulated", reasons=refused), InputTerms()

        def checked(*, two: bool) -> tuple[CheckResult, InputTerms]:
            return state_mismatch.agreed(lambda terms: self._check(program, seeds, fresh=fresh, terms=terms, two=two))

        two = fresh and self._room.two_at_once
        result, terms = checked(two=two)
        if two and any(map(_MEMORY.search, result.reasons)):     # one worker may have enough
            self._room.errands.quiet()
            result, terms = checked(two=False)
        noted = tuple(f"the source: {finding.sentence}" for finding in findings)
        return result.model_copy(update={"notes": (*result.notes, *noted)}), terms

    def _check(self, program: Path, seeds: int, *, fresh: bool, terms: InputTerms, two: bool) -> CheckResult:
        """Raises `OtherTerms` for a program that has not all of the reference's state under its names.

        `two`: the worker with switches is built and loaded beside the first one, which takes more memory.
        """
        exam = self._room.exam(1, fresh=fresh, terms=terms)
        self._room.make_room(exam)
        seated: list[LoadingProgram] = []
        seat = functools.partial(self._seat, program, exam, seated)

        def nobody_sits() -> None:
            for unused in seated:
                self._room.errands.tidy(unused.close)

        with contextlib.ExitStack() as stack:
            if fresh:
                stack.callback(self._room.errands.tidy, exam.close)
            stack.callback(self._room.errands.answered)
            stack.callback(nobody_sits)
            worker = self._room.worker(program, exam)
            sitter = stack.enter_context(contextlib.ExitStack())
            sitter.callback(self._room.errands.tidy, worker.close)
            # While the program is built the reference answers all other questions, of which loading needs none.
            completed = self._room.errands.ask(lambda: self._room.complete(exam, seeds))
            again = self._room.errands.ask(lambda: redraw_parameters(self._room.ask, exam) if fresh else None)
            worker.expire_in(self._room.limits.check_s)
            trial = Trial(worker, exam, self._room.construction(), self._room.target, self._room.limits)
            if two and not large(exam):
                seated.append(self._seated(program, exam, self._room.new_builder()))
            try:
                try:
                    trial.load(program, cache=self._room.cache, arch=self._room.arch)
                finally:
                    completed.result()     # what is wrong with the reference comes first
            except WorkerFailed as failure:
                return correctness.failed(trial, state_mismatch.reconsidered(self._room.ask, exam, trial.state, failure, terms))
            try:
                others = draw_other_sizes(self._room.ask, exam, read_free_sizes(program)) if fresh else []
            except WorkerFailed as failure:
                return correctness.failed(trial, failure)
            with self._room.turn(worker):
                result = correctness.sit(
                    trial, exam, seeds, final=fresh, profile=self._room.target == "cuda", others=others,
                    still=lambda: wait([other.loading for other in seated]),
                )  # fmt: skip

            idle: Future[str] | None = None

            def leave() -> None:
                """The last questions of a last verification, beside which nobody else asks this worker."""
                nonlocal result
                if idle is not None and (reason := idle.result()):
                    result = result.model_copy(update={"ok": False, "reasons": (*result.reasons, reason)})
                if fresh and result.ok:
                    worker.expire_in(self._room.limits.check_s)
                    with self._room.turn(worker):
                        result = correctness.remarked(result, trial, exam, seeds, reload=again.result)
                sitter.close()

            if fresh and result.ok and self._room.watches_idle:
                self._room.reference_work()  # is recorded before the program is left alone, when it may do what it likes
                idle = self._room.errands.begin(lambda: self._left_alone(trial))
                sitter.callback(wait, [idle])  # one thread at a time asks a worker, or closes it
            if not (beside := bool(seated)):
                leave()
            self._room.make_room(exam)
            if not result.ok:
                state_mismatch.regroup(trial.state, terms, trial.guessed, more=any(trial.spare))
            elif unread := state_mismatch.unread(seat, self._room.ask, exam, trial.state, terms):
                result = correctness.failed(trial, unread, outputs=result.outputs, seeds=result.seeds)
            if not (fresh and result.ok):
                return result
            work = self._room.reference_work()
            result = result.model_copy(update={"whole": int(work["work"])})
            if trial.traced:
                most = len(exam.sets[0].names) + str(exam.sets[0].structure).count("'tensor':")
                alone = device_time.share_without_copies(work, trial.traced, trial.own, most=most)
                taken = max(device_time.share_taken_over(work, trial.traced, trial.own), alone)
                shares = zip(("replaced", "exchanged"), taken, strict=True)
                result = result.model_copy(update=dict(shares))
            # Whether it has kernels is not for the worker to say.
            times = device_time.own_times(trial.traced, trial.own)
            skipped = ablation.examine(seat, exam, seeds, work=times)
            result = own_work.judged(result, skipped, trial.own_launches, times)
            if beside:
                leave()
            return result

    def _left_alone(self, trial: Trial) -> str:
        with self._room.turn():
            return trial.idle(_IDLE_S)

    def _seated(self, program: Path, exam: SecretInputs, builder: Builder | None = None) -> LoadingProgram:
        """Begin to load the program into a new worker, built so that single kernels can be left out. `builder`: a new one, for
        a worker that is loaded beside another."""
        worker = self._room.worker(program, exam, builder.build if builder else None)
        trial = Trial(worker, exam, self._room.construction(), self._room.target, self._room.limits)
        loading = self._room.errands.begin(
            lambda: trial.load(program, cache=self._room.cache, arch=self._room.arch, masked=True)
        )
        return LoadingProgram(worker, trial, loading, builder)

    @contextlib.contextmanager
    def _seat(self, program: Path, exam: SecretInputs, seated: list[LoadingProgram]) -> Iterator[LoadedProgram]:
        """The program in a worker of its own with switches for its kernels: that which is `seated`, or a new one."""
        taken = seated.pop() if seated else self._seated(program, exam)
        try:
            taken.worker.expire_in(self._room.limits.check_s)
            taken.loading.result()
            with self._room.turn(taken.worker):
                yield LoadedProgram(taken.worker, taken.trial)
        finally:
            self._room.errands.tidy(taken.close)
