"""Describes a `SystemProfile` in words: what limits a call, in one sentence and in a few lines.

The sentence blames the host if the device is idle for `_IDLE` of the time, then copies, then a region or kernel. All are pure.
Where to look next: `tools/profile/system_profile.py` (the record), `tools/profile/profile_table.py` (tables).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.tools.profile.system_profile import NO_PLACE, KernelTime, Origin, SystemProfile

SOURCES: Mapping[str, str] = {"nsys": "Nsight Systems", "cupti": "CUPTI", "events": "CUDA events"}
_SHOWN = 5                                 # regions and kernels in the lines
_IDLE = 0.3                                # share of the span that the device is idle, from which on the host limits
_MOVING = 0.3                              # share of the device time from which on copies to and from the host limit
_SMALL = 0.15                              # share of the largest kernel or region below which no single place limits


def bottleneck(profile: SystemProfile) -> str:
    """Says in one sentence what limits a call."""
    if profile.busy_ms is None:
        return f"not known: only the time of a call was measured, {ms(profile.span_ms)}"
    if not profile.kernels:
        return "no kernel ran"
    if profile.span_ms > 0 and (profile.idle_ms or 0.0) / profile.span_ms > _IDLE:
        return _host_bound(profile)
    moved = [copy for copy in profile.copies if "Host" in copy.kind]
    moving = sum(copy.ms for copy in moved)
    if profile.busy_ms and moving / profile.busy_ms > _MOVING:
        size = sum(copy.size for copy in moved)
        return f"copies between host and device: {ms(moving)} of {ms(profile.busy_ms)} on the device, for {amount(size)}"
    return _device_bound(profile)


def _host_bound(profile: SystemProfile) -> str:
    idle = profile.idle_ms or 0.0
    text = f"the host: the device waits {percent(idle / profile.span_ms)} of the time, {ms(idle)} of {ms(profile.span_ms)}"
    if profile.syncs and profile.syncs >= 0.5:
        times = plural(profile.syncs, "time", "times")
        return f"{text}; the host waits for the device {times} in a call, and launches nothing meanwhile"
    if profile.graph_share is not None and profile.graph_share > 0.5:
        return f"{text}, between {count(profile.graph_launches or 0)} CUDA graph launches and what runs outside of them"
    return f"{text}, while {count(profile.launches)} kernels are launched one by one"


def _device_bound(profile: SystemProfile) -> str:
    kernel = profile.by_name()[0]
    regions = [region for region in profile.regions if region.name not in NO_PLACE]
    if kernel.share < _SMALL and (not regions or regions[0].share < _SMALL):
        largest = f"the largest, {kernel.short}, takes {percent(kernel.share)}"
        return f"no single place: {count(profile.launches)} kernels share {ms(profile.busy_ms or 0.0)}; {largest}"
    if not regions or regions[0].share < kernel.share:
        return f"{_titled(kernel)}: {_share(kernel.ms, kernel.share)}, in {plural(kernel.launches, 'launch', 'launches')}"
    region = regions[0]
    inside = next((found for found in profile.kernels if found.region == region.name), None)
    mostly = f"; mostly {_titled(inside)}, {ms(inside.ms)}" if inside and inside.ms > 0.5 * region.device_ms else ""
    launches = plural(region.launches, "launch", "launches")
    return f"{region.name}: {_share(region.device_ms, region.share)}, in {launches}{mostly}"


def _titled(kernel: KernelTime) -> str:
    kinds = {"copy": "", "graph": "", "own": "own kernel ", "vendor": "vendor kernel ", "framework": "framework kernel "}
    return f"{kinds[kernel.origin]}{clipped(kernel.short, 60)}"


def _share(took: float, share: float) -> str:
    return f"{percent(share)} of the device time, {ms(took)}"


def summary(profile: SystemProfile) -> tuple[str, ...]:
    """Returns at most six lines on the call as a whole: profiler, device, kernels, host, waiting, copies."""
    return (_source(profile), *_device(profile), *_host(profile))


def lines(profile: SystemProfile) -> tuple[str, ...]:
    """Returns lines for people and models: the summary, five regions, five kernels, notes."""
    said = list(summary(profile))
    said += [
        f"region {region.name}: {_share(region.device_ms, region.share)}, {plural(region.launches, 'launch', 'launches')}"
        for region in profile.regions[:_SHOWN]
        if region.launches
    ]
    said += [
        f"{_titled(kernel)}: {_share(kernel.ms, kernel.share)}, {plural(kernel.launches, 'launch', 'launches')}"
        + (f" ({', '.join(ms(took) for took in kernel.in_turn)} in order)" if kernel.in_turn else "")
        + (f", in {kernel.region}" if profile.regions else "")
        for kernel in profile.by_name()[:_SHOWN]
    ]
    return (*said, *profile.notes)


def _source(profile: SystemProfile) -> str:
    scope = "one call" if profile.calls == 1 else f"mean of {profile.calls} calls"
    return f"{SOURCES[profile.source]}, {scope}" + (f" ({profile.why})" if profile.why else "")


def _device(profile: SystemProfile) -> list[str]:
    if profile.busy_ms is None:
        return [f"a call took {ms(profile.span_ms)}; what ran in it is not known"]
    said = f"device: busy {ms(profile.busy_ms)} of {ms(profile.span_ms)}, idle {ms(profile.idle_ms or 0.0)}"
    if profile.gaps and profile.gaps.count:
        many = plural(profile.gaps.count, "gap", "gaps")
        said += f" in {many}, the longest {ms(profile.gaps.longest_ms)} before {clipped(profile.gaps.before, 40)}"
    ran = plural(profile.launches, "kernel", "kernels")
    if profile.graph_launches:
        share = "" if profile.graph_share is None else f" ({percent(profile.graph_share)} of the kernels)"
        ran += f", {plural(profile.graph_launches, 'CUDA graph launch', 'CUDA graph launches')}{share}"
    if profile.streams is not None:
        ran += f", {plural(profile.streams, 'stream', 'streams')}"
    if profile.overlap_ms:
        ran += f", {ms(profile.overlap_ms)} side by side"
    origins: tuple[Origin, ...] = ("own", "vendor", "framework", "copy", "graph")
    shares = ", ".join(f"{origin} {percent(profile.share_of(origin))}" for origin in origins if profile.share_of(origin))
    return [said, f"{ran}; device time: {shares}" if shares else ran]


def _host(profile: SystemProfile) -> list[str]:
    said = []
    if profile.host:
        total = sum(call.ms for call in profile.host)
        most = ", ".join(f"{call.name} {ms(call.ms)} ({count(call.calls)}x)" for call in profile.host[:3])
        said.append(f"host: {ms(total)} inside of CUDA's API, most in {most}")
    if profile.syncs:
        times = plural(profile.syncs, "time", "times")
        said.append(f"the host waits for the device {times}, {ms(profile.sync_ms or 0.0)} in all")
    if profile.copies:
        each = (f"{copy.kind} {count(copy.count)}x, {amount(copy.size)}, {ms(copy.ms)}" for copy in profile.copies)
        said.append(f"copies: {'; '.join(each)}")
    return said


def ms(value: float) -> str:
    """"12.3 ms", three digits that count."""
    if value < 0.00005:
        return "0 ms"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3 if value >= 0.00995 else 4
    return f"{value:.{digits}f} ms"


def percent(share: float) -> str:
    """"42 %" for 0.42."""
    return f"{100 * share:.1f} %" if 0 < share < 0.0095 else f"{100 * share:.0f} %"


def count(number: float) -> str:
    """"3" for 3.0, "2.5" for a mean between."""
    return f"{number:.0f}" if abs(number - round(number)) < 0.05 else f"{number:.1f}"


def plural(number: float, singular: str, many: str) -> str:
    return f"{count(number)} {singular if count(number) == '1' else many}"


def amount(size: float) -> str:
    """"4.2 MB" for bytes."""
    unit = "B"
    for larger in ("kB", "MB", "GB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if size >= 99.5 or unit == "B" else f"{size:.1f} {unit}"


def clipped(text: str, width: int) -> str:
    """At most `width` characters, the middle left out: beginning and end tell kernels apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
