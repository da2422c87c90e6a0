"""Turns recorded events with their times into a `SystemProfile`: assigns each kernel and copy to its call and region.

Device work belongs to the call during which any thread of the process launched it, and to the innermost region of that thread
at that time. Work of a CUDA graph belongs to the region in which it was captured, whenever that was. Times are nanoseconds of
one clock. It knows no file format.
Where to look next: `tools/profile/nsys_export.py`, `tools/profile/cupti_trace.py` (read recordings),
`tools/profile/system_profile.py` (the record).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from stitchcuda.tools.profile.innermost_range import InnermostRanges
from stitchcuda.tools.profile.ranges import CALL_RANGE, REGION_PREFIX, TRACED_RANGE
from stitchcuda.tools.profile.system_profile import (
    ELSEWHERE,
    GRAPH,
    NO_PLACE,
    CopyTime,
    Gaps,
    HostCall,
    KernelTime,
    Origin,
    RegionTime,
    Source,
    SystemProfile,
    short_name,
)

_NS = 1e6                                  # in a millisecond
MOST_IN_TURN = 12                          # launches of one kernel in a region that are told one by one
_LAUNCH = re.compile(r"^cu(?:da)?(?:Launch(?!Host)|GraphLaunch)")
_SYNC = re.compile(r"^cu(?:da)?\w*Synchronize")


class Range(NamedTuple):
    """A named range of a thread: a profiled call or a region."""

    name: str
    start: int
    end: int
    process: int
    thread: int


class ApiCall(NamedTuple):
    """A call of CUDA's API on the host."""

    name: str
    start: int
    end: int
    process: int
    thread: int
    correlation: int                       # the same as that of the work it launched, unique in its process


class GraphCapture(NamedTuple):
    """When, and by which thread of its process, work was captured into a CUDA graph."""

    thread: int
    time: int


class DeviceWork(NamedTuple):
    """A kernel, a copy, or a whole CUDA graph whose kernels were not recorded one by one."""

    kind: Literal["kernel", "copy", "graph"]
    name: str
    origin: Origin
    start: int
    end: int
    process: int
    stream: tuple[int, int, int]           # device, context, stream
    correlation: int
    of_graph: bool = False
    size: int = 0                          # bytes copied
    captured: GraphCapture | None = None        # None: in no graph, or not known


class Recording(NamedTuple):
    """The events of one recording. Ranges of one thread are nested.

    `traced` are further calls, with ranges of regions, which slow the host down: kernels and regions are counted in these,
    times and host calls in `calls`. Without `traced`, all is counted in `calls`. Work launched in neither is left out; a
    region outside of them shows where a CUDA graph was captured.
    """

    calls: Sequence[Range]
    traced: Sequence[Range]
    regions: Sequence[Range]
    api: Sequence[ApiCall]
    work: Sequence[DeviceWork]


def recording_of(ranges: Sequence[Range], api: Sequence[ApiCall], work: Sequence[DeviceWork]) -> Recording:
    """Sorts ranges by their names, which are those of `tools/profile/ranges.py`; others are left out."""
    return Recording(
        calls=[item for item in ranges if item.name == CALL_RANGE],
        traced=[item for item in ranges if item.name == TRACED_RANGE],
        regions=[
            item._replace(name=item.name.removeprefix(REGION_PREFIX)) for item in ranges if item.name.startswith(REGION_PREFIX)
        ],
        api=api,
        work=work,
    )


class _Placed(NamedTuple):
    """Work with its region, and when it was launched."""

    work: DeviceWork
    region: str
    launched: int
    of_graph: bool


def profile_of(
    recording: Recording, *, source: Source = "nsys", why: str = "", notes: Sequence[str] = ()
) -> SystemProfile:
    """Returns the profile of the calls in a recording; it is empty without calls or without work in them."""
    calls = [*recording.calls, *recording.traced]
    timed = range(len(recording.calls))
    counted = range(len(timed), len(calls)) if recording.traced else timed
    within, inside = _covers(calls), _by_thread(recording.regions)
    placed, lost = _place(recording, within, inside)
    work = [_without_waiting(placed[call]) for call in counted]
    api = [entry for entry in recording.api if within[entry.process].at(entry.start) in timed]
    named = _named(work, _host_times([calls[call] for call in counted], inside), max(1, len(counted)))
    doubts = _doubts([entry for call in work for entry, _ in call], lost)
    facts: dict[str, Any] = {"source": source, "why": why, "notes": (*notes, *doubts)}
    return SystemProfile(**facts, **_timing([placed[call] for call in timed], api), **named)


