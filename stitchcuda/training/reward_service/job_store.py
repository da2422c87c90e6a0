"""Keeps the reward service's jobs in one SQLite file, so that a server that is killed loses none and answers none twice.

    STORE/jobs.sqlite     jobs with their programs and answers, and idempotency keys
    STORE/references/     references of jobs, by digest
    STORE/work/           programs while they are judged

One server owns a store at a time. Write-ahead logging with synchronous=NORMAL: a killed process loses no committed step.
Where to look next: `training/reward_service/jobs.py` (who takes jobs out), `training/reward_service/app.py` (who puts them in).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.store.files import write_atomically
from stitchcuda.training.reward_service.records import JobAnswer, JobRequest, JobSeconds

_FILE = "jobs.sqlite"
_OUT_OF_TURN = 16                          # jobs in a row that may go before an older one, because their reference is loaded
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, digest TEXT NOT NULL, task TEXT NOT NULL, reference TEXT NOT NULL,
    program TEXT NOT NULL, reward TEXT NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL, started REAL, after REAL NOT NULL DEFAULT 0, answer TEXT
);
CREATE INDEX IF NOT EXISTS by_digest ON jobs (digest);
CREATE INDEX IF NOT EXISTS unfinished ON jobs (state, number) WHERE state IN ('queued', 'running');
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, job TEXT NOT NULL);
"""


class QueueFull(StitchError):
    """The queue holds as many jobs as it may."""


class KeyTaken(StitchError):
    """An idempotency key was sent with another request before."""


@dataclass(frozen=True)
class ClaimedJob:
    """A job to be judged now."""

    answer: JobAnswer                      # as far as it is known
    reference: Path
    program: str | dict[str, str]


