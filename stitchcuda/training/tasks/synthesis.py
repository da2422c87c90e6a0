"""Makes a file of tasks: candidates in the order of their numbers, several at a time, each through all filters.

Which tasks come out follows from the seed alone, not from the number of processes or of restarts.
Where to look next: `training/tasks/candidate.py` (one candidate), `training/tasks/task_file.py` (what is kept).
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count as numbers
from pathlib import Path

import torch

from stitchcuda.counts import counted
from stitchcuda.training.tasks.candidate import Candidate, Refusal, TaskConditions, TrainingTask, begin, held_out_digest, judge
from stitchcuda.training.tasks.decontamination import structure_of
from stitchcuda.training.tasks.task_file import TaskFile, TaskManifest, read_sources

_AHEAD = 6                                 # candidates under way or waiting, for each process
_EACH = 30                                 # seconds between two lines of progress
Tell = Callable[[str], None]


def synthesise(
    out: Path, asked: TaskConditions, *, seed: int, count: int, jobs: int | None = None, tell: Tell = print
) -> TaskManifest:
    """Composes candidates until the file `out` holds `count` tasks; goes on with one that is there. Returns its manifest.

    `jobs`: processes, by default one for each core. Raises BadInput if the file was made otherwise.
    """
    drafts = (Candidate(number, seed) for number in numbers())
    return _make(out, asked, f"synthesised from seed {seed}", drafts, count, jobs, tell)


def filter_tasks(path: Path, out: Path, asked: TaskConditions, *, jobs: int | None = None, tell: Tell = print) -> TaskManifest:
    """Puts the references of a table through the same filters; those that pass are written to `out`. Goes on likewise."""
    rows = list(read_sources(path))
    made = f"filtered from {path.name} with SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    given = (Candidate(number, 0, *row) for number, row in enumerate(rows))
    return _make(out, asked, made, given, len(rows), jobs, tell)


def _make(
    out: Path, asked: TaskConditions, made: str, candidates: Iterable[Candidate], count: int, jobs: int | None, tell: Tell
) -> TaskManifest:
    manifest = TaskManifest(
        torch=torch.__version__, made=made, held_out=held_out_digest(asked.held_out), device=asked.predict_for,
        compile="inductor" if asked.inductor else "aot_eager",
    )  # fmt: skip
    file = TaskFile(out)
    file.begin(manifest)
    started, told, before = time.monotonic(), time.monotonic(), file.tasks
    if file.next:
        tell(f"goes on after {counted(file.next, 'candidate')}, of which {file.tasks:,} are tasks")
    try:
        if file.tasks < count:
            waiting = (candidate for candidate in candidates if candidate.number >= file.next)
            for outcome in _judged(_with_structure(waiting, file.structures), asked, jobs or len(os.sched_getaffinity(0))):
                file.add(outcome)
                now = time.monotonic()
                if file.tasks == count:
                    break
                if now - told >= _EACH:
                    told, rate = now, (file.tasks - before) / (now - started) * 60
                    left = f", about {(count - file.tasks) / rate:.0f} minutes left" if rate else ""
                    so_far = f"{file.tasks:,} of {counted(count, 'task')}, {counted(file.next, 'candidate')}"
                    tell(f"{so_far}, {rate:.0f} tasks a minute{left}")
    finally:
        done = file.end(manifest)
    return done


def _with_structure(candidates: Iterable[Candidate], known: set[str]) -> Iterator[Candidate | Refusal]:
    """Adds each candidate's structure; those whose structure an earlier candidate has are refused. `known` is kept apart: it
    grows as outcomes are kept, which is later."""
    seen = {*known}
    for candidate in candidates:
        try:
            draft = None if candidate.source else candidate.draft()[0]
            digest = structure_of(draft.write(draft.small()) if draft else candidate.source).digest
        except (SyntaxError, ValueError, RecursionError) as error:
            yield Refusal(candidate=candidate.number, filter="runs", why=f"{type(error).__name__}: {error}"[:300])
            continue
        if digest in seen:
            yield Refusal(candidate=candidate.number, filter="duplicate", why="", structure=digest)
            continue
        seen.add(digest)
        yield Candidate(candidate.number, candidate.seed, candidate.name, candidate.source, candidate.small, digest)


def _judged(candidates: Iterator[Candidate | Refusal], asked: TaskConditions, jobs: int) -> Iterator[TrainingTask | Refusal]:
    """Yields outcomes in the order of the candidates. One that kills its process is tried once more alone, then refused."""
    pool = _pool(jobs)
    queue: deque[tuple[Candidate | Refusal, Future[TrainingTask | Refusal] | None]] = deque()
    try:
        while True:
            while len(queue) < jobs * _AHEAD and (candidate := next(candidates, None)) is not None:
                queue.append((candidate, None if isinstance(candidate, Refusal) else pool.submit(judge, candidate, asked)))
            if not queue:
                return
            candidate, future = queue.popleft()
            if isinstance(candidate, Refusal) or future is None:
                assert isinstance(candidate, Refusal)
                yield candidate
                continue
            try:
                yield future.result()
            except BrokenProcessPool:
                pool.shutdown(wait=True, cancel_futures=True)
                yield _alone(candidate, asked)
                pool = _pool(jobs)
                queue = deque(
                    (item, None if isinstance(item, Refusal) else pool.submit(judge, item, asked)) for item, _ in queue
                )
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _alone(candidate: Candidate, asked: TaskConditions) -> TrainingTask | Refusal:
    with _pool(1) as pool:
        try:
            return pool.submit(judge, candidate, asked).result()
        except BrokenProcessPool:
            why = "its process was killed: too much memory, or a crash"
            return Refusal(candidate=candidate.number, filter="runs", why=why, structure=candidate.structure)


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Worker processes that are replaced from time to time, since torch's caches grow."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=begin, max_tasks_per_child=1000)
