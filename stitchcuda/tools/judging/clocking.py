"""Times one program beside the reference, on contents that no one has seen, and a winner again in new processes.

Of the judge's process. Where to look next: `timing.py` (the turns and the figures), `deliveries.py`, `chambers.py` (with what).
"""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import Future

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import TimingResult
from stitchcuda.tools.judging import deliveries, timing
from stitchcuda.tools.judging.chambers import TIMINGS, Born, Chambers
from stitchcuda.tools.judging.deliveries import Deliveries
from stitchcuda.tools.judging.exam import Exam
from stitchcuda.tools.judging.lacking import Terms
from stitchcuda.tools.judging.processes import Others, threads_below
from stitchcuda.tools.judging.trial import Trial
from stitchcuda.tools.judging.worker import Worker, WorkerFailed
from stitchcuda.tools.running import ceiling


class Clocking:
    """Of any program of one reference, one after the other. Needs a GPU."""

    def __init__(self, room: Chambers) -> None:
        self._room = room

    def time(self, of: str, before: str, *, twice: bool) -> TimingResult:
        """Reference, previous program and program in one interleaving; `twice` for a winner, each time in new workers."""
        timings = TIMINGS if twice else 1
        born = self._room.ahead.taken(of)
        try:
            while len(born) < timings:
                born.append(self._room.born(of, self._room.exam(1, fresh=False, terms=self._room.terms.get(of, Terms()))))
            results = [self._interleaved(of, before, born)]
            while not results[-1].refused and (len(results) < timings or timing.parted(results)):
                results.append(self._interleaved(of, before, born))
        finally:
            for one in born:
                one.stack.close()
            self._room.errands.quiet()
        return timing.confirmed(results)

    def _interleaved(self, of: str, before: str, born: list[Born]) -> TimingResult:
        for integers in (True, False):     # an integer that is an index may be out of range elsewhere
            try:
                result = self._timed_together(of, before, born, integers=integers)
                # A busy machine may part honest clocks once, a lie parts them each time.
                return self._timed_together(of, before, born, integers=integers) if result.disputed else result
            except timing.Unfit as failure:
                self._room.drop_reference()
                failed = failure
        raise BadInput(f"The reference cannot be timed: {failed}")

    def _timed_together(self, of: str, before: str, born: list[Born], *, integers: bool) -> TimingResult:
        with contextlib.ExitStack() as stack:
            drawn: list[Future[Deliveries]] = []

            def draw(exam: Exam, one: Trial) -> None:
                """Contents that no one has seen, while the program is being loaded."""
                folder = self._room.folder()
                stack.callback(remove, folder)
                stack.callback(self._room.errands.answered)
                question = functools.partial(deliveries.draw, self._room.ask, exam, folder, one.delivered, integers=integers)
                drawn.append(self._room.errands.ask(question))

            try:
                program, exam, _ = self._room.ready(stack, of, born, beside=draw)
                previous = program if before == of else self._room.ready(stack, before)[0]
                given = drawn[-1].result()
                self._room.errands.quiet()
                self._room.the_reference()  # a new one, if the contents were too much for it
                with self._room.turn(alone=True):
                    return self._timed(previous, program, exam, given)
            except timing.Unfit:
                raise
            except WorkerFailed as failure:
                # It was judged correct before: whatever goes wrong under the clock is the program's doing.
                return timing.refused(f"while it was timed, {failure}")

    def _timed(self, previous: Worker, program: Worker, exam: Exam, given: Deliveries) -> TimingResult:
        """The figures, and whether memory could be that fast."""
        others = Others({"previous": previous.pid, "program": program.pid})
        result = timing.interleaved(
            self._room.the_reference(), previous, program, given, self._room.limits,
            threads=lambda: threads_below(program.pid), core=timing.quick_core(), hold=others.held,
        )  # fmt: skip
        if others.denied:
            note = "limited: the program's process could not be stopped while the reference was timed"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        asked = {"given": str(given.sets[0].inputs), "structure": given.sets[0].structure, "state": str(exam.state)}
        facts = self._room.ask("ceiling", matters=False, **asked)
        return ceiling.judged(
            result, given.input_bytes, given.output_bytes, at_most=given.at_most_bytes(),
            bandwidth=facts["bandwidth"], l2=facts["l2"],
            matters=lambda: self._room.ask("ceiling", matters=True, **asked)["matters"],
        )  # fmt: skip
