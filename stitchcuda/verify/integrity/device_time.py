"""Device time by origin on a GPU: own kernels, vendor libraries, framework operators, through CUPTI.

`record` runs in the program worker, with torch's recorder below Python's reach; `summary` runs where the names are known that
the builder made (`tools/build/kernel_names.py`): those are the program's own whatever they are called, and a vendor's is named
as cuBLAS, cuDNN and their kin name theirs. CUPTI needs no counter permission. Where to look next:
`verify/integrity/byte_traffic.py` (the same question on the simulator), `verify/ablation/ablation.py` (whose counts unmask a
kernel under a borrowed name), `tools/profile/nsys.py` (who reads the lines).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C import _profiler

from stitchcuda import counts
from stitchcuda.tools.build.kernel_names import base_name, classify, in_library

# Taken before a program is imported: what it puts into these modules later changes nothing here.
_prepare = torch._C._autograd._prepare_profiler
_enable = torch._C._autograd._enable_profiler
_disable = torch._C._autograd._disable_profiler
_sleep = time.sleep
_Mark = _profiler._RecordFunctionFast
_ACTIVITIES = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
_NEXT, _TORCHS = "spin_kernel", "at::cuda::"  # what torch.cuda._sleep launches, and where it lies
_HEAD_START = 1_000_000                    # cycles, about half a millisecond
_COPY = "Memcpy DtoD"                      # plain and of one layout: everything else is a kernel
_WARM_CALLS = 3
_ON_HOST = ("ProfilerStep", "Activity Buffer")
_MOVES = re.compile(r"mem(cpy|set)|copy|CatArray|fill|gather|scatter|index|transpose|roll|flip|repeat|triu|tril", re.IGNORECASE)


def built_kernels(libraries: Iterable[Path]) -> tuple[str, ...]:
    """Full names of the kernels in the libraries that the builder made for a program."""
    return tuple(dict.fromkeys(name for library in libraries for name in in_library(library)))


def record(
    call: Callable[[], object], *, restore: Callable[[], None], renew: Callable[[], None] | None = None
) -> dict[str, Any]:
    """What the device did in a warm call, in all streams: rows of [name, start ns, duration ns, stream], and graph replays.

    `renew` puts contents that were never there before where the call finds its inputs: they are recorded, and `again` holds the
    names of what they cause a second time. `late` names work that went on in other streams when the call's own was done.
    """
    for _ in range(_WARM_CALLS):           # whoever records a graph for these addresses has done so
        restore()
        call()
    restore()
    if renew is not None:
        renew()
    torch.cuda.synchronize()
    first = _recorded(call)
    if renew is not None:
        restore()
        first["again"] = [row[0] for row in _recorded(call)["rows"]]
    return first


def record_idle(seconds: float) -> list[str]:
    """What the device did for this process first while nobody called, in so many seconds: its name, if it did anything."""
    return [str(row[0]) for row in _recorded(lambda: _sleep(seconds))["rows"][:1]]


def _recorded(call: Callable[[], object]) -> dict[str, Any]:
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False, _profiler._ExperimentalConfig()
    )
    _prepare(config, _ACTIVITIES)
    _enable(config, _ACTIVITIES)
    _say(begun := secrets.token_hex(16))
    torch.cuda._sleep(_HEAD_START)  # type: ignore[no-untyped-call, unused-ignore]  # all is launched before anything starts
    call()
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call, unused-ignore]  # the caller's next: it waits for what was joined
    torch.cuda.synchronize()
    _say(ended := secrets.token_hex(16))   # known to nobody before: a recording that was begun anew lacks one or the other
    rows: list[list[Any]] = []
    said = []
    asked, graphs, correlated = set(), set(), []  # copies and replays that the host asked for, and of what each row is part
    for event in _disable().events():
        name = str(event.name())
        if name in (begun, ended) and not str(event.device_type()).endswith("CUDA"):
            said.append(name)
        if str(event.device_type()).endswith("CUDA"):
            if not name.startswith(_ON_HOST) and not event.is_user_annotation():
                rows.append([name, event.start_ns(), event.duration_ns(), event.device_resource_id()])
                correlated.append(event.correlation_id())
        elif name.startswith("cudaGraphLaunch") or name.startswith("cuGraphLaunch"):
            graphs.add(event.correlation_id())
        elif name.startswith("cudaMemcpyAsync"):
            asked.add(event.correlation_id())
    if sorted(said) != sorted((begun, ended)):
        raise RuntimeError("the recording of this call was ended while it went on")
    ours = _ours(rows)
    late = [
        row[0] for row in rows
        if ours and row[3] != rows[ours[-1]][3] and row[1] + row[2] > rows[ours[-1]][1]
    ]  # fmt: skip
    kept = [row for place, row in enumerate(zip(rows, correlated, strict=True)) if place not in ours]
    copies = [place for place, (row, number) in enumerate(kept) if number in asked and row[0].startswith(_COPY)]
    replayed = [place for place, (_, number) in enumerate(kept) if number in graphs]
    return {"rows": [row for row, _ in kept], "replays": len(graphs), "late": late, "copies": copies, "replayed": replayed}


def _ours(rows: Sequence[Sequence[Any]]) -> list[int]:
    """Where the two launches around the call are: the first and the last of this name in the caller's stream. A program may
    call its kernels so as well."""
    known = [(row[1], place) for place, row in enumerate(rows) if row[0].startswith(_TORCHS) and _NEXT in row[0]]
    named = sorted(known or [(row[1], place) for place, row in enumerate(rows) if _NEXT in row[0]])
    same = [place for _, place in named if rows[place][3] == rows[named[0][1]][3]]
    return [same[0], same[-1]] if len(same) > 1 else same


def _say(text: str) -> None:
    with _Mark(text):
        pass


def share_taken_over(reference: Mapping[str, Any], program: Mapping[str, Any], own: Iterable[str]) -> tuple[float, float]:
    """(share of the reference's device time that own kernels took over, how much of what is gone other library kernels do).

    What the program launches less often, by name, is gone; what it launches oftener and is not its own has come instead.
    Nothing is taken over by own kernels that come on top of all that the reference does. Both lie between 0 and 1.
    """
    names = frozenset(own)
    left: dict[str, list[int]] = {}        # times of launches beyond the reference's
    for name, _, took, _ in _rows(program):
        if classify(name, names) != "own":
            left.setdefault(name, []).append(took)
    total = gone = 0
    for name, _, took, _ in _rows(reference):
        total += took
        if left.get(name):
            left[name].pop()
        else:
            gone += took
    come = sum(map(sum, left.values()))
    return max(0.0, (gone - come) / total) if total else 1.0, min(1.0, come / gone) if gone else 0.0


def share_without_copies(
    reference: Mapping[str, Any], program: Mapping[str, Any], own: Iterable[str], *, most: int
) -> tuple[float, float]:
    """What `taken` says without the copies into and out of a CUDA graph that the call replays; zeros where there are none.

    Those are copies on the device that the host asks for outside of the graph, at most `most`: one for each input and output.
    No trace says from where and to where. So what the reference does only to move data counts as done by the program too.
    """
    rows, places = _rows(program), _places(program, "copies")
    plain = all(rows[place][0].startswith(_COPY) for place in places)
    if not (plain and 0 < len(places) <= most and _count(program.get("replays"))):
        return 0.0, 0.0
    left = [row for place, row in enumerate(rows) if place not in places]
    moved = [row for row in _rows(reference) if _MOVES.search(row[0])]
    return share_taken_over(reference, {"rows": [list(row) for row in (*left, *moved)]}, own)


def summarize(recorded: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """{own, vendor, framework} shares of device time, launches of own kernels, time by kernel.

    `span_ms` is from the first kernel's start to the last one's end, `busy_ms` what kernels took, so their difference is
    time in which the device waited for the host. `own_launches` counts own kernels by full name; `streams` those with work.
    `replays` is 0 where what graphs do is less than half of what libraries do outside, copies at their boundary left out.
    """
    own = frozenset(own)
    totals = {"own": 0.0, "vendor": 0.0, "framework": 0.0}
    kernels: dict[str, list[float]] = {}
    launches: dict[str, int] = {}
    starts: list[float] = []
    ends: list[float] = []
    rows = _rows(recorded)
    for name, start, took, _ in rows:
        kind = classify(name, own)
        totals[kind] += took
        if kind == "own":
            launches[name] = launches.get(name, 0) + 1
        starts.append(float(start))
        ends.append(float(start) + float(took))
        entry = kernels.setdefault(name, [0.0, 0])
        entry[0] += took
        entry[1] += 1
    total = sum(totals.values())
    elsewhere = int(totals["vendor"] + totals["framework"])
    replayed, copied = (sum(rows[place][2] for place in _places(recorded, which)) for which in ("replayed", "copies"))
    again = recorded.get("again")
    repeated = [name for name in again if isinstance(name, str)] if isinstance(again, list) else None
    late = recorded.get("late")
    ranked = sorted(kernels.items(), key=lambda item: -item[1][0])[:20]
    return {
        **{kind: took / total if total else 0.0 for kind, took in totals.items()},
        "elsewhere": elsewhere,
        "launches": sum(launches.values()),
        "own_launches": launches,
        "kernels": [[name, took / 1e6, int(count), classify(name, own)] for name, (took, count) in ranked],
        "launched": int(sum(count for _, count in kernels.values())),
        "busy_ms": total / 1e6,
        "span_ms": (max(ends) - min(starts)) / 1e6 if ends else 0.0,
        "streams": len({row[3] for row in rows}),
        "replays": _count(recorded.get("replays")) if replayed and 2 * replayed >= elsewhere - copied else 0,
        "late": [str(name)[:120] for name in late[:3]] if isinstance(late, list) else [],
        "again": sum(classify(name, own) == "own" for name in repeated) if repeated is not None else sum(launches.values()),
        "host_share": sum(took for name, _, took, _ in rows if name.startswith("Memcpy DtoH")) / total if total else 0.0,
    }


def own_times(recorded: Mapping[str, Any], own: Iterable[str]) -> dict[str, int]:
    """Device nanoseconds of own kernels by full name."""
    own, times = frozenset(own), dict[str, int]()
    for name, _, took, _ in _rows(recorded):
        if classify(name, own) == "own":
            times[name] = times.get(name, 0) + took
    return times


def _rows(recorded: Mapping[str, Any]) -> list[tuple[str, int, int, int]]:
    """The rows that are rows: a worker may send anything."""
    rows = recorded.get("rows")
    return [
        (str(row[0]), _count(row[1]), _count(row[2]), _count(row[3]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 4
    ]


def _places(recorded: Mapping[str, Any], which: str) -> set[int]:
    """Of rows, by number: each once, and none that is not there."""
    named, count = recorded.get(which), len(_rows(recorded))
    return {place for place in named if type(place) is int and 0 <= place < count} if isinstance(named, list) else set()


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def find_borrowed_names(seen: Mapping[str, int], counted: Mapping[str, int]) -> tuple[str, ...]:
    """Own kernels by name that the device ran oftener than their own switches counted: the name is someone else's.

    `seen` are launches by full name in the trace, `counted` those that `verify/ablation/ablation.py` reports for one call, by
    switch. A kernel without a switch (written by another file's macro, say) is not compared.
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


def profile(call: Callable[[], object], own: Iterable[str], *, restore: Callable[[], None]) -> dict[str, Any]:
    """`record` and `summary` in one."""
    return summarize(record(call, restore=restore), own)
