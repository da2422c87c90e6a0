"""Optimises every problem of a set, several at a time, each in a process of its own; a killed run goes on where it was.

A result is kept as soon as it is there, and never made twice. Between problems nothing is shared but the GPUs: on each of them
several sessions run side by side, and timing takes it alone (`tools/device/gpu_lock.py`). One that runs out of the GPU's memory
there is worked on once more at the end, with the GPU to itself.
Where to look next: `bench/problem_worker.py` (one problem), `bench/results.py` (what is kept), `bench/table.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from stitchcuda.bench.problem_worker import Order
from stitchcuda.bench.problems import Problem
from stitchcuda.bench.progress import BenchProgress
from stitchcuda.bench.results import Asked, Result, RunFolder, digest_of
from stitchcuda.state import Settings

BESIDE_ON_GPU = 3                          # sessions at once on a GPU: while one is timed, others capture, build and check
Work = Callable[[Order, str | None, Path, threading.Event], Result]
"""Works on an order on a GPU (as in CUDA_VISIBLE_DEVICES; None: as it is), with a file for messages, until an event is set."""


def run(
    problems: Sequence[Problem], out: Path, settings: Settings, *, source: str, path: Path, gpus: Sequence[str] = (),
    at_once: int | None = None, tell: Callable[[str], None] = print, work: Work | None = None,
) -> RunFolder:  # fmt: skip
    """Optimises the problems that have no result in the folder `out` yet, and returns the folder.

    `settings`: of every session. `gpus`: which to use, as in CUDA_VISIBLE_DEVICES. `at_once`: sessions at once; by default
    three to a GPU, or half as many as cores on the simulator. `tell` gets a line for each result. `work`: where a problem is
    worked on, by default `in_process`. After Ctrl-C or a kill the same call goes on. Raises `BadInput` if `out` holds another
    run.
    """
    out = out.resolve()
    folder = RunFolder(out)
    folder.begin(Asked(
        kind="run", source=source, path=str(path.resolve()), problems=tuple(problem.name for problem in problems),
        contents=tuple(digest_of(problem.reference) for problem in problems), settings=settings,
    ))  # fmt: skip
    try:
        _work_on_rest(folder, problems, settings, gpus, at_once, tell, work or in_process)
    finally:
        folder.release()
    return folder


def _work_on_rest(
    folder: RunFolder, problems: Sequence[Problem], settings: Settings, gpus: Sequence[str], at_once: int | None,
    tell: Callable[[str], None], work: Work,
) -> None:  # fmt: skip
    for problem in problems:
        if problem.why_not:
            folder.add(Result(id=problem.name, problem=problem.name, end="could not judge", reasons=(problem.why_not,)))
    known = folder.results()
    waiting = deque(problem for problem in problems if problem.name not in known)
    progress = BenchProgress(len(problems), [*known.values()], tell)
    places: list[str | None] = [*gpus] or [None]
    on_gpu = settings.target == "cuda"
    count = at_once or (BESIDE_ON_GPU * len(places) if on_gpu else max(1, len(os.sched_getaffinity(0)) // 2))
    progress.begin(min(count, len(waiting)))
    again: deque[Problem] = deque()        # ran out of memory beside others

    def keep(problem: Problem, result: Result) -> None:
        if result.short_of_memory and on_gpu and count > len(places):
            again.append(problem)
            tell(f"{problem.name}: ran out of memory beside others on its GPU; it is worked on again at the end, alone")
        else:
            progress.add(folder.keep(result))

    _serve(waiting, folder, settings, [places[number % len(places)] for number in range(count)], work, keep)
    alone = deque(again)
    _serve(alone, folder, settings, places, work, lambda problem, result: progress.add(folder.keep(result)), alone=True)


def _serve(
    waiting: deque[Problem], folder: RunFolder, settings: Settings, places: Sequence[str | None], work: Work,
    keep: Callable[[Problem, Result], None], *, alone: bool = False,
) -> None:  # fmt: skip
    """Works on all problems that wait, one at a time in each place, and hands the results to `keep`."""
    lock, stopped = threading.Lock(), threading.Event()
    failures: list[BaseException] = []

    def serve(gpu: str | None) -> None:
        try:
            serve_on(gpu)
        except BaseException as error:     # it belongs to the caller
            failures.append(error)
            stopped.set()

    def serve_on(gpu: str | None) -> None:
        while not stopped.is_set():
            with lock:
                if not waiting:
                    return
                problem = waiting.popleft()
            order = Order(
                problem=problem.name, reference=problem.reference, workspace=folder.workspace, settings=settings, alone=alone
            )
            result = work(order, gpu, folder.folder / "logs" / f"{problem.name}.log", stopped)
            with lock:
                if result.final or not stopped.is_set():
                    keep(problem, result)

    threads = [threading.Thread(target=serve, args=(place,)) for place in places]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():       # a join without a limit cannot be interrupted
                thread.join(0.2)
    except BaseException:
        stopped.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if failures:
        raise failures[0]


def in_process(order: Order, gpu: str | None, log: Path, stopped: threading.Event) -> Result:
    """Works on an order in a new process, which is ended when `stopped` is set. Its messages are appended to the file `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stitchcuda.bench.problem_worker", order.model_dump_json()]
    surroundings = os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {})
    surroundings.pop("STITCHCUDA_CHECKPOINT", None)  # the run's sessions are in its own folder
    started = time.monotonic()
    with log.open("ab") as messages:
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, env=surroundings, start_new_session=True
        )
        answers: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(worker, answers))
        reader.start()
        while reader.is_alive():
            reader.join(0.2)
            if stopped.is_set() and worker.stdin:
                worker.stdin.close()       # it ends itself
                worker.stdin = None
        code = worker.wait()
    lines = b"".join(answers).decode(errors="replace").strip().split("\n")
    try:
        return Result.model_validate_json(lines[-1])
    except ValidationError:
        why = f"its process ended with code {code} and no result: see {log}"
        return Result(id=order.problem, problem=order.problem, end="failed", reasons=(why,), seconds=time.monotonic() - started)


def _read_all(worker: subprocess.Popen[bytes], into: list[bytes]) -> None:
    """Reads a process's stdout to its end."""
    assert worker.stdout is not None
    into.append(worker.stdout.read())