def _covers(calls: Sequence[Range]) -> defaultdict[int, InnermostRanges[int]]:
    """Returns, by process, the ranges of its calls, labelled with their numbers."""
    ranges = defaultdict(list)
    for number, call in enumerate(calls):
        ranges[call.process].append((call.start, call.end, number))
    return defaultdict(lambda: InnermostRanges[int](()), {process: InnermostRanges(each) for process, each in ranges.items()})


def _by_thread(regions: Sequence[Range]) -> defaultdict[tuple[int, int], InnermostRanges[str]]:
    ranges = defaultdict(list)
    for region in regions:
        ranges[region.process, region.thread].append((region.start, region.end, region.name))
    return defaultdict(lambda: InnermostRanges[str](()), {thread: InnermostRanges(each) for thread, each in ranges.items()})


def _place(
    recording: Recording,
    within: defaultdict[int, InnermostRanges[int]],
    inside: defaultdict[tuple[int, int], InnermostRanges[str]],
) -> tuple[defaultdict[int, list[_Placed]], int]:
    """Returns work by call, and how much work since the first call has no recorded launch."""
    began = min((call.start for call in (*recording.calls, *recording.traced)), default=0)
    launches: dict[tuple[int, int], ApiCall] = {}
    for entry in sorted(recording.api, key=lambda call: call.start):
        launches.setdefault((entry.process, entry.correlation), entry)
    placed, lost = defaultdict[int, list[_Placed]](list), 0
    for work in recording.work:
        launch = launches.get((work.process, work.correlation))
        if launch is None:
            lost += work.start >= began
            continue
        call = within[launch.process].at(launch.start)
        if call is not None:
            of_graph = work.of_graph or "GraphLaunch" in launch.name
            region = inside[launch.process, launch.thread].at(launch.start) or ELSEWHERE
            region = GRAPH if of_graph and region in NO_PLACE else region
            if work.captured is not None:
                region = inside[work.process, work.captured.thread].at(work.captured.time) or region
            placed[call].append(_Placed(work, region, launch.start, of_graph))
    return placed, lost


def _host_times(calls: Sequence[Range], inside: defaultdict[tuple[int, int], InnermostRanges[str]]) -> dict[str, int]:
    """Returns the nanoseconds that the calling threads spent in each region itself; the rest is `ELSEWHERE`."""
    times = defaultdict[str, int](int)
    for call in calls:
        left = call.end - call.start
        for took, name in inside[call.process, call.thread].parts(call.start, call.end):
            if name is not None:
                times[name] += took
                left -= took
        times[ELSEWHERE] += left
    return times


def _without_waiting(call: Sequence[_Placed]) -> list[tuple[_Placed, int]]:
    """Returns a call's work with the nanoseconds that it worked: what overlaps with work before it in its stream is left out. A
    dependent launch starts early and waits there (griddepcontrol.wait)."""
    ended, took = defaultdict[tuple[int, tuple[int, int, int]], int](int), [0] * len(call)
    for place in sorted(range(len(call)), key=lambda place: call[place].work.start):
        work = call[place].work
        stream = work.process, work.stream
        took[place] = max(0, work.end - max(work.start, ended[stream]))
        ended[stream] = max(ended[stream], work.end)
    return list(zip(call, took, strict=True))


