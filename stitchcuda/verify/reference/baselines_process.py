"""The process that times baselines, from outside: what it says line by line, and its end, with all it started.

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

_LONGEST_WAIT_S = 3600.0                   # for a turn on a GPU that other timings use


class WorkerLines:
    """Lines of JSON from a worker. `late` says that it was given up because it took too long."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._held = b""
        self.late = False

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next answer within so many seconds, not counting its waits for a turn; None where there is none."""
        until = time.monotonic() + seconds
        waiting_since: float | None = None
        while True:
            line = self._line(until)
            if line is None:
                return None
            said: dict[str, Any] = json.loads(line)
            if said.get("waiting"):
                waiting_since = time.monotonic()
                until += _LONGEST_WAIT_S
            elif "waiting" in said and waiting_since is not None:
                until += time.monotonic() - waiting_since - _LONGEST_WAIT_S
            else:
                return said

    def ended(self, seconds: float) -> str:
        """Why there was no answer, in a few words."""
        if self.late:
            return f"not done within {seconds:g} s"
        code = self._process.wait()
        said = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process ended ({how}): {said[0][:300]}"

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
def started(order: dict[str, Any], scratch: Path) -> Iterator[WorkerLines]:
    """A worker for this order. When it is left, the worker and everything it started are gone.

    Compilers keep what they make below `scratch`, so that each compile time is that of a first compilation.
    """
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}
    extra = {name: str(scratch / folder) for name, folder in caches.items()}
    extra["HOME"] = os.environ.get("HOME", str(scratch))
    extra |= {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}  # turns on the GPU are taken by files there
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
