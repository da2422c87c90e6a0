"""Judges programs of many references at once, on one machine with any number of GPUs.

Each program is judged by a `Verifier` of its reference, which has processes of its own: what one program does to them reaches
no other. Verifiers stay open for further programs of their reference until their place is needed: to begin with another
reference costs seconds. On a GPU everything runs side by side but timing, for which a GPU is taken alone
(`tools/device/gpu_lock.py`). A verifier whose judge dies is replaced, and the program is judged once more. It knows no session.
Where to look next: `verify/api.py` (one verdict).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Unpack

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.tools.build.compilers import free_gib
from stitchcuda.tools.device import device
from stitchcuda.verify.api import Verdict, Verifier, VerifierOptions, check_options

_BESIDE_ON_GPU = 3                         # programs at once on a GPU: while one is timed, others are built and checked
_OPEN_ON_SIMULATOR = 4                     # verifiers that stay open for each that may work; on a GPU they hold its memory
_SPARE_GIB = 6.0                           # of the machine's memory, below which no more stay open than may work
_TRIES = 2


@dataclass
class _Job:
    program: Path
    reference: Path
    verdict: Future[Verdict] = field(default_factory=Future)
    verifier: Verifier | None = None       # while it is being judged
    cancelled: bool = False


class VerifierPool:
    """A context manager. Any thread may call its methods. Programs are judged in the order in which they were submitted."""

    def __init__(
        self,
        *,
        at_once: int | None = None,
        gpus: Sequence[str] | None = None,
        **options: Unpack[VerifierOptions],
    ) -> None:
        """`at_once`: programs that are judged at once; by default three to a GPU, or half as many as cores on the simulator.
        `gpus`: as in CUDA_VISIBLE_DEVICES, by default the first visible one. The other options are those of `Verifier`."""
        check_options(options)
        options["target"] = target = options.get("target") or device.resolve_target("auto")
        self._gpus: list[str | None] = [*gpus] if gpus and target == "cuda" else [None]
        cores = len(os.sched_getaffinity(0))
        count = at_once or (_BESIDE_ON_GPU * len(self._gpus) if target == "cuda" else max(1, cores // 2))
        self.at_once = count
        self.most_open = count * (1 if target == "cuda" else _OPEN_ON_SIMULATOR)
        self._options = options
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._idle: list[tuple[Path, str | None, Verifier]] = []  # (reference, GPU, verifier), the one used last at the end
        self._change = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(self._gpus[number % len(self._gpus)],), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, program: Path, reference: Path) -> Future[Verdict]:
        """Has a program judged. The future raises what `Verifier.verify` raises, and `CancelledError` after `cancel`."""
        job = _Job(program, reference.resolve())
        with self._change:
            if self._closed:
                raise Unavailable("the pool of verifiers is closed")
            self._waiting.append(job)
            self._change.notify()
        return job.verdict

    def cancel(self, verdict: Future[Verdict]) -> None:
        """Cancels a program that is waiting, or ends the processes that are judging it. No effect if it was judged already."""
        with self._change:
            for job in [job for job in self._waiting if job.verdict is verdict]:
                self._waiting.remove(job)
                job.verdict.cancel()
            for job in [job for job in self._running if job.verdict is verdict]:
                self._stop(job)

    def close(self) -> None:
        """Cancels all that is not judged yet, and ends all processes. May be called twice."""
        with self._change:
            self._closed = True
            while self._waiting:
                self._waiting.popleft().verdict.cancel()
            for job in self._running:
                self._stop(job)
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        while self._idle:
            self._idle.pop()[2].close()

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _stop(self, job: _Job) -> None:
        job.cancelled = True
        if job.verifier is not None:
            job.verifier.judge.kill()

    def _serve(self, gpu: str | None) -> None:
        """Judges one program after the other, on one GPU."""
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                job = self._waiting.popleft()
                if not job.verdict.set_running_or_notify_cancel():
                    continue
                self._running.append(job)
            try:
                result: Verdict | BaseException = self._judge(job, gpu)
            except BaseException as error:  # it belongs to whoever waits for the verdict
                result = error
            with self._change:
                self._running.remove(job)
            if isinstance(result, BaseException):
                job.verdict.set_exception(result)
            else:
                job.verdict.set_result(result)

    def _judge(self, job: _Job, gpu: str | None) -> Verdict:
        for attempt in range(_TRIES):
            verifier, keep = self._take(job, gpu), False
            try:
                verdict = verifier.verify(job.program)
                keep = True
                return verdict
            except (BadInput, Unavailable):
                keep = verifier.judge.is_alive()
                if job.cancelled:
                    raise CancelledError from None
                if keep or attempt + 1 == _TRIES:
                    raise
            finally:
                self._put_back(job, gpu, verifier, keep=keep)
        raise AssertionError("the last try returns or raises")

    def _take(self, job: _Job, gpu: str | None) -> Verifier:
        """Takes an idle verifier of the job's reference, or makes one in the place of the one that was idle longest."""
        unused: list[Verifier] = []
        with self._change:
            place = next((entry for entry in self._idle if entry[:2] == (job.reference, gpu)), None)
            if place is not None:
                self._idle.remove(place)
            while place is None and self._idle and self._are_too_many():
                unused.append(self._idle.pop(0)[2])
        for verifier in unused:
            verifier.close()
        made = place[2] if place else Verifier(job.reference, gpu=gpu, **self._options)
        with self._change:
            job.verifier = made
            if job.cancelled:
                made.judge.kill()
        return made

    def _are_too_many(self) -> bool:
        """Whether an idle verifier has to make room for the one that will be made."""
        count = len(self._idle) + len(self._running)
        return count > self.most_open or (count > self.at_once and free_gib() < _SPARE_GIB)

    def _put_back(self, job: _Job, gpu: str | None, verifier: Verifier, *, keep: bool) -> None:
        """Keeps a verifier for further programs, or closes it."""
        with self._change:
            job.verifier = None
            keep = keep and not job.cancelled
            if keep:
                self._idle.append((job.reference, gpu, verifier))
        if not keep:
            verifier.close()
