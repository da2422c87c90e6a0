"""What the judge has done beside the main line of a verdict: questions to the reference, work that is due soon, tidying up.

Ending a process with a CUDA context takes a tenth of a second, removing an exam's files as long, and the reference can answer
while a program is being built. Who wants a result says so and waits. Where to look next: `verify/judge/examination.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from stitchcuda.verify.processes.worker import Worker

_T = TypeVar("_T")


class BackgroundWork:
    """One for the judge's life. Not for several threads at once."""

    def __init__(self) -> None:
        self._questions = ThreadPoolExecutor(1)
        self._begun = ThreadPoolExecutor(4)
        self._tidying = ThreadPoolExecutor(2)  # of its own: what was begun may end only when it is tidied up
        self._tidied: list[Future[None]] = []

    def ask(self, question: Callable[[], _T]) -> Future[_T]:
        """One after the other, in the order in which they are asked. Who wants the answer waits for it."""
        return self._questions.submit(question)

    def answered(self) -> None:
        """Wait until no question is under way; those that nobody needs any more are not begun."""
        self._questions.shutdown(cancel_futures=True)
        self._questions = ThreadPoolExecutor(1)

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        """At once, beside anything else. Who wants what comes of it, or needs it over, waits for it."""
        return self._begun.submit(work)

    def tidy(self, work: Callable[[], None]) -> None:
        """Do it soon; `quiet` says what failed."""
        self._tidied = [future for future in self._tidied if not future.done() or future.exception()]
        self._tidied.append(self._tidying.submit(work))

    def quiet(self) -> None:
        """Wait until everything is tidied up. Raises the first thing that failed."""
        waiting, self._tidied = self._tidied, []
        wait(waiting)
        for future in waiting:
            future.result()

    @contextlib.contextmanager
    def close_later(self, worker: Worker) -> Iterator[Worker]:
        """A worker that is closed beside whatever comes after the block."""
        try:
            yield worker
        finally:
            self.tidy(worker.close)
