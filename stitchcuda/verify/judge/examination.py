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
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, declared_sizes, reloaded, resized
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity.screen import screen
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge_resources import TIMINGS, Ahead, JudgeResources, large
from stitchcuda.verify.processes.early_builds import EarlyBuilds
from stitchcuda.verify.processes.worker import OnBuild, Worker, WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Trial

_MEMORY = re.compile(r"ran out of memory|used more memory than it may")
_IDLE_S = 0.3                              # for which a program is not called: whether it works by itself


class LoadingProgram(NamedTuple):
    """A program that is being loaded into a new worker, with switches for its kernels."""

    worker: Worker
    trial: Trial
    loading: Future[None]

    def close(self) -> None:
        """For a seat that nobody took. Who waits for its loading sees it die, and is done before anything is closed."""
        self.worker.child.kill()
        wait([self.loading])
        self.worker.close()


class Examination:
    """Of any program of one reference, one after the other."""

    def __init__(self, room: JudgeResources) -> None:
        self._room = room

    def check(self, of: str, seeds: int, *, fresh: bool) -> CheckResult:
        """Judge the program of this path; `fresh` draws parameters and input sets that no program has seen."""
        started = time.monotonic()
        self._room.ahead.close()
        self._room.ahead = Ahead(of)
        timed_next = False
        try:
            with self._room.copy(of) as program:
                result, self._room.terms[of] = self._screened(program, seeds, fresh=fresh)
            timed_next = result.ok and fresh and self._room.hurried
        finally:
            if not timed_next:             # which waits for that itself
                self._room.ahead.close()
                self._room.errands.quiet()
        return result.model_copy(update={"seconds": time.monotonic() - started})

    def _screened(self, program: Path, seeds: int, *, fresh: bool) -> tuple[CheckResult, InputTerms]:
        findings = screen(program)
        refused = tuple(f"the source itself: {one.sentence}" for one in findings if one.severity == "refused")
        if refused:
            on_gpu = self._room.target == "cuda"
            return CheckResult(ok=False, tier="timed" if on_gpu else "simulated", reasons=refused), InputTerms()

        def checked(*, hurried: bool) -> tuple[CheckResult, InputTerms]:
            return state_mismatch.agreed(lambda terms: self._check(program, seeds, fresh=fresh, terms=terms, hurried=hurried))

        hurried = fresh and self._room.hurried
        result, terms = checked(hurried=hurried)
        if hurried and any(map(_MEMORY.search, result.reasons)):  # for what was done ahead, perhaps
            self._room.ahead.close()
            self._room.errands.quiet()
            result, terms = checked(hurried=False)
        noted = tuple(f"the source: {one.sentence}" for one in findings)
        return result.model_copy(update={"notes": (*result.notes, *noted)}), terms

    def _check(self, program: Path, seeds: int, *, fresh: bool, terms: InputTerms, hurried: bool) -> CheckResult:
        """Raises `OtherTerms` for a program that has not all of the reference's state under its names.

        `hurried`: what takes its time on a GPU is begun ahead, which takes more memory.
        """
        exam = self._room.exam(1, fresh=fresh, terms=terms)
        self._room.make_room(exam)
        early = EarlyBuilds(self._room.builder, self._room.second_builder()) if hurried else None
        build = early.build if early else self._room.builder.build
        seated: list[LoadingProgram] = []          # ahead of time
        seat = functools.partial(self._seat, program, exam, build, seated)

        def nobody_sits() -> None:
            for unused in seated:
                self._room.errands.tidy(unused.close)

        with contextlib.ExitStack() as stack:
            if fresh:
                stack.callback(self._room.errands.tidy, exam.close)
            stack.callback(self._room.errands.answered)
            stack.callback(nobody_sits)
            if early:
                stack.callback(self._room.errands.tidy, lambda: self._room.returned(early.close()))
            worker = self._room.worker(program, exam, build)
            sitter = stack.enter_context(contextlib.ExitStack())
            sitter.callback(self._room.errands.tidy, worker.close)
            # While the program is built the reference answers all other questions, of which loading needs none.
            completed = self._room.errands.ask(lambda: self._room.complete(exam, seeds))
            again = self._room.errands.ask(lambda: reloaded(self._room.ask, exam) if fresh else None)
            worker.expire_in(self._room.limits.check_s)
            one = Trial(worker, exam, self._room.construction(), self._room.target, self._room.limits)
            try:
                try:
                    one.load(program, cache=self._room.cache, arch=self._room.arch)
                finally:
                    completed.result()     # what is wrong with the reference comes first
            except WorkerFailed as failure:
                return correctness.failed(one, state_mismatch.reconsidered(self._room.ask, exam, one.state, failure, terms))
            if early and not early.failed and not large(exam):
                seated.append(self._seated(program, exam, build))
                while len(self._room.ahead) < TIMINGS:
                    self._room.ahead.add(self._room.born(program, exam))
            try:
                others = resized(self._room.ask, exam, declared_sizes(program)) if fresh else []
            except WorkerFailed as failure:
                return correctness.failed(one, failure)
            with self._room.turn(worker):
                result = correctness.sit(
                    one, exam, seeds, final=fresh, profile=self._room.target == "cuda", others=others,
                    still=lambda: wait([ahead.loading for ahead in seated]),
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
                        result = correctness.remarked(result, one, exam, seeds, reload=again.result)
                sitter.close()

            if fresh and result.ok and self._room.hurried:
                self._room.reference_work()  # is recorded before the program is left alone, when it may do what it likes
                idle = self._room.errands.begin(lambda: self._left_alone(one))
                sitter.callback(wait, [idle])  # one thread at a time asks a worker, or closes it
            if not (beside := bool(seated)):
                leave()
            self._room.make_room(exam)
            if not result.ok:
                state_mismatch.regroup(one.state, terms, one.guessed, more=any(one.spare))
            elif unread := state_mismatch.unread(seat, self._room.ask, exam, one.state, terms):
                result = correctness.failed(one, unread, outputs=result.outputs, seeds=result.seeds)
            if not (fresh and result.ok):
                return result
            work = self._room.reference_work()
            result = result.model_copy(update={"whole": int(work["work"])})
            if one.traced:
                most = len(exam.sets[0].names) + str(exam.sets[0].structure).count("'tensor':")
                alone = device_time.computed(work, one.traced, one.own, most=most)
                shares = zip(("replaced", "exchanged"), max(device_time.taken(work, one.traced, one.own), alone), strict=True)
                result = result.model_copy(update=dict(shares))
            # Whether it has kernels is not for the worker to say.
            times = device_time.own_times(one.traced, one.own)
            skipped = ablation.examine(seat, exam, seeds, work=times)
            result = own_work.judged(result, skipped, one.own_launches, times)
            if beside:
                leave()
            return result

    def _left_alone(self, one: Trial) -> str:
        with self._room.turn():
            return one.idle(_IDLE_S)

    def _seated(self, program: Path, exam: SecretInputs, build: OnBuild) -> LoadingProgram:
        """Begin to load the program into a new worker, built so that single kernels can be left out."""
        worker = self._room.worker(program, exam, build)
        one = Trial(worker, exam, self._room.construction(), self._room.target, self._room.limits)
        return LoadingProgram(worker, one, self._room.errands.begin(
            lambda: one.load(program, cache=self._room.cache, arch=self._room.arch, masked=True)
        ))  # fmt: skip

    @contextlib.contextmanager
    def _seat(self, program: Path, exam: SecretInputs, build: OnBuild, seated: list[LoadingProgram]) -> Iterator[LoadedProgram]:
        """The program in a worker of its own with switches for its kernels: that which is `seated`, or a new one."""
        worker, one, loading = seated.pop() if seated else self._seated(program, exam, build)
        with self._room.errands.lent(worker):
            worker.expire_in(self._room.limits.check_s)
            loading.result()
            with self._room.turn(worker):
                yield LoadedProgram(worker, one)
