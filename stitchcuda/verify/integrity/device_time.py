"""Measures device time by who spends it on a GPU (own kernels, vendor libraries, torch's operators), through CUPTI.

`record` runs in the program worker and uses torch's recorder below Python's reach. `summarize` runs in the judge, which knows
the names of the kernels that the builder made: those are the program's own, whatever they are called. A kernel named as cuBLAS,
cuDNN and similar libraries name theirs is a vendor's. CUPTI traces need no permission for counters.
Where to look next: `verify/integrity/byte_traffic.py` (the same on the simulator), `verify/ablation/ablation.py` (the launch
counts that `find_borrowed_names` compares with), `tools/build/kernel_names.py` (which names are whose).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C import _profiler

from stitchcuda import counts
from stitchcuda.state import MOST_STEPS
from stitchcuda.tools.build.kernel_names import base_name, classify, in_library
from stitchcuda.tools.profile.system_profile import short_name
from stitchcuda.verify.messages.program_requests import CallWork, DeviceRecording, Row

# Bound before a program is imported, so that it cannot replace them.
_prepare = torch._C._autograd._prepare_profiler
_enable = torch._C._autograd._enable_profiler
_disable = torch._C._autograd._disable_profiler
_sleep = time.sleep
_Mark = _profiler._RecordFunctionFast
_ACTIVITIES = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
_SPIN, _TORCHS = "spin_kernel", "at::cuda::"  # the kernel that torch.cuda._sleep launches, and its namespace
_HEAD_START = 1_000_000                    # cycles, about half a millisecond
_COPY = "Memcpy DtoD"                      # a copy without conversion: any other copy is a kernel
_TO_HOST = "Memcpy DtoH"
_SPREAD = 1.5                              # the same small copy takes up to so many times as long
_WARM_CALLS = 3
_ON_HOST = ("ProfilerStep", "Activity Buffer")
_MOVES = re.compile(r"mem(cpy|set)|copy|CatArray|fill|gather|scatter|index|transpose|roll|flip|repeat|triu|tril", re.IGNORECASE)


def built_kernels(libraries: Iterable[Path]) -> tuple[str, ...]:
    """The full names of the kernels in the libraries that the builder made for a program."""
    return tuple(dict.fromkeys(name for library in libraries for name in in_library(library)))


def record(
    call: Callable[[], Any], *, restore: Callable[[], None], renew: Callable[[], None] | None = None,
    keep: Callable[[Any], int] = lambda result: 0,
) -> DeviceRecording:  # fmt: skip
    """Records what the device does in a warm call, in all streams.

    `restore` puts the program's buffers back before each call. `renew` writes new contents to the inputs' addresses before the
    recorded call, and a second call with the same contents gives `again`. `keep` gets the call's result while the recording
    goes on, copies it, and returns the number of copies.
    """
    for _ in range(_WARM_CALLS):           # a program that records a graph for these addresses has done so by then
        restore()
        call()
    restore()
    if renew is not None:
        renew()
    torch.cuda.synchronize()
    first = _record_call(call, keep)
    if renew is None:
        return first
    restore()
    return DeviceRecording(**vars(first) | {"again": [name for name, *_ in _record_call(call).rows]})


def record_idle(seconds: float) -> list[str]:
    """Waits so many seconds without a call; returns the name of the first thing the device did for this process, if any."""
    return [name for name, *_ in _record_call(lambda: _sleep(seconds)).rows[:1]]


def _record_call(call: Callable[[], Any], keep: Callable[[Any], int] = lambda result: 0) -> DeviceRecording:
    """Records a call between two spin kernels, which bound it. Raises RuntimeError if the call ended the recording."""
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False, _profiler._ExperimentalConfig()
    )
    _prepare(config, _ACTIVITIES)
    _enable(config, _ACTIVITIES)
    _mark(begun := secrets.token_hex(16))
    torch.cuda._sleep(_HEAD_START)  # type: ignore[no-untyped-call, unused-ignore]  # the host can launch all before any starts
    result = call()
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call, unused-ignore]  # starts when the caller's stream has done the call
    torch.cuda.synchronize()
    kept_copies = keep(result)
    torch.cuda.synchronize()
    _mark(ended := secrets.token_hex(16))  # secret until now: a recording that the program began anew lacks one of the two
    rows: list[Row] = []
    marks = []
    asked, graphs, correlated = set(), set(), []  # correlation ids of the host's copies, of its graph launches, of each row
    operators, callers = set(), []         # ids of torch's operators, and of the operator that launched each row (0: none)
    for event in _disable().events():
        name = str(event.name())
        if name in (begun, ended) and not str(event.device_type()).endswith("CUDA"):
            marks.append(name)
        if str(event.device_type()).endswith("CUDA"):
            if not name.startswith(_ON_HOST) and not event.is_user_annotation():
                rows.append((name, event.start_ns(), max(0, event.duration_ns()), event.device_resource_id()))
                correlated.append(event.correlation_id())
                callers.append(event.linked_correlation_id())
        elif name.startswith("aten::"):
            operators.add(event.correlation_id())
        elif name.startswith("cudaGraphLaunch") or name.startswith("cuGraphLaunch"):
            graphs.add(event.correlation_id())
        elif name.startswith("cudaMemcpyAsync"):
            asked.add(event.correlation_id())
    if sorted(marks) != sorted((begun, ended)):
        raise RuntimeError("the recording of this call was ended while it went on")
    ours = _find_spins(rows)
    since = rows[ours[-1]][1] if ours else 0
    after = [place for place, row in enumerate(rows) if ours and row[1] > since]
    ours += [place for place in after if rows[place][0].startswith(_COPY)][:kept_copies]
    late = [
        row[0] for place, row in enumerate(rows)
        if place not in ours and ours and row[1] + row[2] > since and (row[3] != rows[ours[0]][3] or place in after)
    ]  # fmt: skip
    kept = [row for place, row in enumerate(zip(rows, correlated, callers, strict=True)) if place not in ours]
    copies = [place for place, (row, number, _) in enumerate(kept) if number in asked and row[0].startswith(_COPY)]
    replayed = [place for place, (_, number, _) in enumerate(kept) if number in graphs]
    by_torch = [place for place, (*_, caller) in enumerate(kept) if caller in operators]
    return DeviceRecording(
        rows=[row for row, *_ in kept], replays=len(graphs), late=late, copies=copies, replayed=replayed, by_torch=by_torch
    )


def _find_spins(rows: Sequence[Row]) -> list[int]:
    """The positions of the two spin kernels around the call: the first and the last in the caller's stream, since a program
    may name its own kernels so too."""
    known = [(row[1], place) for place, row in enumerate(rows) if row[0].startswith(_TORCHS) and _SPIN in row[0]]
    named = sorted(known or [(row[1], place) for place, row in enumerate(rows) if _SPIN in row[0]])
    same = [place for _, place in named if rows[place][3] == rows[named[0][1]][3]]
    return [same[0], same[-1]] if len(same) > 1 else same


def _mark(text: str) -> None:
    with _Mark(text):
        pass


def share_taken_over(reference: Iterable[Row], program: Iterable[Row], own: Iterable[str]) -> tuple[float, float]:
    """Returns (the share of the reference's device time that own kernels took over, how much of the time that is gone is now
    spent in other library kernels). Both lie between 0 and 1.

    By name, launches that the reference has and the program has not are gone; launches of library kernels that only the program
    has came instead. Example: the reference takes 6 ms in a GEMM and 4 ms in a GELU, the program 6 ms in the same GEMM and 1 ms
    in an own kernel: (0.4, 0.0). Own kernels on top of all that the reference does take nothing over.
    """
    names = frozenset(own)
    left: dict[str, list[int]] = {}        # durations of the program's launches that the reference does not have
    for name, _, took, _ in program:
        if classify(name, names) != "own":
            left.setdefault(name, []).append(took)
    total = gone = 0
    for name, _, took, _ in reference:
        total += took
        if left.get(name):
            left[name].pop()
        else:
            gone += took
    come = sum(map(sum, left.values()))
    return max(0.0, (gone - come) / total) if total else 1.0, min(1.0, come / gone) if gone else 0.0


def share_in_host_copies(reference: Iterable[Row], program: Iterable[Row]) -> float:
    """Returns the share of the program's device time in copies to the host beyond those that the reference makes too, such as
    the number of nonzeros that `to_sparse` asks for."""
    rows = list(program)
    ours, theirs = (sum(took for name, _, took, _ in made if name.startswith(_TO_HOST)) for made in (rows, reference))
    return max(0.0, ours - _SPREAD * theirs) / (sum(took for _, _, took, _ in rows) or 1)


def share_without_copies(
    reference: Iterable[Row], program: DeviceRecording, own: Iterable[str], *, most: int
) -> tuple[float, float]:
    """`share_taken_over` without the copies into and out of a replayed CUDA graph; (0.0, 0.0) if there are no such copies.

    They are copies on the device that the host asked for outside of the graph, at most `most` (one per input and output). A
    trace does not say what is copied where. To be safe, everything that the reference does only to move data counts as if the
    program did it too.
    """
    places = _places(program, program.copies)
    plain = all(program.rows[place][0].startswith(_COPY) for place in places)
    if not (plain and 0 < len(places) <= most and program.replays):
        return 0.0, 0.0
    left = [row for place, row in enumerate(program.rows) if place not in places]
    moved = [row for row in reference if _MOVES.search(row[0])]
    return share_taken_over(reference, [*left, *moved], own)


@dataclass(frozen=True, kw_only=True)
class RecordedWork(CallWork):
    """Who did the work of a recorded call."""

    own_launches: dict[str, int]           # of each own kernel, by its full name
    late: list[str]                        # as in `DeviceRecording`
    again: int                             # launches of own kernels in a second call with the same contents


def summarize(recorded: DeviceRecording, own: Iterable[str], *, calls_vendors: bool) -> RecordedWork:
    """Sums up a recording. `replays` is 0 if graphs do less than half of what library kernels do outside, copies into and out
    of graphs left out. `calls_vendors`: whether the program's own libraries call a vendor's; else torch's operators launched
    all of the vendors' kernels, also those in replayed graphs, whose operators no trace shows."""
    own = frozenset(own)
    totals = {"own": 0, "vendor": 0, "framework": 0}
    launches: dict[str, int] = {}
    by_torch, lent = frozenset(recorded.by_torch), 0
    worked = _without_waiting(recorded.rows)
    for place, ((name, *_), took) in enumerate(zip(recorded.rows, worked, strict=True)):
        kind = classify(name, own)
        totals[kind] += took
        lent += took if kind == "vendor" and (place in by_torch or not calls_vendors) else 0
        if kind == "own":
            launches[name] = launches.get(name, 0) + 1
    total = sum(totals.values())
    elsewhere = totals["vendor"] + totals["framework"]
    replayed, copied = (
        sum(recorded.rows[place][2] for place in _places(recorded, which)) for which in (recorded.replayed, recorded.copies)
    )
    again = recorded.again
    steps = sorted(zip(recorded.rows, worked, strict=True), key=lambda step: step[0][1])[:MOST_STEPS]
    return RecordedWork(
        own=totals["own"] / (total or 1),
        vendor=totals["vendor"] / (total or 1),
        framework=totals["framework"] / (total or 1),
        vendor_by_torch=lent / (total or 1),
        elsewhere=elsewhere,
        launches=sum(launches.values()),
        own_launches=launches,
        replays=recorded.replays if replayed and 2 * replayed >= elsewhere - copied else 0,
        late=recorded.late,
        again=sum(launches.values()) if again is None else sum(classify(name, own) == "own" for name in again),
        steps=[(classify(name, own), short_name(name), took, "", "") for (name, *_), took in steps],
    )


