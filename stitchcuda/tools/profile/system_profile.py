"""Defines the record of what one call does on the device and the host, which every profiler fills in.

Nsight Systems fills in all of it, CUPTI less, events only the time of a call: what is unknown is None or empty, never zero, and
`why` says why there is no better source. It runs nothing and reads no file.
Where to look next: `tools/profile/nsys_export.py`, `tools/profile/timeline.py` (fill it in), `tools/profile/profile_text.py`,
`tools/profile/profile_table.py` (describe it).
"""

from __future__ import annotations

import re
from typing import Literal

from stitchcuda.state import Record
from stitchcuda.tools.profile.ranges import ROOT

ELSEWHERE = "(elsewhere)"
"""The region of work that was launched in a call, but in no region's range."""
GRAPH = "(CUDA graph)"
"""The region of work in a CUDA graph that was neither captured nor launched in a known region."""
NO_PLACE = (ELSEWHERE, ROOT, GRAPH)

Source = Literal["nsys", "cupti", "events"]
Origin = Literal["own", "vendor", "framework", "copy", "graph"]

_GENERIC = re.compile(r"^(gpu_kernel_impl\w*|(A|B)?(Una|Bina)ryFunctor|\w*elementwise_kernel\w*|\w*reduce_kernel\w*|ReduceOp)$")
_TELLING = re.compile(r"\b\w*(?:Functor|_kernel|Kernel|_cuda|Ops|_functor|Op)\w*")


class KernelTime(Record):
    """One kernel, copy or whole graph in one region, in one call."""

    name: str                              # full and demangled
    short: str                             # for people
    origin: Origin
    region: str = ELSEWHERE
    launches: float
    ms: float                              # on the device, without waiting for work before it in its stream
    in_turn: tuple[float, ...] = ()        # ms of the first, second, … of a few launches; () for one, for many, or not known
    share: float                           # of all device time, 0 to 1


class RegionTime(Record):
    """What was launched in one region's ranges, in one call."""

    name: str
    device_ms: float
    host_ms: float | None                  # in the range itself, without the ranges inside it
    launches: float
    share: float                           # of all device time, 0 to 1


class HostCall(Record):
    """Calls of one function of CUDA's API in one call."""

    name: str
    calls: float
    ms: float


class CopyTime(Record):
    """Copies of one kind in one call, such as "Host-to-Device"."""

    kind: str
    count: float
    size: float                            # bytes
    ms: float


class Gaps(Record):
    """When the device had nothing to do between its first and its last work of a call."""

    count: float
    total_ms: float
    longest_ms: float                      # in any of the calls
    before: str                            # what ended the longest one, its short name


class SystemProfile(Record):
    """Means over the profiled calls: all counts and times are of one call. None: not known."""

    source: Source
    why: str = ""                          # why no better source, one sentence
    calls: int                             # how many were profiled
    span_ms: float                         # from the first to the last work on the device; events: between the two events
    busy_ms: float | None = None           # of the span, in any stream
    idle_ms: float | None = None           # the rest of it
    elapsed_ms: float | None = None        # from the first launch on the host to the end of the last kernel
    gaps: Gaps | None = None
    launches: float = 0.0                  # kernels that ran
    host_launches: float | None = None     # calls of the API that launch kernels or graphs
    graph_launches: float | None = None
    graph_share: float | None = None       # of kernels, those that a CUDA graph launched
    streams: int | None = None
    overlap_ms: float | None = None        # device time that ran beside other device time
    syncs: float | None = None             # the host waited for the device
    sync_ms: float | None = None
    host: tuple[HostCall, ...] = ()        # longest first
    copies: tuple[CopyTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()   # longest first
    regions: tuple[RegionTime, ...] = ()   # longest first
    notes: tuple[str, ...] = ()            # what to know before believing it

    def share_of(self, origin: Origin) -> float:
        """Returns the share of all device time that work of this origin takes, 0 to 1."""
        return sum(kernel.share for kernel in self.kernels if kernel.origin == origin)

    def by_name(self) -> tuple[KernelTime, ...]:
        """Returns kernels added up over all regions, longest first; `region` is "3 regions" for a kernel in several."""
        groups: dict[tuple[str, Origin], list[KernelTime]] = {}
        for kernel in self.kernels:
            groups.setdefault((kernel.name, kernel.origin), []).append(kernel)
        sums = (
            each[0].model_copy(
                update={
                    "region": each[0].region if len(each) == 1 else f"{len(each)} regions",
                    "launches": sum(launch.launches for launch in each),
                    "ms": sum(launch.ms for launch in each),
                    "share": sum(launch.share for launch in each),
                    "in_turn": each[0].in_turn if len(each) == 1 else (),
                }
            )
            for each in groups.values()
        )
        return tuple(sorted(sums, key=lambda kernel: -kernel.ms))


def grouped(profile: SystemProfile, depth: int = 2) -> SystemProfile:
    """Returns the profile with regions merged by the first `depth` words of their module's path, since a program's kernel may
    do the work of several modules of its reference. List indices (`*`) are no words."""
    groups: dict[str, list[RegionTime]] = {}
    for region in profile.regions:
        path = region.name.partition(":")[0].split(".")
        ends = [place for place, word in enumerate(path) if word != "*"][depth : depth + 1]
        groups.setdefault(".".join(path[: ends[0]] if ends else path), []).append(region)
    sums = [
        RegionTime(
            name=name,
            device_ms=sum(part.device_ms for part in each),
            host_ms=None if any(part.host_ms is None for part in each) else sum(part.host_ms or 0.0 for part in each),
            launches=sum(part.launches for part in each),
            share=sum(part.share for part in each),
        )
        for name, each in groups.items()
    ]
    return profile.model_copy(update={"regions": tuple(sorted(sums, key=lambda part: -part.device_ms))})


def short_name(kernel: str) -> str:
    """Shortens a kernel's name to its base and the telling template argument, as in `elementwise_kernel<MulFunctor>`."""
    plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel).removeprefix("void ")
    head = re.split(r"[<(]", plain)[0]
    if " " in head.strip():                # a copy or another thing in words
        return kernel
    base = head.split("::")[-1].strip()
    telling = [word for word in _TELLING.findall(plain[len(head):]) if not _GENERIC.match(word)]
    return f"{base}<{telling[0]}>" if telling and _GENERIC.match(base) else base
