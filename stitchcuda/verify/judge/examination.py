"""Judges the correctness of one program from its sources to the check that each of its kernels is needed.

Runs in the judge process. The questions, in this order: does the source contain what is forbidden, does the program build and
load, are its outputs right on secret inputs, does it read all of the state that matters, and in a final check also: does the
GPU stay idle while nobody calls it, and is each kernel needed. A final check on a GPU loads a second worker, whose kernels can
be left out, while the first one answers; when that runs out of memory the check is repeated with one worker at a time.
The result says how many seconds each question took. It compares nothing itself and times no program.
Where to look next: `verify/judge/correctness.py` (what is asked and compared), `verify/ablation/ablation.py` (is each kernel
needed), `verify/judge/judge_resources.py` (workers and secret inputs).
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
from stitchcuda.verify.inputs.secret_inputs import (
    InputTerms,
    ReferenceKilled,
    ReferenceLost,
    SecretInputs,
    draw_other_sizes,
    read_free_sizes,
    redraw_parameters,
)
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.integrity.screen import screen
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge_resources import JudgeResources, is_large
from stitchcuda.verify.processes.builder import Builder
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Trial

_MEMORY = re.compile(r"ran out of memory|used more memory than it may")
_IDLE_S = 0.3                              # for so long nobody calls the program and the GPU must stay idle


class LoadingProgram(NamedTuple):
    """A program that is being loaded into a new worker, built so that its kernels can be left out. `builder`: this worker's own
    builder, or None if it uses the shared one."""

    worker: Worker
    trial: Trial
    loading: Future[None]
    builder: Builder | None

    def close(self) -> None:
        """Kills and closes the worker, whether or not it has loaded. Call it once. A thread that waits for `loading` gets
        `WorkerFailed` first."""
        if self.builder:
            self.builder.stop()
        self.worker.child.kill()
        wait([self.loading])
        self.trial.forget()
        self.worker.close()
        if self.builder:
            self.builder.close()


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
        started = time.monotonic()
        self._question_seconds = {}
        try:
            with self._resources.program_copy(path) as program:
                result, self._resources.terms[path] = self._screen_and_check(program, seeds, fresh=fresh)
        finally:
            with self._asking("ending"):
                self._resources.background.quiet()
        taken = tuple(self._question_seconds.items())
        return result.model_copy(update={"seconds": time.monotonic() - started, "question_seconds": taken})

    def _screen_and_check(self, program: Path, seeds: int, *, fresh: bool) -> tuple[CheckResult, InputTerms]:
        with self._asking("source"):
            findings = screen(program)
        refused = tuple(f"the source itself: {finding.sentence}" for finding in findings if finding.severity == "refused")
        if refused:
            on_gpu = self._resources.target == "cuda"
            return CheckResult(ok=False, tier="timed" if on_gpu else "simulated", reasons=refused), InputTerms()

        def check(*, two: bool) -> tuple[CheckResult, InputTerms]:
            def check_once(terms: InputTerms) -> CheckResult:
                return self._check(program, seeds, fresh=fresh, terms=terms, two=two)

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

    def _check(self, program: Path, seeds: int, *, fresh: bool, terms: InputTerms, two: bool) -> CheckResult:
        """Judges a program on given terms. Raises `OtherTerms` if it lacks some of the reference's state under the same names.

        `two`: the worker whose kernels can be left out is loaded while the first one is asked, which takes more memory.
        """
        resources = self._resources
        with self._asking("inputs"):
            secret_inputs = resources.secret_inputs(1, fresh=fresh, terms=terms)
            resources.wait_for_memory(secret_inputs)
        loading: list[LoadingProgram] = []
        load = functools.partial(self._loaded, program, secret_inputs, loading)

        def close_unused() -> None:
            for unused in loading:
                resources.background.tidy(unused.close)

        with contextlib.ExitStack() as stack:
            if fresh:
                stack.callback(resources.background.tidy, functools.partial(resources.discard, secret_inputs))
            stack.callback(resources.background.answered)
            stack.callback(close_unused)
            worker = resources.worker(program, secret_inputs)
            first_worker = stack.enter_context(contextlib.ExitStack())
            first_worker.callback(resources.background.tidy, worker.close)
            # While the program is built, the reference draws the other input sets: loading needs only the first.
            completed = resources.background.ask(lambda: resources.extend_inputs(secret_inputs, seeds))
            again = resources.background.ask(lambda: redraw_parameters(resources.ask, secret_inputs) if fresh else None)
            worker.expire_in(resources.limits.check_s)
            trial = resources.trial(worker, secret_inputs)
            first_worker.callback(trial.forget)
            if two and not is_large(secret_inputs, resources.target):
                loading.append(self._start_loading(program, secret_inputs, resources.new_builder()))
            try:
                try:
                    with self._asking("load"):
                        trial.load(program)
                finally:
                    with self._asking("inputs"), worker.paused():
                        completed.result() # what is wrong with the reference comes first
            except WorkerFailed as failure:
                reason = state_mismatch.explain_missing_state(resources.ask, secret_inputs, trial.state, failure, terms)
                return correctness.failed_check(trial, reason)
            try:
                with self._asking("inputs"), worker.paused():
                    others = draw_other_sizes(resources.ask, secret_inputs, read_free_sizes(program)) if fresh else []
            except WorkerFailed as failure:
                return correctness.failed_check(trial, failure)
            with self._asking("values"), resources.turn(worker):
                result = correctness.check(
                    trial, secret_inputs, seeds, final=fresh, profile=resources.target == "cuda", others=others,
                    still=lambda: wait([other.loading for other in loading]),
                )  # fmt: skip

            idle: Future[str] | None = None  # why the program is refused for work that nobody asked for, or ""

            def finish_first_worker() -> None:
                """Asks the first worker the last questions of a final check, then closes it."""
                nonlocal result
                with self._asking("idle"):
                    reason = idle.result() if idle is not None else ""
                if reason:
                    result = result.model_copy(update={"ok": False, "reasons": (*result.reasons, reason)})
                if fresh and result.ok:
                    worker.expire_in(resources.limits.check_s)
                    with self._asking("remarks"), resources.turn(worker):
                        result = correctness.add_remarks(result, trial, secret_inputs, seeds, reload=again.result)
                first_worker.close()

            if fresh and result.ok and resources.watches_idle:
                with self._asking("reference's work"):  # before a program that nobody calls could disturb the measurement
                    resources.reference_work()
                idle = resources.background.begin(lambda: self._work_while_idle(trial))
                first_worker.callback(wait, [idle])  # only one thread at a time may ask or close a worker
            if not (two_workers := bool(loading)):
                finish_first_worker()
            resources.wait_for_memory(secret_inputs)
            with self._asking("state"):
                if not result.ok:
                    state_mismatch.regroup_guessed(trial.state, terms, trial.guessed, more=any(trial.spare))
                elif unread := state_mismatch.find_unread_state(load, resources.ask, secret_inputs, trial.state, terms):
                    result = correctness.failed_check(trial, unread, outputs=result.outputs, seeds=result.seeds)
            if not (fresh and result.ok):
                return result
            with self._asking("reference's work"):
                work = resources.reference_work()
            result = result.model_copy(update={"whole": work.work})
            times: dict[str, int] = {}
            if trial.traced is not None:
                times = device_time.own_times(trial.traced, trial.own)
                most = len(secret_inputs.sets[0].names) + str(secret_inputs.sets[0].structure).count("'tensor':")
                alone = device_time.share_without_copies(work.rows, trial.traced, trial.own, most=most)
                taken = max(device_time.share_taken_over(work.rows, trial.traced.rows, trial.own), alone)
                shares = zip(("replaced", "exchanged"), taken, strict=True)
                result = result.model_copy(update=dict(shares))
            # Done even if the worker reports no kernels: it need not be believed.
            with self._asking("kernels"):
                skipped = ablation.leave_out_kernels(load, secret_inputs, seeds, work=times)
            result = own_work.apply_ablation(result, skipped, trial.own_launches, times)
            if two_workers:
                finish_first_worker()
            return result

    def _work_while_idle(self, trial: Trial) -> str:
        with self._resources.turn():
            return trial.idle(_IDLE_S)

    def _start_loading(self, program: Path, secret_inputs: SecretInputs, builder: Builder | None = None) -> LoadingProgram:
        """Starts to load the program into a new worker, built so that single kernels can be left out. `builder`: a builder for
        this worker alone, needed if another worker is building at the same time."""
        worker = self._resources.worker(program, secret_inputs, builder.build if builder else None)
        trial = self._resources.trial(worker, secret_inputs)
        loading = self._resources.background.begin(lambda: trial.load(program, masked=True))
        return LoadingProgram(worker, trial, loading, builder)

    @contextlib.contextmanager
    def _loaded(self, program: Path, secret_inputs: SecretInputs, loading: list[LoadingProgram]) -> Iterator[LoadedProgram]:
        """Waits for a program whose kernels can be left out: the one in `loading`, else a new one. Closed afterwards."""
        taken = loading.pop() if loading else self._start_loading(program, secret_inputs)
        try:
            taken.worker.expire_in(self._resources.limits.check_s)
            taken.loading.result()
            with self._resources.turn(taken.worker):
                yield LoadedProgram(taken.worker, taken.trial)
        finally:
            self._resources.background.tidy(taken.close)
