"""Times what a program has to beat: the reference eager, as a CUDA graph, and compiled in three ways.

Command line:

    python -m stitchcuda.verify.reference.baselines REFERENCE [--skip max-autotune] [--limit 300]
        [--precision reference] [--json]

torch.compile is timed by default, with max-autotune, and, if the reference has 4-d convolutions, with its parameters in
channels-last layout.
Each mode is timed in another process, in turns with eager calls and with a cold L2, as the judge times programs. The best
baseline is the fastest one whose outputs agree with the reference within the judge's error bound. A mode that fails or takes
longer than LIMIT_S says why; the others are timed all the same. Times are cached by reference, precision, GPU, driver and
torch. No generated program is run here, and the verdict does not depend on these times.
Where to look next: `verify/reference/baseline_times.py` (the records), `verify/reference/baselines_worker.py` (what is timed in
the process, and how).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Literal, get_args

from pydantic import ValidationError

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.sandbox.limits import clean_environment
from stitchcuda.state import Precision
from stitchcuda.store import write_atomically
from stitchcuda.tools.device.ceilings import torch_versions
from stitchcuda.tools.device.nvidia_smi import first_gpu
from stitchcuda.tools.device.toolkit import user_cache
from stitchcuda.verify.reference.baseline_times import (
    MODES,
    BaselineLine,
    BaselineOrder,
    BaselineTime,
    BaselineTimes,
    Mode,
    format_table,
)

LIMIT_S = 300.0                            # for each mode: compiling, comparing, timing
_LONGEST_WAIT_S = 3600.0                   # until other timings on the same GPU have ended
SETUP_S = 600.0                            # importing torch, loading the reference, its outputs in float64


def time_baselines(
    reference: Path,
    *,
    precision: Precision = "reference",
    device: Literal["cuda", "cpu"] = "cuda",
    modes: Sequence[Mode] = MODES,
    limit_s: float = LIMIT_S,
    cache: Path | None = None,
    again: bool = False,
) -> BaselineTimes:
    """Times `modes` of a reference, except for those whose times are in the folder `cache` (None: the user's cache).

    `limit_s`: seconds for each mode. `again`: time also what is cached. Without a GPU nothing is timed and `skipped` says why;
    device "cpu" times on the CPU and exists for tests. Raises `BadInput` for a reference that cannot be loaded, or that gives
    no repeatable outputs to compare with.
    """
    try:
        data = reference.read_bytes()
    except OSError as error:
        raise BadInput(f"The reference {reference} cannot be read ({error.strerror}): give a file.") from error
    torch, cuda = torch_versions()
    known = BaselineTimes(
        reference=hashlib.sha256(data).hexdigest(), name=reference.name, device=device, torch=torch, cuda=cuda,
        requested=precision,
    )  # fmt: skip
    if device == "cuda":
        gpu, why = first_gpu()
        if gpu is None:
            return known.model_copy(update={"skipped": f"no GPU: {why}"})
        known = known.model_copy(update={"device": gpu.name, "driver": gpu.driver})
    notes: tuple[str, ...] = ()
    path: Path | None = None
    try:
        path = (cache or user_cache()) / "baselines" / f"{known.cache_key}.json"
    except Unavailable as error:           # the user has no home folder: timed all the same
        notes = (f"baselines are not kept: {error}",)
    kept = [] if again or path is None else _read_cached(path, known)
    held = {time.mode: time for time in kept if not time.failed or time.limit_s >= limit_s}
    missing = [mode for mode in modes if mode not in held]
    fresh, skipped = _time_missing(reference, precision, device, missing, limit_s) if missing else ([], "")
    found = held | {time.mode: time for time in fresh}
    if fresh and path is not None:
        notes = _write_cache(path, known, [time for time in found.values() if not time.passing])
    times = tuple(found[mode] for mode in modes if mode in found)
    if skipped and times:
        notes = (*notes, skipped)
    return known.model_copy(update={"times": times, "skipped": "" if times else skipped, "notes": notes})


def _time_missing(
    reference: Path, precision: Precision, device: Literal["cuda", "cpu"], modes: list[Mode], limit_s: float
) -> tuple[list[BaselineTime], str]:
    """Returns (times, why the rest is missing). After a mode that ended its worker process, the next modes get a new one."""
    found: list[BaselineTime] = []
    with tempfile.TemporaryDirectory(prefix="stitchcuda-baselines-", ignore_cleanup_errors=True) as scratch:
        while missing := modes[len(found):]:
            order = BaselineOrder(reference=reference, precision=precision, device=device, modes=tuple(missing))
            with _start_worker(order, Path(scratch)) as answers:
                times, failure = _read_times(answers, missing, limit_s)
            found += times
            if failure:
                return found, failure
    return found, ""


def _read_times(answers: _WorkerLines, modes: Sequence[Mode], limit_s: float) -> tuple[list[BaselineTime], str]:
    """Reads one worker's answers until it ends, fails or is late. Returns (times of the first of `modes`, "" or why no worker
    can time this reference)."""
    ready = answers.next(SETUP_S)
    if ready is None:
        return [], f"the reference could not be prepared: {answers.why_ended(SETUP_S)}"
    if ready.bad_input:
        raise BadInput(ready.bad_input)
    found: list[BaselineTime] = []
    for mode in modes:
        answer = answers.next(limit_s)
        if answer is None or answer.time is None:
            why = answers.why_ended(limit_s)
            found.append(BaselineTime(mode=mode, failed=why, limit_s=limit_s, passing=not answers.late))
            break
        found.append(answer.time.model_copy(update={"limit_s": limit_s}))
        if found[-1].failed:               # a CUDA context may be unusable after a failure
            break
    return found, ""


def _read_cached(path: Path, known: BaselineTimes) -> tuple[BaselineTime, ...]:
    """Returns the cached times of this very reference and machine. What is damaged or impossible is left out, to be timed
    again."""
    try:
        held = BaselineTimes.model_validate_json(path.read_bytes()) if path.is_file() else known
    except (OSError, ValidationError):     # the file is of another version, or was cut off
        return ()
    return tuple(time for time in held.times if _is_plausible(time)) if held.cache_key == known.cache_key else ()


def _is_plausible(time: BaselineTime) -> bool:
    if time.ms is None:
        return bool(time.failed or time.note)
    if time.low_ms is None or time.high_ms is None or time.eager_ms is None or time.agrees is None or time.failed:
        return False
    ordered = 0 < time.low_ms <= time.ms <= time.high_ms < math.inf
    return ordered and 0 < time.eager_ms < math.inf and 0 <= time.compile_s < math.inf


def _write_cache(path: Path, known: BaselineTimes, times: Sequence[BaselineTime]) -> tuple[str, ...]:
    """Adds `times` to the cached ones. Returns notes: empty, or why the cache could not be written."""
    others = {time.mode: time for time in _read_cached(path, known)} | {time.mode: time for time in times}
    kept = known.model_copy(update={"times": tuple(others[mode] for mode in MODES if mode in others)})
    try:
        write_atomically(path, kept.model_dump_json(indent=1).encode())
    except (StitchError, OSError) as error:
        return (f"the times are not kept: {error}",)
    return ()


class _WorkerLines:
    """The lines that a worker process prints. `late`: reading was given up because the worker took too long.

    `log`: the file with the process' stderr.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._held = b""
        self.late = False

    def next(self, seconds: float) -> BaselineLine | None:
        """Returns the next answer, or None where none came within `seconds` or the process ended. The worker's waits for the
        GPU are not counted, up to an hour."""
        until = monotonic() + seconds
        waiting_since: float | None = None
        while True:
            text = self._line(until)
            if text is None:
                return None
            line = BaselineLine.model_validate_json(text)
            if line.waiting is None:
                return line
            if line.waiting:
                waiting_since = monotonic()
                until += _LONGEST_WAIT_S
            elif waiting_since is not None:
                until += monotonic() - waiting_since - _LONGEST_WAIT_S

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
            left = until - monotonic()
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
def _start_worker(order: BaselineOrder, scratch: Path) -> Iterator[_WorkerLines]:
    """Starts a worker and yields its answers. When the block ends, it and everything it started are killed.

    `scratch`: a folder for the log and for compiler caches, which are empty: a compile time is that of a first compilation.
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
        yield _WorkerLines(process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a reference eager, as a CUDA graph, and compiled in three ways.")
    parser.add_argument("reference", type=Path)
    parser.add_argument("--precision", choices=get_args(Precision), default="reference")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--skip", nargs="+", choices=MODES, default=[])
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each mode")
    parser.add_argument("--cache", type=Path, help="where times are kept; else the user's cache")
    parser.add_argument("--again", action="store_true", help="time what is kept, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    modes = [mode for mode in given.only if mode not in given.skip]
    try:
        found = time_baselines(
            given.reference, precision=given.precision, device=given.device, modes=modes, limit_s=given.limit,
            cache=given.cache, again=given.again,
        )  # fmt: skip
    except StitchError as error:
        print(f"baselines: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    best = found.best
    print(json.dumps(found.model_dump() | {"best": best.mode if best else None}) if given.json else format_table(found))
    sys.exit(0 if found.times else 2)


if __name__ == "__main__":
    main()
