"""Times one program beside the reference, on contents that no one has seen, and a winner again in new processes.

Of the judge's process. Where to look next: `verify/timing/rounds.py` (the turns and the figures),
`verify/inputs/timed_inputs.py`, `verify/judge/judge_resources.py` (with what).
"""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import Future

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import TimingResult
from stitchcuda.verify.inputs import timed_inputs
from stitchcuda.verify.inputs.input_terms import InputTerms
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.inputs.timed_inputs import TimedInputs
from stitchcuda.verify.integrity import speed_of_light
from stitchcuda.verify.judge.judge_resources import TIMINGS, Born, JudgeResources
from stitchcuda.verify.processes.pausing import ProgramProcesses, count_threads
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.program.trial import Trial
from stitchcuda.verify.timing import rounds


class InterleavedTiming:
    """Of any program of one reference, one after the other. Needs a GPU."""

    def __init__(self, room: JudgeResources) -> None:
        self._room = room

    def time(self, program: str, before: str, *, twice: bool) -> TimingResult:
        """Reference, previous program and program in one interleaving; `twice` for a winner, each time in new workers."""
        timings = TIMINGS if twice else 1
        born: list[Born] = []              # all at once: a CUDA context takes its time
        try:
            while len(born) < timings:
                terms = self._room.terms.get(program, InputTerms())
                born.append(self._room.born(program, self._room.exam(1, fresh=False, terms=terms)))
            results = [self._interleaved(program, before, born)]
            while not results[-1].refused and (len(results) < timings or rounds.parted(results)):
                results.append(self._interleaved(program, before, born))
        finally:
            for unused in born:
                unused.stack.close()
            self._room.errands.quiet()
        return rounds.confirmed(results)

    def _interleaved(self, program: str, before: str, born: list[Born]) -> TimingResult:
        for integers in (True, False):     # an integer that is an index may be out of range elsewhere
            try:
                result = self._timed_together(program, before, born, integers=integers)
                # A busy machine may part honest clocks once, a lie parts them each time.
                return self._timed_together(program, before, born, integers=integers) if result.disputed else result
            except rounds.ReferenceUnfit as failure:
                self._room.drop_reference()
                failed = failure
        raise BadInput(f"The reference cannot be timed: {failed}")

    def _timed_together(self, path: str, before: str, born: list[Born], *, integers: bool) -> TimingResult:
        with contextlib.ExitStack() as stack:
            drawn: list[Future[TimedInputs]] = []

            def draw(exam: SecretInputs, trial: Trial) -> None:
                """Contents that no one has seen, while the program is being loaded."""
                folder = self._room.folder()
                stack.callback(remove, folder)
                stack.callback(self._room.errands.answered)
                question = functools.partial(
                    timed_inputs.draw, self._room.ask, exam, folder, trial.compare_timed_call, integers=integers
                )
                drawn.append(self._room.errands.ask(question))

            try:
                program, exam, _ = self._room.ready(stack, path, born, beside=draw)
                previous = program if before == path else self._room.ready(stack, before)[0]
                given = drawn[-1].result()
                self._room.errands.quiet()
                self._room.the_reference()  # a new one, if the contents were too much for it
                with self._room.turn(alone=True):
                    return self._timed(previous, program, exam, given)
            except rounds.ReferenceUnfit:
                raise
            except WorkerFailed as failure:
                # It was judged correct before: whatever goes wrong under the clock is the program's doing.
                return rounds.refused(f"while it was timed, {failure}")

    def _timed(self, previous: Worker, program: Worker, exam: SecretInputs, given: TimedInputs) -> TimingResult:
        """The figures, and whether memory could be that fast."""
        others = ProgramProcesses({"previous": previous.pid, "program": program.pid})
        result = rounds.interleaved(
            self._room.the_reference(), previous, program, given, self._room.limits,
            threads=lambda: count_threads(program.pid), core=rounds.quick_core(), hold=others.pause_others,
        )  # fmt: skip
        if others.denied:
            note = "limited: the program's process could not be stopped while the reference was timed"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        asked = {"given": str(given.sets[0].inputs), "structure": given.sets[0].structure, "state": str(exam.state)}
        facts = self._room.ask("ceiling", matters=False, **asked)
        return speed_of_light.apply_floor(
            result, given.input_bytes, given.output_bytes, at_most=given.at_most_bytes(),
            bandwidth=facts["bandwidth"], l2=facts["l2"],
            matters=lambda: self._room.ask("ceiling", matters=True, **asked)["matters"],
        )  # fmt: skip
