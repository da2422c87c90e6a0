"""Makes the figures of profiles: where the time of a call goes, and how close kernels come to the device's limits.

If a program was not profiled, its figure says why.

Where to look next: `report/figures.py` (attempts, tasks), `tools/profile/system_profile.py` (where the profiles come from).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stitchcuda.counts import counted
from stitchcuda.report.figure import ORIGINS, Figure, axis, bars, height, ms, names_axis, unique_labels
from stitchcuda.report.findings import Findings, TimeProfile
from stitchcuda.report.untrusted_text import clipped, label
from stitchcuda.state import DeviceFacts
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from stitchcuda.tools.profile.system_profile import KernelTime, SystemProfile

_PROGRAMS = 6                              # most rows of the timeline: the reference and the latest programs
_SEGMENTS = 24                             # most kernels of a row that have a segment of their own
_ROWS = 200                                # most rows of the timeline's table
_KERNELS = 8                               # most kernels of the roofline
_TIMELINE = "where the time of one call goes, before and after"
_NO_ORDER = (
    "Kernels stand in the order of their time, not of their launch: a profile keeps sums. Times under a profiler are longer "
    "than those above."
)


def timeline(found: Findings) -> Figure:
    """The figure with one row per profiled program: its kernels end to end, then the time in which the device was idle."""
    seen = _first_and_latest([shown for shown in found.seen if shown.profile])
    reasons = [_why(shown) for shown in found.seen if shown.why and shown.title in ("reference", "final program")]
    if not seen:
        return Figure(id="timeline", title=_TIMELINE, empty=" ".join(dict.fromkeys(reasons)) or "No program was profiled yet.")
    names = unique_labels(shown.title for shown in seen)
    segments = [(name, *part) for name, shown in zip(names, seen, strict=True) for part in _segments(shown.profile)]
    traces = []
    for origin, origin_name in ORIGINS.items():
        own = [segment for segment in segments if segment[1] == origin]
        if own:
            traces.append(bars(
                origin_name, f"@{origin}", [name for name, *_ in own], [took for *_, took in own],
                base=[start for *_, start, _ in own],
                hovertext=[f"{label(what, 76)}: {ms(took)}" for *_, what, _, took in own],
                hovertemplate="%{hovertext}<extra></extra>",
                text=[label(what, 28) if origin != "idle" else "" for *_, what, _, took in own],
                textposition="inside", insidetextanchor="middle", insidetextfont={"color": "@paper"},
                marker={"color": f"@{origin}", "line": {"color": "@paper", "width": 1}},
            ))  # fmt: skip
    spans = [shown.profile.span_ms for shown in seen if shown.profile]
    says = f"First to last work on the device: {ms(spans[0])} ({seen[0].title})"
    says += f", then {ms(spans[-1])} ({seen[-1].title})." if len(seen) > 1 else "."
    kernels = [(shown.title, kernel) for shown in seen if shown.profile for kernel in shown.profile.by_name()]
    return Figure(
        id="timeline", title=_TIMELINE, says=says, traces=tuple(traces),
        layout={
            "height": height(len(seen), row=46), "barmode": "overlay", "yaxis": names_axis(names),
            "xaxis": axis("ms of one call", rangemode="tozero"),
        },
        columns=("program", "kernel", "whose", "launches", "on the device", "share"),
        rows=tuple(_row(title, kernel) for title, kernel in kernels[:_ROWS]),
        notes=(_NO_ORDER, *reasons, *_sources(seen), *_note_cut(len(kernels))),
    )  # fmt: skip


def roofline(found: Findings) -> Figure:
    """The figure of arithmetic rate against flop per byte of the longest kernels, below the device's ceilings."""
    title = "roofline of the longest kernels"
    kernels, why = _counted(found)
    placed = [kernel for kernel in kernels if kernel.roofline.intensity and kernel.roofline.flops]
    if not kernels:
        return Figure(id="roofline", title=title, empty=why)
    rows = tuple(_figures(kernel) for kernel in kernels)
    columns = ("kernel", "whose", "share", "time", "flop/byte", "Tflop/s", "memory", "multiprocessors", "bound", "limited by")
    if not placed or found.device is None:
        reason = "Counters do not see the arithmetic of tensor cores, and all of these kernels use them: see shares of peak."
        return Figure(id="roofline", title=title, empty=reason, columns=columns, rows=rows)
    intensities = [kernel.roofline.intensity or 1.0 for kernel in placed]
    seen = [value * beside for value in intensities for beside in (0.25, 4.0)] + [2 * ridge for ridge in _ridges(found.device)]
    low, high = min(0.05, *seen), max(200.0, *seen)
    left_out = len(kernels) - len(placed)
    notes = [f"Of the {found.counters.title}; ceilings {'measured' if found.device.measured else 'nominal'}."]
    if left_out:
        what = f"{counted(left_out, 'kernel')} on tensor cores, whose arithmetic counters do not see"
        notes.append(f"Not drawn: {what}; shares of peak show them.")
    return Figure(
        id="roofline",
        title=title,
        says=f"{counted(len(placed), 'kernel')} below the ceilings of {found.device.name}; the table has the figures.",
        traces=(*_ceilings(found.device, low, high), *(_point(kernel) for kernel in placed)),
        layout={
            "height": 440, "xaxis": axis("flop per byte of device memory", type="log", dtick=1),
            "yaxis": axis("Tflop/s", type="log", dtick=1),
        },
        columns=columns, rows=rows, notes=tuple(notes),
    )  # fmt: skip


