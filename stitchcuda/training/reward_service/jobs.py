"""Runs the reward service's jobs: takes them from the store, has the verifier judge them, tries again, keeps the answers.

As many jobs are at the verifier as it judges at once; all others wait in the store. Limits hold for the whole server.
Where to look next: `verify/pool.py` (who judges), `training/reward_service/verdicts.py` (what follows from a verdict).
"""

from __future__ import annotations

import errno
import logging
import re
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import Target
from stitchcuda.training.reward_service.job_store import ClaimedJob, JobStore
from stitchcuda.training.reward_service.metrics import Metrics
from stitchcuda.training.reward_service.records import RewardFunction
from stitchcuda.training.reward_service.verdicts import JobOutcome, answer, no_program, outcome_of
from stitchcuda.verify.api import Verdict, require_program

TRIES = 3                                  # of a job, while each fails for no fault of the program
_PAUSE_S = 2.0                             # before the second try; before the third twice as long
_TICK_S = 0.5                              # for jobs whose pause is over
_MOST_FILES, _MOST_BYTES = 200, 8 * 2**20
FILE_NAME = re.compile(r"(?=.{1,200}\Z)\w[\w.-]*(/\w[\w.-]*)*")
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)


class Judging(Protocol):
    """What is needed of a `VerifierPool`."""

    at_once: int
    most_open: int                         # references whose verifiers may stay open

    def submit(self, program: Path, reference: Path) -> Future[Verdict]: ...
    def close(self) -> None: ...


class RewardJobs:
    """Works from `start` until `close`; jobs that are not finished then stay in the store for the next server."""

    def __init__(
        self, store: JobStore, pool: Judging, rewards: Mapping[str, RewardFunction], target: Target, metrics: Metrics, *,
        pause_s: float = _PAUSE_S,
    ) -> None:  # fmt: skip
        self.finished: Callable[[str], None] = lambda job: None  # is told each job that has an answer, by any thread
        self.failed: Callable[[], None] = lambda: None           # is told that nothing goes on here: see `failure`
        self.failure: Exception | None = None
        self._store, self._pool, self._rewards, self._target, self._metrics = store, pool, rewards, target, metrics
        self._pause_s = pause_s
        self._loaded: deque[str] = deque(maxlen=pool.most_open)  # references that the pool judged last
        self._at_work = 0
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._guarded, args=(self._hand_out,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Says that a job was added."""
        with self._change:
            self._change.notify()

    def close(self) -> None:
        """Ends the verifiers. May be called twice."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.close()

    def _hand_out(self) -> None:
        while True:
            with self._change:
                if self._closed:
                    return
                claimed = self._store.claim(set(self._loaded)) if self._at_work < self._pool.at_once else None
                if claimed is None:
                    self._change.wait(_TICK_S)
                    continue
                self._at_work += 1
            self._begin(claimed)

    def _begin(self, claimed: ClaimedJob) -> None:
        folder = self._store.folder / "work" / claimed.answer.id
        try:
            program = place(claimed.program, folder)
            require_program(program)
        except BadInput as error:
            self._end(claimed, folder, no_program(str(error)))
            return
        except OSError as error:
            self._end(claimed, folder, JobOutcome("infra_error", "unavailable", reasons=(str(error),), again=True))
            return
        try:
            future = self._pool.submit(program, claimed.reference)
        except Unavailable:                # it is closed: the job stays for the next server
            return
        future.add_done_callback(lambda judged: self._guarded(lambda: self._judged(claimed, folder, judged)))

    def _judged(self, claimed: ClaimedJob, folder: Path, judged: Future[Verdict]) -> None:
        if judged.cancelled() or self._closed:  # processes end with the server: no verdict of that time counts
            return
        self._end(claimed, folder, outcome_of(judged, self._target))

    def _end(self, claimed: ClaimedJob, folder: Path, outcome: JobOutcome) -> None:
        known = claimed.answer
        shutil.rmtree(folder, ignore_errors=True)
        if outcome.again and known.tries + 1 < TRIES:
            self._metrics.retry()
            self._store.put_back(known.id, after_s=self._pause_s * (known.tries + 1))
        else:
            made = answer(known, named(outcome, folder, claimed.reference), self._rewards.get(known.reward_schema))
            self._store.finish(made)
            self._metrics.finish(made)
            self.finished(known.id)
        with self._change:
            self._at_work -= 1
            if (reference := claimed.reference.stem) not in self._loaded:
                self._loaded.append(reference)
            self._change.notify()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does some of the work. What it raises (the store cannot be written, a defect) ends the service: nothing is lost."""
        try:
            work()
        except Exception as error:
            logging.getLogger(__name__).debug("the reward service ends", exc_info=True)
            self.failure = self.failure or error
            self.failed()


def place(program: str | dict[str, str], folder: Path) -> Path:
    """Writes a program into a new folder and returns its path. Raises `BadInput` for what is no program, `OSError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = {"program.py": program} if isinstance(program, str) else program
    if wrong := next((name for name in files if not FILE_NAME.fullmatch(name)), None):
        raise BadInput(f"the program names a file {wrong[:80]!a}: names are relative, of letters, digits, dots and dashes")
    if len(files) > _MOST_FILES or sum(map(len, files.values())) > _MOST_BYTES:
        raise BadInput(f"the program has over {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB")
    for name, text in files.items():
        if "\0" in text:
            raise BadInput(f"{name} is no text: it holds NULs, or halves of surrogate pairs")
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode())
        except OSError as error:
            if error.errno in _NO_FOLDER:
                raise BadInput(f"{name} in the program is both a file and a folder, or its name is too long") from error
            raise
    return folder / "program.py" if isinstance(program, str) else folder


def named(outcome: JobOutcome, folder: Path, reference: Path) -> JobOutcome:
    """The outcome with sentences that name the program and the reference as a client knows them, not by paths of ours."""
    said = []
    for reason in outcome.reasons:
        for path in (folder.resolve(), folder):
            reason = reason.replace(f"{path}/", "").replace(str(path), "the program")
        said.append(reason.replace(str(reference), "the reference").replace(reference.name, "the reference"))
    return replace(outcome, reasons=tuple(said))
