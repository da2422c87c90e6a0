"""Records of what a program has to beat: the times of the reference in each mode, and what their worker is told and says.

They are times of the reference alone; no verdict depends on them. Nothing is timed here.
Where to look next: `verify/reference/baselines.py` (starts the worker), `verify/reference/baselines_worker.py` (times).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, get_args

from stitchcuda.state import Digest, Precision, Record

Mode = Literal["eager", "graph", "compile", "max-autotune", "channels-last"]
MODES: tuple[Mode, ...] = get_args(Mode)
MODE_NAMES: dict[Mode, str] = {
    "eager": "eager", "graph": "CUDA graph", "compile": "torch.compile", "max-autotune": "max-autotune",
    "channels-last": "channels-last compile",
}  # fmt: skip


class BaselineTime(Record):
    """The time of one mode. `ms` is None where it was not timed; then `failed` says why, or `note` that the mode does not suit
    the reference."""

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


class BaselineOrder(Record):
    """What a worker is to time, in its command line as JSON."""

    reference: Path
    precision: Precision
    device: Literal["cuda", "cpu"]
    modes: tuple[Mode, ...]


class BaselineLine(Record):
    """One line that a worker prints: a time, or a wait for the GPU that begins or ends, or that the reference cannot be used;
    if it is none of these, the reference is prepared."""

    time: BaselineTime | None = None
    waiting: bool | None = None
    bad_input: str = ""


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