def _in_turn(calls: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Returns the milliseconds of the first, second, … launch, as means over the calls; () where their numbers differ."""
    if len({len(each) for each in calls}) != 1 or not 1 < len(calls[0]) <= MOST_IN_TURN:
        return ()
    return tuple(sum(same) / _NS / len(calls) for same in zip(*calls, strict=True))


def _named(work: Sequence[Sequence[tuple[_Placed, int]]], host: dict[str, int], calls: int) -> dict[str, Any]:
    """Returns the fields `kernels` and `regions` of a profile."""
    total = sum(took for call in work for _, took in call) or 1
    kernels, regions = defaultdict[tuple[str, Origin, str], list[int]](list), defaultdict[str, list[int]](list)
    turns = defaultdict[tuple[str, Origin, str], list[list[int]]](lambda: [[] for _ in work])
    for number, call in enumerate(work):
        for entry, took in call:
            kernels[entry.work.name, entry.work.origin, entry.region].append(took)
            regions[entry.region].append(took)
        for entry, took in sorted(call, key=lambda item: item[0].work.start):
            turns[entry.work.name, entry.work.origin, entry.region][number].append(took)
    return {
        "kernels": tuple(
            KernelTime(
                name=name,
                short=short_name(name),
                origin=origin,
                region=region,
                launches=len(took) / calls,
                ms=sum(took) / _NS / calls,
                share=sum(took) / total,
                in_turn=_in_turn(turns[name, origin, region]),
            )
            for (name, origin, region), took in sorted(kernels.items(), key=lambda item: -sum(item[1]))
        ),
        "regions": tuple(
            RegionTime(
                name=name,
                device_ms=sum(regions[name]) / _NS / calls,
                host_ms=host.get(name, 0) / _NS / calls,
                launches=len(regions[name]) / calls,
                share=sum(regions[name]) / total,
            )
            for name in sorted({*regions, *host}, key=lambda name: (-sum(regions[name]), -host.get(name, 0)))
            if {*regions, *host} != {ELSEWHERE}
        ),
    }


def _timing(calls: Sequence[Sequence[_Placed]], api: Sequence[ApiCall]) -> dict[str, Any]:
    """Returns the fields for times, gaps, streams, copies and host calls, as means over `calls`."""
    many, placed = max(1, len(calls)), [entry for call in calls for entry in call]
    busy = span = elapsed = 0
    gaps: list[tuple[int, str]] = []
    for call in filter(None, calls):
        ordered = sorted((entry.work for entry in call), key=lambda work: work.start)
        now = first = ordered[0].start
        for work in ordered:
            if work.start > now:
                gaps.append((work.start - now, work.name))
            busy += max(0, work.end - max(now, work.start))
            now = max(now, work.end)
        span += now - first
        elapsed += now - min(entry.launched for entry in call)
    longest = max(gaps, default=(0, ""))
    kernels = [entry for entry in placed if entry.work.kind == "kernel"]
    syncs = [entry for entry in api if _SYNC.match(entry.name)]
    return {
        "calls": len(calls),
        "span_ms": span / _NS / many,
        "busy_ms": busy / _NS / many,
        "idle_ms": (span - busy) / _NS / many,
        "elapsed_ms": elapsed / _NS / many,
        "gaps": Gaps(
            count=len(gaps) / many,
            total_ms=sum(gap for gap, _ in gaps) / _NS / many,
            longest_ms=longest[0] / _NS,
            before=short_name(longest[1]),
        ),
        "launches": len(kernels) / many,
        "host_launches": sum(bool(_LAUNCH.match(entry.name)) for entry in api) / many,
        "graph_launches": sum("GraphLaunch" in entry.name for entry in api) / many,
        "graph_share": sum(kernel.of_graph for kernel in kernels) / len(kernels) if kernels else None,
        "streams": len({entry.work.stream for entry in placed}),
        "overlap_ms": (sum(entry.work.end - entry.work.start for entry in placed) - busy) / _NS / many,
        "syncs": len(syncs) / many,
        "sync_ms": sum(sync.end - sync.start for sync in syncs) / _NS / many,
        "host": _host_calls(api, many),
        "copies": _copies(placed, many),
    }


def _host_calls(api: Sequence[ApiCall], calls: int) -> tuple[HostCall, ...]:
    times = defaultdict[str, list[int]](list)
    for entry in api:
        times[entry.name].append(entry.end - entry.start)
    ranked = sorted(times.items(), key=lambda item: -sum(item[1]))
    return tuple(HostCall(name=name, calls=len(took) / calls, ms=sum(took) / _NS / calls) for name, took in ranked)


def _copies(placed: Sequence[_Placed], calls: int) -> tuple[CopyTime, ...]:
    kinds = defaultdict[str, list[DeviceWork]](list)
    for entry in placed:
        if entry.work.kind == "copy":
            kinds[entry.work.name.removeprefix("copy ")].append(entry.work)
    times = [
        CopyTime(
            kind=kind,
            count=len(each) / calls,
            size=sum(work.size for work in each) / calls,
            ms=sum(work.end - work.start for work in each) / _NS / calls,
        )
        for kind, each in kinds.items()
    ]
    return tuple(sorted(times, key=lambda copy: -copy.ms))


def _doubts(work: Sequence[_Placed], lost: int) -> list[str]:
    said = []
    if lost:
        said.append(f"left out: kernels and copies whose launch was not recorded, {lost} in all")
    if any(entry.work.kind == "graph" for entry in work):
        said.append("CUDA graphs were recorded as wholes: record with --cuda-graph-trace=node to see the kernels in them")
    return said
