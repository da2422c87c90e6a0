"""Runs work of the judge in threads: questions to the reference, work whose result is needed soon, and tidying up.

Ending a process with a CUDA context takes a tenth of a second, removing the files of secret inputs as long, and the reference
can answer while a program is being built. Whoever needs a result waits for its future.
Where to look next: `verify/judge/examination.py` (who starts such work).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from stitchcuda.verify.processes.worker import Worker

_T = TypeVar("_T")


class BackgroundWork:
    """The judge's background work. Its methods may be called from one thread only."""

    def __init__(self) -> None:
        self._questions = ThreadPoolExecutor(1)
        self._begun = ThreadPoolExecutor(4)
        self._tidying = ThreadPoolExecutor(2)  # apart from `_begun`, whose work may end only after something is tidied up
        self._tidied: list[Future[None]] = []

    def ask(self, question: Callable[[], _T]) -> Future[_T]:
        """Runs a question to the reference after those asked before it."""
        return self._questions.submit(question)

    def answered(self) -> None:
        """Waits until the running question is answered, and cancels those that have not begun."""
        self._questions.shutdown(cancel_futures=True)
        self._questions = ThreadPoolExecutor(1)

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        """Starts work at once, in parallel to all other work."""
        return self._begun.submit(work)

    def tidy(self, work: Callable[[], None]) -> None:
        """Starts work whose result nobody needs; `quiet` raises what failed."""
        self._tidied = [future for future in self._tidied if not future.done() or future.exception()]
        self._tidied.append(self._tidying.submit(work))

    def quiet(self) -> None:
        """Waits until everything is tidied up. Raises the first error."""
        waiting, self._tidied = self._tidied, []
        wait(waiting)
        for future in waiting:
            future.result()

    @contextlib.contextmanager
    def close_later(self, worker: Worker) -> Iterator[Worker]:
        """A context that gives the worker and closes it in the background afterwards."""
        try:
            yield worker
        finally:
            self.tidy(worker.close)
