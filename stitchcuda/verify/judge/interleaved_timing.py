"""Starts the workers of one timing, on inputs that no program has seen, and repeats it if it cannot be trusted.

Runs in the judge process. A winner is timed in `TIMINGS` fresh sets of workers, once more if these differ too much; a timing
whose clocks disagree is repeated once; integers among the inputs stay as they are if the reference fails on changed ones. A
program that fails while it is timed is refused, since it was judged correct before. While one program runs, the processes
of the others are stopped, never the reference's. It takes no times itself.
Where to look next: `verify/timing/rounds.py` (turns and figures), `verify/inputs/timed_inputs.py` (contents),
`verify/judge/judge_resources.py` (workers).
"""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import Future

from stitchcuda.errors import BadInput
from stitchcuda.state import TimingResult
from stitchcuda.verify.inputs import timed_inputs
from stitchcuda.verify.inputs.reference_requests import FindMattering, ReadCeiling
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs
from stitchcuda.verify.inputs.timed_inputs import TimedInputs
from stitchcuda.verify.integrity import speed_of_light
from stitchcuda.verify.judge.judge_resources import TIMINGS, Born, JudgeResources
from stitchcuda.verify.processes.pausing import ProgramProcesses, count_threads
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.trial import Trial
from stitchcuda.verify.timing import rounds


class InterleavedTiming:
    """Times programs of one reference, one after the other. Needs a GPU."""

    def __init__(self, resources: JudgeResources) -> None:
        self._resources = resources

    def time(self, program: str, before: str, *, twice: bool) -> TimingResult:
        """Times reference, `before` (the previous program's path, or `program` itself) and program, interleaved. `twice`: for a
        winner, each time in new workers. Raises `BadInput` if the reference itself cannot be timed."""
        timings = TIMINGS if twice else 1
        started = self._resources.take_waiting(program)
        try:
            while len(started) < timings:      # all workers at once
                terms = self._resources.terms.get(program, InputTerms())
                secret_inputs = self._resources.secret_inputs(1, fresh=False, terms=terms)
                started.append(self._resources.start_worker(program, secret_inputs))
            results = [self._interleaved(program, before, started)]
            while not results[-1].refused and (len(results) < timings or rounds.needs_third_timing(results)):
                results.append(self._interleaved(program, before, started))
        finally:
            for unused in started:
                unused.stack.close()
            self._resources.background.quiet()
        return rounds.combine_timings(results)

    def _interleaved(self, program: str, before: str, started: list[Born]) -> TimingResult:
        for integers in (True, False):     # an integer that is an index may be out of range when changed
            try:
                result = self._timed_together(program, before, started, integers=integers)
                # On a busy machine honest clocks may disagree once; a false clock disagrees each time.
                return self._timed_together(program, before, started, integers=integers) if result.disputed else result
            except rounds.ReferenceUnfit as failure:
                self._resources.drop_reference()
                failed = failure
        raise BadInput(f"The reference cannot be timed: {failed}")

    def _timed_together(self, path: str, before: str, started: list[Born], *, integers: bool) -> TimingResult:
        with contextlib.ExitStack() as stack:
            drawn: list[Future[TimedInputs]] = []

            def draw(secret_inputs: SecretInputs, trial: Trial) -> None:
                """Draws the contents of timed calls in the background, while the program is being loaded."""
                stack.callback(self._resources.background.answered)
                question = functools.partial(
                    timed_inputs.draw, self._resources.ask, secret_inputs, trial.compare_timed_call, integers=integers
                )
                drawn.append(self._resources.background.ask(question))

            try:
                program, secret_inputs, _ = self._resources.load_program(stack, path, started, before_load=draw)
                previous = program if before == path else self._resources.load_program(stack, before)[0]
                given = drawn[-1].result()
                self._resources.background.quiet()
                self._resources.reference_worker()  # starts a new one if drawing the contents ended the old one
                return self._timed(previous, program, secret_inputs, given)
            except rounds.ReferenceUnfit:
                raise
            except WorkerFailed as failure:
                # It was judged correct before, so whatever goes wrong in timed calls is the program's doing.
                return rounds.refused_timing(f"while it was timed, {failure}")

    def _timed(self, previous: Worker, program: Worker, secret_inputs: SecretInputs, given: TimedInputs) -> TimingResult:
        """Takes the times, and refuses what is faster than the GPU's memory allows."""
        others = ProgramProcesses({"previous": previous.pid, "program": program.pid})
        result = rounds.time_interleaved(
            self._resources.reference_worker(), previous, program, given, self._resources.limits,
            threads=lambda: count_threads(program.pid), core=rounds.fastest_core(), hold=others.pause_others,
            turn=self._resources.turn,
        )  # fmt: skip
        if others.denied:
            note = "limited: the program's process could not be stopped while the reference was timed"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        ceiling, matters = self._resources.ask(ReadCeiling()), FindMattering(given.sets[0], secret_inputs.state)
        return speed_of_light.apply_floor(
            result, given.input_bytes, given.output_bytes, at_most=given.at_most_bytes(),
            bandwidth=ceiling.bandwidth, l2=ceiling.l2, matters=lambda: self._resources.ask(matters).matters,
        )  # fmt: skip
