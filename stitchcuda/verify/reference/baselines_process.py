"""Starts the process that times baselines, reads its answers line by line, and kills it with everything it started.

An answer counts as late when it takes longer than the caller's limit; time that the worker spends waiting for other timings on
the same GPU is not counted, up to an hour. Compiler caches are empty for each process, so that a compile time is that of a
first compilation. It times nothing itself.
Where to look next: `verify/reference/baselines.py` (who asks), `verify/reference/baselines_worker.py` (what runs there).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stitchcuda.sandbox.limits import clean_environment

_LONGEST_WAIT_S = 3600.0                   # until other timings on the same GPU have ended


class WorkerLines:
    """The lines of JSON that a worker process prints. `late`: reading was given up because the worker took too long.

    `log`: the file with the process' stderr.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._held = b""
        self.late = False

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Returns the next answer, or None where none came within `seconds` or the process ended.

        Its waits for the GPU are not counted: the worker prints {"waiting": true} before one and {"waiting": false} after it.
        """
        until = time.monotonic() + seconds
        waiting_since: float | None = None
        while True:
            line = self._line(until)
            if line is None:
                return None
            answer: dict[str, Any] = json.loads(line)
            if answer.get("waiting"):
                waiting_since = time.monotonic()
                until += _LONGEST_WAIT_S
            elif "waiting" in answer and waiting_since is not None:
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
def start_worker(order: dict[str, Any], scratch: Path) -> Iterator[WorkerLines]:
    """Starts a worker for `order` (keys: reference, precision, device, modes) and yields its answers.

    When the block ends, the worker and everything it started are killed. `scratch`: a folder for compiler caches and the log.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}
    extra = {name: str(scratch / folder) for name, folder in caches.items()}
    extra["HOME"] = os.environ.get("HOME", str(scratch))
    extra |= {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}  # locks for the GPU are files in it
    log = scratch / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "stitchcuda.verify.reference.baselines_worker", json.dumps(order)],
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