def peaks(found: Findings) -> Figure:
    """The figure of the throughput of memory system, multiprocessors and tensor cores, in percent of peak, by kernel."""
    title = "shares of peak of the longest kernels"
    kernels, why = _counted(found)
    lines = [(kernel, kernel.roofline) for kernel in kernels]
    kernels = [kernel for kernel, line in lines if line.memory_percent is not None or line.sm_percent is not None]
    if not kernels:
        return Figure(id="peaks", title=title, empty=why or "The two throughputs were not measured.")
    names = unique_labels(base_name(kernel.name) for kernel in kernels)
    units = (
        ("memory system", "@vendor", [kernel.roofline.memory_percent for kernel in kernels]),
        ("multiprocessors", "@own", [kernel.roofline.sm_percent for kernel in kernels]),
        ("tensor cores", "@framework", [kernel.tensor_percent for kernel in kernels]),
    )
    busiest = kernels[0]
    return Figure(
        id="peaks",
        title=title,
        says=f"{base_name(busiest.name)} is bound by {busiest.bound or 'nothing known'}: {busiest.limiter}.",
        traces=tuple(
            bars(unit, colour, names, [value or 0.0 for value in values], [f"{unit}: {value or 0.0:.0f} %" for value in values])
            for unit, colour, values in units
            if any(values)
        ),
        layout={
            "height": height(len(kernels), row=52), "barmode": "group", "yaxis": names_axis(names),
            "xaxis": axis("percent of peak", range=[0, 100]),
        },
        columns=("kernel", *(unit for unit, *_ in units), "occupancy", "bound by", "limited by"),
        rows=tuple(
            (
                base_name(kernel.name), _percent(kernel.roofline.memory_percent), _percent(kernel.roofline.sm_percent),
                _percent(kernel.tensor_percent), _percent(kernel.occupancy.achieved),
                kernel.bound or "-", kernel.limiter or "-",
            )
            for kernel in kernels
        ),
        notes=(f"Of the {found.counters.title}, under the profiler with a cold cache.",),
    )  # fmt: skip


def _first_and_latest(seen: Sequence[TimeProfile]) -> list[TimeProfile]:
    return list(seen) if len(seen) <= _PROGRAMS else [seen[0], *seen[1 - _PROGRAMS :]]


def _note_cut(rows: int) -> list[str]:
    return [f"The table has the first {_ROWS} of {rows} kernels."] if rows > _ROWS else []


def _why(seen: TimeProfile) -> str:
    return seen.why if seen.why.endswith(("?", ".")) else f"{seen.title}: {seen.why}."


