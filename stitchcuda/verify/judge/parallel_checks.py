"""Several programs of one reference judged at once, each by an examiner of its own, with one verdict for each.

They sit one exam: the reference answers once for all of them, and then has nothing to do while each program runs in workers of
its own. There are no more at once than cores and memory bear, by what the reference itself took. Who fails for want of memory
beside others, of time where they took it, or because of anything that went wrong with a process, is judged once more alone, and
a note says so: what one program does is in nobody else's result. It times nothing, and final verifications are not its own.
Where to look next: `verify/judge/examination.py` (one check), `verify/judge/judge_resources.py` (what they share),
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
from stitchcuda.verify.inputs.input_terms import InputTerms
from stitchcuda.verify.inputs.secret_inputs import SecretInputs
from stitchcuda.verify.integrity.snapshot import check_readable
from stitchcuda.verify.judge.examination import Examination
from stitchcuda.verify.judge.judge_resources import JudgeResources

MOST = 8
"""At once: more programs than a coder writes in one step."""

_CONTEXT = 3 * 2**28                       # bytes of GPU memory that a process takes before its first tensor, rather too many
_MEMORY = re.compile(r"ran out of memory|used more memory than it may|filled more disk than it may")
_TIME = re.compile(r"did not finish .* within")


class FinishedCheck(NamedTuple):
    """One check beside others: its result, or what went wrong with us; seconds of one clock."""

    result: CheckResult | None
    error: str
    began: float
    ended: float


class ParallelChecks:
    """Examiners of one reference; the first is the judge's own, the others come when they are needed and stay."""

    def __init__(self, room: JudgeResources, first: Examination) -> None:
        self._room = room
        self._examiners = [first]

    def check(self, programs: Sequence[str], seeds: int) -> list[CheckResult]:
        """Judge the programs of these paths, results in their order. Raises `BadInput` for a reference that cannot be used."""
        results: dict[str, CheckResult] = {}
        alone: dict[str, str] = {}         # programs that are judged one after the other, and why
        for program in programs:
            try:
                check_readable(Path(program))
                alone[program] = ""
            except BadInput as error:      # of the program's own files
                results[program] = CheckResult(ok=False, tier="compiled", reasons=(str(error),))
        many = at_once(len(alone), self._spaces(self._room.exam(1, fresh=False, terms=InputTerms())))
        if many > 1:
            found = self._together(list(alone), seeds, many)
            alone = {}
            for program, tried in found.items():
                others = max(check.ended for name, check in found.items() if name != program)
                why = again(tried, others, shared=self._room.target == "sim")
                if tried.result is None or why:
                    alone[program] = why
                else:
                    results[program] = tried.result
        for program, why in alone.items():
            result = self._examiners[0].check(program, seeds, fresh=False)
            note = (f"judged once more alone, for beside others it failed: {why}",) if why else ()
            results[program] = result.model_copy(update={"notes": (*result.notes, *note)})
        return [results[program] for program in programs]

    def _together(self, programs: Sequence[str], seeds: int, many: int) -> dict[str, FinishedCheck]:
        while len(self._examiners) < many:
            self._examiners.append(Examination(self._room.beside()))
        free: queue.SimpleQueue[Examination] = queue.SimpleQueue()
        for idle in self._examiners[:many]:
            free.put(idle)

        def judged(program: str) -> FinishedCheck:
            examiner, began = free.get(), time.monotonic()
            result, error = None, ""
            try:
                result = examiner.check(program, seeds, fresh=False)
            except Exception as failure:   # it is raised when it happens again, alone
                error = str(failure) or type(failure).__name__
            finally:
                free.put(examiner)
            return FinishedCheck(result, error, began, time.monotonic())

        with self._room.several(), ThreadPoolExecutor(many) as pool:
            return dict(zip(programs, pool.map(judged, programs), strict=True))

    def _spaces(self, exam: SecretInputs) -> list[tuple[int, int]]:
        """(bytes that are free, bytes that one check takes) of the host's memory, of room for files and of the GPU's memory."""
        taken, call = self._room.ask("needs"), exam.bytes_of_a_call()
        host = (int(free_gib() * 2**30), int(taken["host"]) + 6 * call)  # the judge reads what a program wrote, in float64 too
        files = (shutil.disk_usage(self._room.scratch).free, 2 * call + 2**26)
        device = [(int(taken["free"]), int(taken["device"]) + _CONTEXT)] if self._room.target == "cuda" else []
        return [host, files, *device]


def at_once(programs: int, spaces: Iterable[tuple[int, int]], cores: int | None = None) -> int:
    """How many of so many programs are judged at once; at least one."""
    number = cores or len(os.sched_getaffinity(0))
    return max(1, min(programs, MOST, number, *(free // each for free, each in spaces)))


def again(tried: FinishedCheck, others: float, *, shared: bool) -> str:
    """Why a check that went on beside others counts for nothing, or "". `others`: when the last of them ended. `shared`: they
    took of its time, as simulated kernels do of each other's, and not where it was alone for the greater part of its own."""
    if tried.result is None:
        return tried.error
    beside = others - tried.began > (tried.ended - tried.began) / 2
    lacking = [_MEMORY, *([_TIME] if shared and beside else [])]
    return next((reason for reason in tried.result.reasons if any(pattern.search(reason) for pattern in lacking)), "")
