"""Times what a program has to beat: the reference eager, as a CUDA graph, compiled, and compiled with max-autotune.

Command line:

    python -m stitchcuda.verify.reference.baselines REFERENCE [--skip max-autotune] [--limit 120]
        [--precision reference] [--json]

Each mode is timed in another process, in turns with eager calls and with a cold L2, as the judge times programs. The best
baseline is the fastest one whose outputs agree with the reference within the judge's error bound. A mode that fails or takes
longer than LIMIT_S says why; the others are timed all the same. Times are cached by reference, precision, GPU, driver and
torch. No generated program is run here, and the verdict does not depend on these times.
Where to look next: `verify/reference/baselines_process.py` (starting the process), `verify/reference/baselines_worker.py`
(what it times and how).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Digest, Precision, Record
from stitchcuda.store import write_atomically
from stitchcuda.tools.device.ceilings import torch_versions
from stitchcuda.tools.device.nvidia_smi import first_gpu
from stitchcuda.tools.device.toolkit import user_cache
from stitchcuda.verify.reference.baselines_process import BaselineOrder, BaselineTime, Mode, WorkerLines, start_worker

MODES: tuple[Mode, ...] = get_args(Mode)
LIMIT_S = 120.0                            # for each mode: compiling, comparing, timing
SETUP_S = 600.0                            # importing torch, loading the reference, its outputs in float64


class BaselineTimes(Record):
    """The times of all modes for one reference on one machine."""

    reference: Digest                      # SHA-256 of its file
    name: str
    device: str                            # the GPU's name, or "cpu"
    driver: str = ""
    torch: str = ""
    cuda: str = ""                         # the CUDA version that torch was built for
    requested: Precision = "reference"
    times: tuple[BaselineTime, ...] = ()
    skipped: str = ""                      # why nothing was timed at all
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> BaselineTime | None:
        """The fastest mode whose outputs agree with the reference; None where there is none."""
        timed = [time for time in self.times if time.ms is not None and time.agrees]
        return min(timed, key=lambda time: time.ms or 0.0, default=None)

    def find(self, mode: Mode) -> BaselineTime | None:
        return next((time for time in self.times if time.mode == mode), None)

    @property
    def cache_key(self) -> str:
        """The cache's file name: a hash of everything that a time depends on."""
        about = self.model_dump_json(exclude={"times", "skipped", "notes", "name"})
        return hashlib.sha256(about.encode()).hexdigest()[:24]


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


def format_table(found: BaselineTimes) -> str:
    """Returns the times as a table for people and prompts, one line for each mode, ending with the best and the notes."""
    where = ", ".join(filter(None, [found.device, f"driver {found.driver}" if found.driver else "", f"torch {found.torch}"]))
    if found.skipped:
        return f"baselines of {found.name}: not timed ({found.skipped})"
    rows = [("baseline", "ms", "95 % interval", "over eager", "compile s", "agrees")]
    rows += [_row(time) for time in found.times]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"baselines of {found.name} on {where}; precision {found.requested}; medians, cold L2"]
    for row, time in zip(rows, (None, *found.times), strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([*cells, _remarks(time) if time else ""]).rstrip())
    best = found.best
    lines.append(f"best: {best.mode}, {best.ms:.4f} ms" if best else "best: none agrees with the reference")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _remarks(time: BaselineTime) -> str:
    return "; ".join(filter(None, [time.precision, time.note, f"failed: {time.failed}" if time.failed else ""]))


def _row(time: BaselineTime) -> tuple[str, str, str, str, str, str]:
    agrees = {True: "yes", False: "NO", None: "-"}[time.agrees]
    if time.ms is None:
        return time.mode, "-", "-", "-", "-", agrees
    over = f"{time.speedup:.2f}x" if time.speedup else "-"
    return time.mode, f"{time.ms:.4f}", f"{time.low_ms:.4f} to {time.high_ms:.4f}", over, f"{time.compile_s:.1f}", agrees


def _time_missing(
    reference: Path, precision: Precision, device: Literal["cuda", "cpu"], modes: list[Mode], limit_s: float
) -> tuple[list[BaselineTime], str]:
    """Returns (times, why the rest is missing). After a mode that ended its worker process, the next modes get a new one."""
    found: list[BaselineTime] = []
    with tempfile.TemporaryDirectory(prefix="stitchcuda-baselines-", ignore_cleanup_errors=True) as scratch:
        while missing := modes[len(found):]:
            order = BaselineOrder(reference=reference, precision=precision, device=device, modes=tuple(missing))
            with start_worker(order, Path(scratch)) as answers:
                times, failure = _read_times(answers, missing, limit_s)
            found += times
            if failure:
                return found, failure
    return found, ""


def _read_times(answers: WorkerLines, modes: Sequence[Mode], limit_s: float) -> tuple[list[BaselineTime], str]:
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
        if answer is None:
            why = answers.why_ended(limit_s)
            found.append(BaselineTime(mode=mode, failed=why, limit_s=limit_s, passing=not answers.late))
            break
        assert answer.time is not None
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
        return bool(time.failed)
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a reference eager, as a CUDA graph, compiled and with max-autotune.")
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
