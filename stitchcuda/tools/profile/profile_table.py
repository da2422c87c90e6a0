"""Prints a `SystemProfile` as a table, alone or before and after, by region and by kernel.

Pure functions that return plain text without colours, for terminals, logs and prompts.
Where to look next: `tools/profile/profile_text.py` (the same in sentences), `tools/profile/system_profile.py` (the record).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stitchcuda.tools.profile.profile_text import amount, clipped, count, ms, percent
from stitchcuda.tools.profile.system_profile import KernelTime, Origin, RegionTime, SystemProfile

WIDTH = 100
_ROWS = 10                                 # of regions and of kernels, each; the rest is one line
_NAME = 46                                 # columns of the first cell
_NONE = "-"
_UNDER_RANGES = "* in calls in which ranges mark the regions and slow the host down: more than in a plain call"


def table(profile: SystemProfile, *, rows: int = _ROWS) -> str:
    """Returns a table of regions, then of kernels, longest first, at most `rows` of each. Times are of one call."""
    blocks = []
    if profile.regions:
        head = _row("region", ("device ms", "share", "launches", "host ms*"))
        blocks.append([head, *_regions(profile.regions, rows), _UNDER_RANGES])
    if profile.kernels:
        head = _row("kernel", ("device ms", "share", "launches", "whose"))
        blocks.append([head, *_kernels(profile.by_name(), rows)])
    if not blocks:
        blocks.append([f"nothing but the time of a call is known: {ms(profile.span_ms)}"])
    return "\n\n".join("\n".join(block) for block in blocks)


def comparison(
    before: SystemProfile, after: SystemProfile, *, names: tuple[str, str] = ("before", "after"), rows: int = _ROWS
) -> str:
    """Returns two profiles side by side: the call as a whole, then regions, then kernels, by the longer of both times."""
    first, second = (clipped(name, 9) for name in names)
    blocks = [[_row("one call", (first, second, "change", "")), *_figures(before, after)]]
    columns = (f"{first} ms", f"{second} ms", "change", "launches")
    if before.regions and after.regions:
        blocks.append([_row("region", columns), *_paired(_by_region(before), _by_region(after), rows)])
    if before.kernels and after.kernels:
        blocks.append([_row("kernel", columns), *_paired(_by_kernel(before), _by_kernel(after), rows)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{clipped(name, _NAME):{_NAME}}{''.join(f' {cell:>12}' for cell in cells)}".rstrip()


def _regions(regions: Sequence[RegionTime], rows: int) -> list[str]:
    def row(name: str, some: Sequence[RegionTime]) -> str:
        host = [region.host_ms for region in some if region.host_ms is not None]
        cells = (
            _ms(sum(region.device_ms for region in some)),
            percent(sum(region.share for region in some)),
            count(sum(region.launches for region in some)),
            _ms(sum(host)) if host else _NONE,
        )
        return _row(name, cells)

    return [*(row(region.name, [region]) for region in _head(regions, rows)), *_rest(regions, rows, row), row("all", regions)]


def _kernels(kernels: Sequence[KernelTime], rows: int) -> list[str]:
    def row(name: str, some: Sequence[KernelTime]) -> str:
        whose: dict[Origin, None] = dict.fromkeys(kernel.origin for kernel in some)
        cells = (
            _ms(sum(kernel.ms for kernel in some)),
            percent(sum(kernel.share for kernel in some)),
            count(sum(kernel.launches for kernel in some)),
            next(iter(whose)) if len(whose) == 1 else "",
        )
        return _row(name, cells)

    return [*(row(kernel.short, [kernel]) for kernel in _head(kernels, rows)), *_rest(kernels, rows, row), row("all", kernels)]


def _head(many: Sequence[Any], rows: int) -> Sequence[Any]:
    return many if len(many) <= rows + 1 else many[:rows]


def _rest(many: Sequence[object], rows: int, row: Callable[..., str]) -> list[str]:
    left = many[len(_head(many, rows)) :]
    return [row(f"({len(left)} more)", left)] if left else []


def _many(number: float) -> str:
    return count(number) if number < 9999.5 else f"{number / 1000:.0f}k"


def _ms(value: float) -> str:
    return f"{value:.3f}"


def _figures(before: SystemProfile, after: SystemProfile) -> Iterable[str]:
    """Yields rows for the figures that both profiles have and that are not zero in both."""

    def host(profile: SystemProfile) -> float | None:
        return sum(call.ms for call in profile.host) if profile.host else None

    def moved(profile: SystemProfile) -> float:
        return sum(copy.size for copy in profile.copies)

    figures: list[tuple[str, float | None, float | None, Callable[[float], str]]] = [
        ("on the device, first to last work", before.span_ms, after.span_ms, ms),
        ("device busy", before.busy_ms, after.busy_ms, ms),
        ("device idle in between", before.idle_ms, after.idle_ms, ms),
        ("first launch to end of the last kernel", before.elapsed_ms, after.elapsed_ms, ms),
        ("host inside of CUDA's API", host(before), host(after), ms),
        ("host waits for the device", before.sync_ms, after.sync_ms, ms),
        ("kernels", before.launches, after.launches, count),
        ("launches by the host", before.host_launches, after.host_launches, count),
        ("CUDA graph launches", before.graph_launches, after.graph_launches, count),
        ("copied", moved(before), moved(after), amount),
    ]
    for name, was, other, said in figures:
        if was is not None and other is not None and (was or other):
            yield _row(name, (said(was), said(other), _change(was, other)))


def _change(before: float, after: float) -> str:
    return _NONE if not before else f"{100 * (after / before - 1):+.0f} %"


def _by_region(profile: SystemProfile) -> dict[str, tuple[float, float]]:
    return {region.name: (region.device_ms, region.launches) for region in profile.regions}


def _by_kernel(profile: SystemProfile) -> dict[str, tuple[float, float]]:
    """Adds up kernels by their short name, by which people tell them apart."""
    times: dict[str, tuple[float, float]] = {}
    for kernel in profile.kernels:
        took, launches = times.get(kernel.short, (0.0, 0.0))
        times[kernel.short] = (took + kernel.ms, launches + kernel.launches)
    return times


def _paired(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], rows: int
) -> Iterable[str]:
    nothing = (0.0, 0.0)
    both = [(name, before.get(name, nothing), after.get(name, nothing)) for name in {**before, **after}]
    both = [pair for pair in both if pair[1] != nothing or pair[2] != nothing]
    both.sort(key=lambda pair: -max(pair[1][0], pair[2][0]))

    def row(name: str, some: Sequence[tuple[str, tuple[float, float], tuple[float, float]]]) -> str:
        (old, was), (new, now) = ([sum(part) for part in zip(*(pair[side] for pair in some), strict=True)] for side in (1, 2))
        cells = (_ms(old) if was else _NONE, _ms(new) if now else _NONE, f"{new - old:+.3f}", f"{_many(was)} -> {_many(now)}")
        return _row(name, cells)

    yield from (row(pair[0], [pair]) for pair in _head(both, rows))
    yield from _rest(both, rows, row)
    yield row("all", both)