class JobStore:
    """The jobs in one folder. Any thread may call its methods; each is one transaction."""

    def __init__(self, folder: Path, environment: str, *, most_waiting: int = 2000) -> None:
        """`environment`: device and versions, for duplicates. Jobs that were running are queued again. Raises `Unavailable` if
        another server owns the folder or it cannot be written, `BadInput` if it holds something else."""
        self.folder, self.environment, self._most = folder, environment, most_waiting
        self._lock, self._out_of_turn = threading.Lock(), 0
        try:
            (folder / "references").mkdir(parents=True, exist_ok=True)
            self._owned = (folder / "lock").open("ab")
            fcntl.flock(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder / "work", ignore_errors=True)
            (folder / "work").mkdir(exist_ok=True)
        except BlockingIOError as error:
            raise Unavailable(f"another reward service uses {folder}: stop it, or give another --store") from error
        except OSError as error:
            raise Unavailable(f"cannot write to {folder} ({error.strerror}): give another --store") from error
        try:
            self._jobs = sqlite3.connect(folder / _FILE, check_same_thread=False, isolation_level=None)
            self._jobs.execute("PRAGMA journal_mode=WAL")
            self._jobs.execute("PRAGMA synchronous=NORMAL")
            self._jobs.executescript(_TABLES)
            self._jobs.execute("UPDATE jobs SET state = 'queued', after = 0 WHERE state = 'running'")
        except sqlite3.Error as error:
            self._owned.close()
            raise BadInput(f"{folder / _FILE} cannot be used ({error}): give another --store") from error

    def close(self) -> None:
        with self._lock:
            self._jobs.close()
            self._owned.close()

    def add(self, asked: JobRequest, task: str, source: str) -> tuple[JobAnswer, bool]:
        """Returns the job for a request, and whether it is new. A request that was made before has the job that it had.

        `task`: the name of the reference `source`. Raises `QueueFull`, `KeyTaken`, `Unavailable`.
        """
        reference = hashlib.sha256(source.encode()).hexdigest()[:24]
        program = json.dumps(asked.program, sort_keys=True)
        digest = hashlib.sha256(json.dumps([reference, program, asked.reward, self.environment]).encode()).hexdigest()
        file = self.folder / "references" / f"{reference}.py"
        if not file.is_file():
            write_atomically(file, source.encode())
        with self._lock, self._jobs:
            self._jobs.execute("BEGIN IMMEDIATE")
            if asked.idempotency_key:
                kept = self._jobs.execute(
                    "SELECT id, digest FROM jobs JOIN keys ON id = job WHERE key = ?", (asked.idempotency_key,)
                ).fetchone()
                if kept and kept[1] != digest:
                    raise KeyTaken("this idempotency_key was sent with another task, program or schema: use a new one")
                if kept:
                    return self._read(kept[0]), False
            known = self._jobs.execute(
                "SELECT id, answer FROM jobs WHERE digest = ? ORDER BY number DESC LIMIT 1", (digest,)
            ).fetchone()
            fresh = known is None or (known[1] is not None and JobAnswer.model_validate_json(known[1]).state == "infra_error")
            id = known[0] if known and not fresh else uuid.uuid4().hex
            if fresh:
                (waiting,) = self._jobs.execute("SELECT count(*) FROM jobs WHERE state = 'queued'").fetchone()
                if waiting >= self._most:
                    raise QueueFull(f"{waiting} jobs wait, and no more may: ask again later")
                self._jobs.execute(
                    "INSERT INTO jobs (id, digest, task, reference, program, reward, state, created) "
                    "VALUES (?, ?, ?, ?, ?, ?, 'queued', ?)",
                    (id, digest, task, reference, program, asked.reward, time.time()),
                )
            if asked.idempotency_key:
                self._jobs.execute("INSERT INTO keys VALUES (?, ?)", (asked.idempotency_key, id))
            return self._read(id), fresh

    def read(self, id: str) -> JobAnswer | None:
        """A job as it is now; None if there is none of this id."""
        with self._lock:
            try:
                return self._read(id)
            except LookupError:
                return None

    def claim(self, loaded: Collection[str]) -> ClaimedJob | None:
        """Takes the next job out of the queue: of those whose reference is in `loaded` (digests) the oldest, or after some that
        went out of turn the oldest of all. None if none waits."""
        now = time.time()
        ready = "SELECT id, reference FROM jobs WHERE state = 'queued' AND after <= ?"
        with self._lock, self._jobs:
            self._jobs.execute("BEGIN IMMEDIATE")
            found = self._jobs.execute(f"{ready} ORDER BY number LIMIT 1", (now,)).fetchone()
            if found is None:
                return None
            oldest = found
            if self._out_of_turn < _OUT_OF_TURN:
                marks = ", ".join("?" * len(loaded))
                found = self._jobs.execute(
                    f"{ready} AND reference IN ({marks}) ORDER BY number LIMIT 1", (now, *loaded)
                ).fetchone() or oldest
            self._out_of_turn = 0 if found == oldest else self._out_of_turn + 1
            self._jobs.execute("UPDATE jobs SET state = 'running', started = ? WHERE id = ?", (now, found[0]))
            (program,) = self._jobs.execute("SELECT program FROM jobs WHERE id = ?", (found[0],)).fetchone()
            return ClaimedJob(self._read(found[0]), self.folder / "references" / f"{found[1]}.py", json.loads(program))

    def put_back(self, id: str, *, after_s: float) -> None:
        """Queues a running job again, for a try that begins in `after_s` seconds at the earliest."""
        with self._lock:
            self._jobs.execute(
                "UPDATE jobs SET state = 'queued', tries = tries + 1, after = ? WHERE id = ?", (time.time() + after_s, id)
            )

    def finish(self, answer: JobAnswer) -> None:
        """Keeps the answer to a running job. An answer that is there already stays."""
        with self._lock:
            self._jobs.execute(
                "UPDATE jobs SET state = 'finished', answer = ? WHERE id = ? AND answer IS NULL",
                (answer.model_dump_json(), answer.id),
            )

    def counts(self) -> dict[str, int]:
        """How many jobs are queued, and how many are running."""
        with self._lock:
            found = dict(self._jobs.execute(
                "SELECT state, count(*) FROM jobs WHERE state IN ('queued', 'running') GROUP BY state"
            ).fetchall())  # fmt: skip
        return {state: found.get(state, 0) for state in ("queued", "running")}

    def _read(self, id: str) -> JobAnswer:
        found = self._jobs.execute(
            "SELECT task, reward, state, tries, created, started, answer FROM jobs WHERE id = ?", (id,)
        ).fetchone()
        if found is None:
            raise LookupError(id)
        task, reward, state, tries, created, started, answer = found
        if answer is not None:
            return JobAnswer.model_validate_json(answer)
        until = started if state == "running" else time.time()
        return JobAnswer(
            id=id, state=state, task=task, reward_schema=reward, tries=tries, environment=self.environment,
            seconds=JobSeconds(queued=max(0.0, until - created)),
        )  # fmt: skip
