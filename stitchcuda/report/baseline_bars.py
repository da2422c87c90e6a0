"""Makes the bars that show the program beside its baselines: speed-ups over eager, or predicted times if nothing was timed.

Each baseline was timed in turns with eager in a process of its own. So speed-ups over eager can be compared between processes;
milliseconds could not.

Where to look next: `report/figures.py` (figures over attempts), `verify/reference/baselines.py` (the times).
"""

from __future__ import annotations

from stitchcuda.report.findings import Findings
from stitchcuda.state import Record
from stitchcuda.verify.reference.baseline_times import MODE_NAMES


class Bar(Record):
    """One bar. `percent`: its length in percent of the longest; `ours`: it is the program's."""

    name: str
    text: str
    percent: float
    ours: bool = False


def make_bars(found: Findings) -> tuple[Bar, ...]:
    """The bars of a session's card; none if it claims no speed-up and no prediction."""
    card = found.card
    if card.speedup is not None:
        times = found.baselines.times if found.baselines else ()
        others = [time for time in times if time.agrees and time.mode != "eager"]
        beside = [(MODE_NAMES[time.mode], time.speedup) for time in others if time.speedup]
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