def _segments(profile: SystemProfile | None) -> list[tuple[str, str, float, float]]:
    """Origin, name, start and length in ms of each segment of a row."""
    if profile is None:
        return []
    kernels = profile.by_name()
    parts = [(kernel.origin, f"{_name(kernel)}, {kernel.launches:g}×", kernel.ms) for kernel in kernels[:_SEGMENTS]]
    for origin in ORIGINS:
        rest = [kernel for kernel in kernels[_SEGMENTS:] if kernel.origin == origin]
        if rest:
            parts.append((rest[0].origin, f"{len(rest)} more kernels", sum(kernel.ms for kernel in rest)))
    parts.sort(key=lambda part: list(ORIGINS).index(part[0]))
    found, start = [], 0.0
    for origin, name, took in parts:
        found.append((str(origin), name, start, took))
        start += took
    if not kernels:
        return [("idle", "what ran is not known", 0.0, profile.span_ms)]
    if profile.idle_ms:
        found.append(("idle", "nothing to do", start, profile.idle_ms))
    return found


def _row(title: str, kernel: KernelTime) -> tuple[str, ...]:
    return (title, _name(kernel), kernel.origin, f"{kernel.launches:g}", ms(kernel.ms), f"{100 * kernel.share:.1f} %")


def _name(kernel: KernelTime) -> str:
    return clipped(kernel.short or kernel.name, 60)


def _sources(seen: Sequence[TimeProfile]) -> list[str]:
    lesser = [shown for shown in seen if shown.profile and shown.profile.why]
    return [f"{shown.title}: seen by {shown.profile.source}, since {shown.profile.why}." for shown in lesser if shown.profile]


def _counted(found: Findings) -> tuple[list[KernelProfile], str]:
    counted = found.counters.counted
    if counted is None or not counted.kernels:
        return [], f"No counters: {found.counters.why.rstrip('.')}."
    return list(counted.kernels[:_KERNELS]), ""


def _bandwidth(device: DeviceFacts) -> float:
    """Memory bandwidth in Tbyte/s: times flop per byte it gives Tflop/s."""
    return device.bandwidth_gbs / 1e3


def _ridges(device: DeviceFacts) -> list[float]:
    """For each dtype, the flop per byte from which arithmetic is the limit."""
    bandwidth = _bandwidth(device)
    return [rate / bandwidth for rate in device.tflops.values() if rate > 0] if bandwidth else []


def _ceilings(device: DeviceFacts, low: float, high: float) -> list[dict[str, Any]]:
    """A trace per dtype: the device's bandwidth, up to the dtype's arithmetic rate."""
    bandwidth, traces = _bandwidth(device), []
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
    for place, (dtype, rate) in enumerate(sorted(device.tflops.items(), key=lambda item: item[1])):
        knee, top = rate / bandwidth if bandwidth else low, min(rate, bandwidth * high)
        traces.append({
            "type": "scatter", "mode": "lines", "name": f"{label(dtype)}, {rate:.0f} Tflop/s",
            "x": [low, min(max(knee, low), high), high], "y": [min(bandwidth * low, rate), top, top],
            "line": {"color": "@quiet", "width": 2, "dash": dashes[place % len(dashes)]},
            "hovertemplate": f"{label(dtype)}: {rate:.0f} Tflop/s, {device.bandwidth_gbs:.0f} GB/s<extra></extra>",
        })  # fmt: skip
    return traces


def _point(kernel: KernelProfile) -> dict[str, Any]:
    name = label(base_name(kernel.name), 30)
    colour = f"@{kernel.origin}" if kernel.origin in ORIGINS else "@ink"
    rate, size = (kernel.roofline.flops or 0.0) / 1e12, 10 + 26 * (kernel.share or 0.2) ** 0.5
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": [kernel.roofline.intensity], "y": [rate],
        "marker": {"color": colour, "size": size, "opacity": 0.85, "line": {"color": "@paper", "width": 1}},
        "text": [f"{name}: {rate:.2f} Tflop/s, {kernel.roofline.intensity:.2f} flop/byte"],
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip


def _figures(kernel: KernelProfile) -> tuple[str, ...]:
    line = kernel.roofline
    return (
        base_name(kernel.name), kernel.origin or "-", _percent(None if kernel.share is None else 100 * kernel.share),
        "-" if kernel.duration_us is None else f"{kernel.duration_us:.2f} µs",
        "-" if line.intensity is None else f"{line.intensity:.2f}", "-" if line.flops is None else f"{line.flops / 1e12:.2f}",
        _percent(line.memory_percent), _percent(line.sm_percent), kernel.bound or "-", kernel.limiter or "-",
    )  # fmt: skip


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"
