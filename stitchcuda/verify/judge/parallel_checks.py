"""Judges several programs of one reference at once, each in workers of its own, with a verdict for each.

All get the same secret inputs, so the reference computes its answers once. As many run at once as there are cores, and as host
memory, disk and GPU memory hold by what the reference took, at most `MOST`. A program that failed for lack of memory, of time
on the simulator, or by an error of ours is judged once more alone, and a note says so: no program's result depends on another.
It times nothing, and final checks do not come here.
Where to look next: `verify/judge/examination.py` (one check), `verify/judge/judge_resources.py` (what checks share),
`verify/client.py` (who asks).
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from stitchcuda.errors import BadInput
from stitchcuda.state import CheckResult
from stitchcuda.tools.build.compilers import free_gib
from stitchcuda.verify.inputs.reference_requests import ReadMemoryNeeds
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs
from stitchcuda.verify.integrity.snapshot import check_readable
from stitchcuda.verify.judge.examination import Examination
from stitchcuda.verify.judge.judge_resources import JudgeResources

MOST = 8
"""Checks at once: more programs than an engineer writes in one step."""

_CONTEXT = 3 * 2**28                       # bytes of GPU memory that a process takes before its first tensor, estimated high
_FILES = 2**26                             # bytes of disk for a program's copy and what it writes itself
_MEMORY = re.compile(r"ran out of memory|used more memory than it may|filled more disk than it may")
_TIME = re.compile(r"did not finish .* within")


class FinishedCheck(NamedTuple):
    """One check that ran beside others: its result, or None and the text of our own error. Times are of `time.monotonic`."""

    result: CheckResult | None
    error: str
    began: float
    ended: float


class ParallelChecks:
    """Judges programs of one reference at once. `first`: the judge's own `Examination`; more are added when needed."""

    def __init__(self, resources: JudgeResources, first: Examination) -> None:
        self._resources = resources
        self._examiners = [first]

    def check(self, programs: Sequence[str], seeds: int) -> list[CheckResult]:
        """Judges the programs at these paths; results in the same order. Raises `BadInput` if the reference cannot be used."""
        results: dict[str, CheckResult] = {}
        alone: dict[str, str] = {}         # programs that are judged one after the other, and why
        for program in programs:
            try:
                check_readable(Path(program))
                alone[program] = ""
            except BadInput as error:      # of the program's own files
                results[program] = CheckResult(ok=False, tier="compiled", reasons=(str(error),))
        many = parallel_count(len(alone), self._space(self._resources.secret_inputs(1, fresh=False, terms=InputTerms())))
        if many > 1:
            found = self._check_together(list(alone), seeds, many)
            alone = {}
            for program, finished in found.items():
                others = max(check.ended for name, check in found.items() if name != program)
                why = retry_reason(finished, others, shared=self._resources.target == "sim")
                if finished.result is None or why:
                    alone[program] = why
                else:
                    results[program] = finished.result
        for program, why in alone.items():
            result = self._examiners[0].check(program, seeds, fresh=False)
            note = (f"judged once more alone, for beside others it failed: {why}",) if why else ()
            results[program] = result.model_copy(update={"notes": (*result.notes, *note)})
        return [results[program] for program in programs]

    def _check_together(self, programs: Sequence[str], seeds: int, many: int) -> dict[str, FinishedCheck]:
        while len(self._examiners) < many:
            self._examiners.append(Examination(self._resources.for_parallel_check()))
        free: queue.SimpleQueue[Examination] = queue.SimpleQueue()
        for idle in self._examiners[:many]:
            free.put(idle)

        def check(program: str) -> FinishedCheck:
            examiner, began = free.get(), time.monotonic()
            result, error = None, ""
            try:
                result = examiner.check(program, seeds, fresh=False)
            except Exception as failure:   # if it happens again when alone, it is raised then
                error = str(failure) or type(failure).__name__
            finally:
                free.put(examiner)
            return FinishedCheck(result, error, began, time.monotonic())

        with self._resources.checking_in_parallel(), ThreadPoolExecutor(many) as pool:
            return dict(zip(programs, pool.map(check, programs), strict=True))

    def _space(self, secret_inputs: SecretInputs) -> list[tuple[int, int]]:
        """Returns (free bytes, bytes that one check takes) for host memory, disk, and GPU memory."""
        taken, call = self._resources.ask(ReadMemoryNeeds()), secret_inputs.bytes_of_a_call()
        on_gpu = self._resources.target == "cuda"
        blocks = 6 * call                  # inputs and answers in both processes, and what is compared, in float64 too
        host = (int(free_gib() * 2**30), taken.host + (0 if on_gpu else blocks))
        files = (shutil.disk_usage(self._resources.scratch).free, _FILES)
        device = [(taken.free, taken.device + blocks + _CONTEXT)] if on_gpu else []
        return [host, files, *device]


def parallel_count(programs: int, spaces: Iterable[tuple[int, int]], cores: int | None = None) -> int:
    """Returns how many of `programs` are judged at once, at least 1. `spaces`: (free bytes, bytes per check) by resource."""
    number = cores or len(os.sched_getaffinity(0))
    return max(1, min(programs, MOST, number, *(free // each for free, each in spaces)))


def retry_reason(finished: FinishedCheck, others: float, *, shared: bool) -> str:
    """Returns why a check that ran beside others is repeated alone, or "". `others`: when the last other one ended. `shared`:
    checks slow each other down, as on the simulator; then a timeout is such a reason, unless it was alone most of the time."""
    if finished.result is None:
        return finished.error
    beside = others - finished.began > (finished.ended - finished.began) / 2
    excused = [_MEMORY, *([_TIME] if shared and beside else [])]
    return next((reason for reason in finished.result.reasons if any(pattern.search(reason) for pattern in excused)), "")
