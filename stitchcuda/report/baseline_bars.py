"""Draws the program's time beside its baselines as bars; the prediction's figures where nothing was timed.

Everything timed is told as times over eager, each in turns with eager in its own process, so bars of different processes can be
compared; milliseconds of different processes could not. Where to look next: `report/figures.py` (figures over attempts).
"""

from __future__ import annotations

from stitchcuda.report.findings import Findings
from stitchcuda.state import Record

_NAMES = {"eager": "eager", "graph": "CUDA graph", "compile": "torch.compile", "max-autotune": "max-autotune"}


class Bar(Record):
    """One bar; `percent` is of the longest."""

    name: str
    text: str
    percent: float
    ours: bool = False


def standing(found: Findings) -> tuple[Bar, ...]:
    """Bars for the card; none where nothing is claimed."""
    card = found.card
    if card.speedup is not None:
        times = found.baselines.times if found.baselines else ()
        beside = [(_NAMES[time.mode], time.speedup) for time in times if time.speedup and time.agrees and time.mode != "eager"]
        figures = [("eager", 1.0), *beside, ("this program", card.speedup)]
        longest = max(value for _, value in figures)
        return tuple(
            Bar(name=name, text=f"{value:.2f}×", percent=100 * value / longest, ours=name == "this program")
            for name, value in figures
        )
    if not card.ratio or found.baseline is None:
        return ()
    before, floor = found.baseline.predicted_ms, found.baseline.floor_ms
    after = card.predicted_ms or before
    figures = [("eager", before), ("this program", after), ("speed of light", floor)]
    return tuple(
        Bar(name=name, text=f"{value:.4f} ms", percent=100 * value / max(before, after, floor), ours=name == "this program")
        for name, value in figures
        if value > 0
    )
