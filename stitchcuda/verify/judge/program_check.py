"""One check of one program: asks it all questions, in the order in which they stand in `ProgramCheck._ask_all`.

Runs in the judge process. A final check on a GPU loads a second worker, whose kernels can be left out, while the first one
answers. A program that fails is a `CheckResult`. It compares nothing itself and times no program.
Where to look next: `verify/judge/correctness.py` (what is asked and compared), `verify/ablation/ablation.py` (is each kernel
needed), `verify/ablation/state_mismatch.py` (does it read all of the state).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from stitchcuda.state import CheckResult
from stitchcuda.verify.ablation import ablation, own_work, state_mismatch
from stitchcuda.verify.inputs.other_parameters import redraw_all
from stitchcuda.verify.inputs.reference_requests import FindUnmet, InputSet, WatchConditions
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs, draw_other_sizes, draw_rare, read_free_sizes
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.judge import caught_failures, correctness
from stitchcuda.verify.judge.judge_resources import JudgeResources
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.processes.builder import Builder
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.trial import LoadedProgram, Trial

_MOST_UNMET = 4                            # conditions that a note names
_IDLE_S = 0.3                              # for so long nobody calls the program and the GPU must stay idle

_Answer = TypeVar("_Answer")

Asking = Callable[[str], AbstractContextManager[None]]
"""Adds the time of its block to the seconds of the question of this name."""


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


class ProgramCheck:
    """One check of a copy of a program, on given terms. Call `run` once.

    `fresh`: a final check, on parameters and inputs that no program has seen. `two`: the worker whose kernels can be left out
    is loaded while the first one is asked, which takes more memory.
    """

    def __init__(
        self, resources: JudgeResources, asking: Asking, program: Path, seeds: int, terms: InputTerms, *, fresh: bool, two: bool
    ) -> None:
        self._resources, self._asking = resources, asking
        self._program, self._seeds, self._terms, self._fresh = program, seeds, terms, fresh
        with asking("inputs"):
            if fresh:
                resources.ask(WatchConditions())
            self._secret_inputs = resources.secret_inputs(1, fresh=fresh, terms=terms)
            resources.wait_for_memory(self._secret_inputs)
        self._two = two and not resources.is_large(self._secret_inputs)
        self._ahead: list[LoadingProgram] = []  # workers whose kernels can be left out, started before they are needed
        self._worker: Worker               # these two from the begin of `run`
        self._trial: Trial

    def run(self, start_for_timing: Callable[[SecretInputs], None]) -> CheckResult:
        """Asks all questions, and adds which failures of its kernels the program caught. Raises as `_ask_all` does.
        `start_for_timing` is called in a final check when the outputs are right."""
        result = self._ask_all(start_for_timing)
        caught = caught_failures.describe(self._program, self._trial.builds, self._trial.caught)
        reasons = result.reasons if result.ok else (*result.reasons, *caught)
        found = {"caught": caught, "not_simulated": caught_failures.of_simulator(caught), "reasons": reasons}
        return result.model_copy(update=found)

    def _ask_all(self, start_for_timing: Callable[[SecretInputs], None]) -> CheckResult:
        """Asks all questions. Raises `OtherTerms` if the program lacks some of the reference's state under the same names, and
        `BadInput` if the reference cannot be used."""
        background = self._resources.background
        with contextlib.ExitStack() as stack:
            if self._fresh:
                stack.callback(background.tidy, functools.partial(self._resources.discard, self._secret_inputs))
            stack.callback(background.answered)
            stack.callback(self._close_unused)
            self._worker = self._resources.worker(self._program, self._secret_inputs)
            self._trial = self._resources.trial(self._worker, self._secret_inputs)
            first_worker = stack.enter_context(contextlib.ExitStack())
            first_worker.callback(background.tidy, self._worker.close)
            first_worker.callback(self._trial.forget)
            if refused := self._load():
                return refused
            result = self._ask_for_values()
            if self._fresh and result.ok:
                start_for_timing(self._secret_inputs)
            if self._fresh and result.ok and self._resources.watches_idle:
                result = self._ask_to_be_idle(result)
            note = ""
            if self._fresh and result.ok:
                result, note = self._add_remarks(result)
            first_worker.close()
            self._resources.wait_for_memory(self._secret_inputs)
            most = 1 if self._resources.is_large(self._secret_inputs) else None
            for other in self._again.result()[:most] if note else ():
                if result.ok:
                    result = self._ask_anew(result, other, note)
            if self._fresh and result.ok:  # later calls leave kernels out
                result = self._add_unmet(result)
            if result.ok:
                result = self._ask_for_state(result)
            if self._fresh and result.ok:
                result = self._ask_for_kernels(self._measure_shares(result))
            return result

    def _load(self) -> CheckResult | None:
        """Builds and loads the program; returns the result if that fails. Meanwhile the reference draws the other input sets:
        loading needs only the first."""
        resources, worker, secret_inputs = self._resources, self._worker, self._secret_inputs
        completed = resources.background.ask(lambda: resources.extend_inputs(secret_inputs, self._seeds))
        self._again = resources.background.ask(
            lambda: redraw_all(resources.ask, secret_inputs, resources.clock) if self._fresh and self._trial.state else []
        )
        if resources.is_large(secret_inputs):  # the reference runs before the program takes memory
            with self._asking("inputs"):
                wait([completed])
                wait([self._again])
            if self._fresh and not completed.exception():
                with self._asking("reference's work"):
                    resources.reference_work()
        worker.expire_in(resources.limits.check_s)
        if self._two:
            self._ahead.append(start_loading(resources, self._program, secret_inputs, resources.new_builder()))
        try:
            try:
                with self._asking("build and load"):
                    self._trial.load(self._program)
            finally:
                with self._asking("inputs"), worker.paused():
                    completed.result()     # what is wrong with the reference comes first
        except WorkerFailed as failure:
            reason = state_mismatch.explain_missing_state(resources.ask, secret_inputs, self._trial.state, failure, self._terms)
            return correctness.failed_check(self._trial, reason)
        return None

    def _ask_for_values(self) -> CheckResult:
        """Are its outputs right? Raises `OtherTerms` where they are not and it got some of its state by shape alone."""
        others: Iterable[InputSet] = ()
        try:
            if self._fresh:
                terms = self._ask_reference, self._secret_inputs
                rare = draw_rare(*terms, self._resources.clock)
                others = itertools.chain(rare, draw_other_sizes(*terms, read_free_sizes(self._program)))
        except WorkerFailed as failure:
            return correctness.failed_check(self._trial, failure)
        with self._asking("values"):
            result = correctness.check(self._trial, self._secret_inputs, self._seeds, final=self._fresh, others=others)
        if result.ok and self._resources.target == "cuda":
            with self._asking("trace"):
                wait([self._again])        # nor may this judge's own work disturb it
                wait([other.loading for other in self._ahead])
                with self._resources.turn(self._worker, alone=True):
                    result = correctness.add_trace(result, self._trial, self._secret_inputs, self._seeds)
        if not result.ok:
            state_mismatch.regroup_guessed(self._trial.state, self._terms, self._trial.guessed, more=any(self._trial.spare))
        return result

    def _ask_reference(self, request: Request[_Answer]) -> _Answer:
        """Asks the reference's worker. That time does not count against the program."""
        with self._worker.paused():
            return self._resources.ask(request)

    def _ask_to_be_idle(self, result: CheckResult) -> CheckResult:
        """Does the GPU stay idle while nobody calls it? The reference's work is measured before a program could disturb it."""
        with self._asking("reference's work"):
            self._resources.reference_work()
        with self._asking("idle"):
            reason = self._trial.idle(_IDLE_S)
        return result.model_copy(update={"ok": False, "reasons": (*result.reasons, reason)}) if reason else result

    def _add_remarks(self, result: CheckResult) -> tuple[CheckResult, str]:
        """Does it take inputs in another layout, other parameters after its first calls, and a second instance beside it?
        Returns also a note on the parameters, if it is wrong with them."""
        with self._asking("remarks"):
            other = self._again.result()
        self._worker.expire_in(self._resources.limits.check_s)
        with self._asking("remarks"):
            twice = not self._resources.is_large(self._secret_inputs)
            return correctness.add_remarks(result, self._trial, self._secret_inputs, self._seeds, other, twice=twice)

    def _ask_anew(self, result: CheckResult, other: SecretInputs, note: str) -> CheckResult:
        """Is it right with other parameters in a new worker? The first one is closed: both may not have room."""
        resources = self._resources
        worker = resources.worker(self._program, other)
        trial = resources.trial(worker, other)
        try:
            worker.expire_in(resources.limits.check_s)
            with self._asking("remarks"):
                return correctness.check_anew(result, trial, self._program, self._secret_inputs, other, note)
        finally:
            trial.forget()
            resources.background.tidy(worker.close)
            resources.wait_for_memory(self._secret_inputs)

    def _add_unmet(self, result: CheckResult) -> CheckResult:
        """Adds a note on conditions of the reference that no call met."""
        with self._asking("remarks"):
            unmet = self._resources.ask(FindUnmet()).conditions
        more = [f"and {len(unmet) - _MOST_UNMET} more"] if len(unmet) > _MOST_UNMET else []
        note = f"limited: never met in the reference: {'; '.join([*unmet[:_MOST_UNMET], *more])}"
        return result.model_copy(update={"notes": (*result.notes, note)}) if unmet else result

    def _ask_for_state(self, result: CheckResult) -> CheckResult:
        """Does it read all of the state that matters?"""
        with self._asking("state"):
            unread = state_mismatch.find_unread_state(
                self._loaded, self._resources.ask, self._secret_inputs, self._trial.state, self._terms
            )
        if not unread:
            return result
        return correctness.failed_check(self._trial, unread, outputs=result.outputs, seeds=result.seeds)

    def _measure_shares(self, result: CheckResult) -> CheckResult:
        """How much of the reference's work do its own kernels take over?"""
        with self._asking("reference's work"):
            work = self._resources.reference_work()
        result = result.model_copy(update={"whole": work.work, "significands": tuple(work.significands.items())})
        if (traced := self._trial.traced) is None:
            return result
        first, own = self._secret_inputs.sets[0], self._trial.own
        most = len(first.names) + str(first.structure).count("'tensor':")
        alone = device_time.share_without_copies(work.rows, traced, own, most=most)
        replaced, exchanged = max(device_time.share_taken_over(work.rows, traced.rows, own), alone)
        to_host = device_time.share_in_host_copies(work.rows, traced.rows)
        return result.model_copy(update={"replaced": replaced, "exchanged": exchanged, "host_share": to_host})

    def _ask_for_kernels(self, result: CheckResult) -> CheckResult:
        """Is each kernel needed? Asked even if the worker reports none: it need not be believed."""
        traced = self._trial.traced
        times = device_time.own_times(traced, self._trial.own) if traced is not None else {}
        with self._asking("kernels"):
            skipped = ablation.leave_out_kernels(self._loaded, self._secret_inputs, self._seeds, work=times)
        return own_work.apply_ablation(result, skipped, self._trial.own_launches, times)

    def _loaded(self) -> AbstractContextManager[LoadedProgram]:
        return loaded(self._resources, self._program, self._secret_inputs, self._ahead)

    def _close_unused(self) -> None:
        for unused in self._ahead:
            self._resources.background.tidy(unused.close)


def start_loading(
    resources: JudgeResources, program: Path, secret_inputs: SecretInputs, builder: Builder | None = None
) -> LoadingProgram:
    """Starts to load the program into a new worker, built so that single kernels can be left out. `builder`: a builder for this
    worker alone, needed if another worker is building at the same time."""
    worker = resources.worker(program, secret_inputs, builder)
    trial = resources.trial(worker, secret_inputs)
    loading = resources.background.begin(lambda: trial.load(program, masked=True))
    return LoadingProgram(worker, trial, loading, builder)


@contextlib.contextmanager
def loaded(
    resources: JudgeResources, program: Path, secret_inputs: SecretInputs, ahead: list[LoadingProgram]
) -> Iterator[LoadedProgram]:
    """Waits for a program whose kernels can be left out: the one in `ahead`, else a new one. Closed afterwards."""
    taken = ahead.pop() if ahead else start_loading(resources, program, secret_inputs)
    try:
        taken.worker.expire_in(resources.limits.check_s)
        taken.loading.result()
        yield LoadedProgram(taken.worker, taken.trial)
    finally:
        resources.background.tidy(taken.close)
