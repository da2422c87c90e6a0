"""Interleaved timing on a GPU: reference, previous program and program take turns in blocks, each in its own process.

Only one is active at a time. Each block is a fixed number of single calls on a cold L2 with the device idle before
(`stopwatch.py`); a saving is the median over rounds of the difference of the block medians, so that a drift of clocks hits
all three alike. Its 95 % interval comes from order statistics of the rounds. Where to look next: `judge.py`.
"""

from __future__ import annotations

import random
from statistics import median

from stitchcuda.state import TimingResult
from stitchcuda.tools.exam import InputSet
from stitchcuda.sandbox.limits import Limits
from stitchcuda.tools.worker import Worker

ROUNDS = 25
CALLS = 8
_WARM_CALLS = 10
# The first call of a block pays for the switch between the processes' contexts (0.13 ms on an H200) and is not counted.
_SWITCH = 1
# Binomial(25, 1/2): the 8th smallest and 8th largest of 25 hold the median with 95.7 %.
_RANK = 7
_CLOCKS_AGREE = 1.5                        # the host's clock over the events', before a note is made
_SHORT_MS = 0.05                           # below this the host's clock measures itself


def interleaved(reference: Worker, previous: Worker, program: Worker, given: InputSet, bounds: Limits) -> TimingResult:
    """Time three workers on one input set; `previous` may be the program's own worker. Raises `WorkerFailed`."""
    def block(worker: Worker, calls: int) -> dict[str, list[float]]:
        fields = {"inputs": str(given.inputs), "structure": given.structure} if worker is not reference else {"seed": 0}
        return worker.ask("time", seconds=bounds.call_s, doing="being timed", calls=calls, **fields)

    workers = {"reference": reference, "previous": previous, "program": program}
    if previous is program:
        del workers["previous"]
    for worker in workers.values():
        block(worker, _WARM_CALLS)
    medians: dict[str, list[float]] = {name: [] for name in workers}
    host: list[float] = []
    order = list(workers)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            said = block(workers[name], _SWITCH + CALLS)
            medians[name].append(median(said["events_ms"][_SWITCH:]))
            if name == "program":
                host.append(median(said["host_ms"][_SWITCH:]))
    medians.setdefault("previous", medians["program"])
    savings = sorted(before - now for before, now in zip(medians["previous"], medians["program"], strict=True))
    event, clock = median(medians["program"]), median(host)
    notes = []
    if event > _SHORT_MS and clock > _CLOCKS_AGREE * event:
        notes.append(f"the host's clock says {clock:.3f} ms where the device's events say {event:.3f} ms")
    return TimingResult(
        reference_ms=median(medians["reference"]),
        previous_ms=median(medians["previous"]),
        program_ms=event,
        saving_ms=median(savings),
        saving_low_ms=savings[_RANK],
        saving_high_ms=savings[-1 - _RANK],
        samples=ROUNDS * CALLS,
        notes=tuple(notes),
    )