def _without_waiting(rows: Sequence[Row]) -> list[int]:
    """Returns the time of each row, but what overlaps with work before it in its stream: a dependent launch waits for that."""
    ended, worked = dict[int, int](), [0] * len(rows)
    for place in sorted(range(len(rows)), key=lambda place: rows[place][1]):
        _, start, took, stream = rows[place]
        worked[place] = max(0, start + took - max(start, ended.get(stream, start)))
        ended[stream] = max(start + took, ended.get(stream, start))
    return worked


def own_times(recorded: DeviceRecording, own: Iterable[str]) -> dict[str, int]:
    """The device time of each own kernel in nanoseconds, by full name."""
    own, times = frozenset(own), dict[str, int]()
    for name, _, took, _ in recorded.rows:
        if classify(name, own) == "own":
            times[name] = times.get(name, 0) + took
    return times


def _places(recorded: DeviceRecording, named: Iterable[int]) -> set[int]:
    """Those positions that are positions in the rows: the worker is not trusted."""
    return {place for place in named if place < len(recorded.rows)}


def find_borrowed_names(seen: Mapping[str, int], counted: Mapping[str, int]) -> tuple[str, ...]:
    """Finds own kernel names that the device ran more often than their switches counted: another kernel bears the name.

    `seen`: launches by full name in the trace. `counted`: launches of one call by switch, as `verify/ablation/ablation.py`
    reports them. A kernel without a switch (one that a macro of another file writes) is not compared. Returns sentences.
    """
    switches: dict[str, int] = {}
    for name, count in counted.items():
        base = name.partition(":")[2].split("#")[0]
        switches[base] = switches.get(base, 0) + count
    device: dict[str, int] = {}
    for name, count in seen.items():
        device[base_name(name)] = device.get(base_name(name), 0) + count
    return tuple(
        f"the device ran {counts.counted(count, 'kernel')} named {name}, the program launched its own of that name "
        f"{counts.counted(switches[name], 'time')}"
        for name, count in device.items()
        if name in switches and count > switches[name]
    )
