"""Starts the process that times baselines, reads its answers line by line, and kills it with everything it started.

An answer counts as late when it takes longer than the caller's limit; time that the worker spends waiting for other timings on
the same GPU is not counted, up to an hour. Compiler caches are empty for each process, so that a compile time is that of a
first compilation. It times nothing itself.
Where to look next: `verify/reference/baselines.py` (who asks), `verify/reference/baselines_worker.py` (what runs there).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from stitchcuda.sandbox.limits import clean_environment
from stitchcuda.state import Precision, Record

_LONGEST_WAIT_S = 3600.0                   # until other timings on the same GPU have ended


Mode = Literal["eager", "graph", "compile", "max-autotune"]


class BaselineTime(Record):
    """The time of one mode. `ms` is None where it was not timed; then `failed` says why."""

    mode: Mode
    ms: float | None = None                # median of one call
    low_ms: float | None = None            # 95 % interval
    high_ms: float | None = None
    eager_ms: float | None = None          # median of eager calls in turns with these, in the same process
    samples: int = 0                       # blocks of calls that the median is of
    compile_s: float = 0.0                 # seconds until the first call had returned; for a graph, until it was captured
    agrees: bool | None = None             # with the reference, within the bound that a program is given
    precision: str = ""                    # what matrix products, convolutions and autocast were set to
    note: str = ""                         # graph breaks, the output that disagrees, ...
    failed: str = ""
    passing: bool = False                  # the failure may pass, such as a full memory: it is not cached
    limit_s: float = 0.0                   # seconds that it was given

    @property
    def speedup(self) -> float | None:
        """How many times faster than eager; None where either was not timed."""
        return self.eager_ms / self.ms if self.ms and self.eager_ms else None


class BaselineOrder(Record):
    """What a worker process is to time."""

    reference: Path
    precision: Precision
    device: Literal["cuda", "cpu"]
    modes: tuple[Mode, ...]


class BaselineAnswer(Record):
    """A line that a worker process prints: it has prepared the reference (no field), or cannot, has timed a mode, begins to
    wait for the GPU, or has waited for it."""

    bad_input: str = ""
    time: BaselineTime | None = None
    waiting: bool | None = None


class WorkerLines:
    """The answers that a worker process prints as lines of JSON. `late`: reading was given up because the worker took too long.

    `log`: the file with the process' stderr.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._held = b""
        self.late = False

    def next(self, seconds: float) -> BaselineAnswer | None:
        """Returns the next answer, or None where none came within `seconds` or the process ended. Waits for the GPU are not
        counted."""
        until = time.monotonic() + seconds
        waiting_since: float | None = None
        while True:
            line = self._line(until)
            if line is None:
                return None
            answer = BaselineAnswer.model_validate_json(line)
            if answer.waiting:
                waiting_since = time.monotonic()
                until += _LONGEST_WAIT_S
            elif answer.waiting is False and waiting_since is not None:
                until += time.monotonic() - waiting_since - _LONGEST_WAIT_S
            else:
                return answer

    def why_ended(self, seconds: float) -> str:
        """Returns why `next(seconds)` gave None, in a few words. Waits for the process to end unless it was late."""
        if self.late:
            return f"not done within {seconds:g} s"
        code = self._process.wait()
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process ended ({how}): {last[0][:300]}"

    def _line(self, until: float) -> bytes | None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._held:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self.late = True
                return None
            data = os.read(descriptor, 1 << 16)
            if not data:
                return None
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line


@contextlib.contextmanager
def start_worker(order: BaselineOrder, scratch: Path) -> Iterator[WorkerLines]:
    """Starts a worker and yields its answers.

    When the block ends, the worker and everything it started are killed. `scratch`: a folder for compiler caches and the log.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}
    extra = {name: str(scratch / folder) for name, folder in caches.items()}
    extra["HOME"] = os.environ.get("HOME", str(scratch))
    extra |= {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}  # locks for the GPU are files in it
    log = scratch / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "stitchcuda.verify.reference.baselines_worker", order.model_dump_json()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=clean_environment(extra),
            start_new_session=True,
        )  # fmt: skip
    try:
        yield WorkerLines(process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
