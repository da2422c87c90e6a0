"""Defines the record of a figure: plotly traces and layout as plain data, the same numbers as a table, and a caption.

Colours are named by what they stand for ("@own"): `templates/page.css` defines them, for light and for dark. Text from models
and programs must go through `untrusted_text.label` first, since plotly interprets a little HTML.

Where to look next: `report/figures.py`, `report/profile_figures.py` (the figures), `report/page.py` (the page).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from stitchcuda.report.untrusted_text import label
from stitchcuda.state import Record

ORIGINS = {
    "own": "own kernels", "vendor": "vendor libraries", "framework": "framework operators", "copy": "copies",
    "graph": "CUDA graphs, not seen into", "idle": "device idle",
}  # fmt: skip
"""The origins of device time, each with its name for people. A colour of the page is named after each."""


class Figure(Record):
    """One figure. `says` is its content in a sentence, for a reader who cannot see it."""

    id: str
    title: str
    says: str = ""
    empty: str = ""                        # why nothing is drawn
    traces: tuple[dict[str, Any], ...] = ()
    layout: dict[str, Any] = Field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()            # what a reader must know to interpret it

    @property
    def drawing(self) -> dict[str, Any]:
        """The data for the page's script, which draws the figure."""
        return {"data": self.traces, "layout": self.layout, "says": self.says}


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def attempts_axis(last: int) -> dict[str, Any]:
    """The axis of attempts up to the number `last`: from 0, whole numbers only."""
    steps = (lead * 10**power for power in range(6) for lead in (1, 2, 5))
    return axis("attempt", rangemode="tozero", tick0=0, dtick=next(step for step in steps if last <= 16 * step))


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """The axis of `bars`, from top to bottom. Names that look like numbers or dates stay names."""
    return axis("", type="category", categoryorder="array", categoryarray=list(names), autorange="reversed", automargin=True)


def bars(
    name: str, colour: str, names: Sequence[str], values: Sequence[float], texts: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """The plotly trace of horizontal bars. `names`: axis labels made by `unique_labels`; `texts`: what hovering shows."""
    trace: dict[str, Any] = {
        "type": "bar", "orientation": "h", "name": name, "y": list(names), "x": list(values), "marker": {"color": colour},
        "hovertemplate": "%{text}<extra></extra>" if texts else "%{x:.4g}<extra>" + name + "</extra>",
    }  # fmt: skip
    return trace | ({"text": list(texts), "textposition": "none"} if texts else {}) | more


def unique_labels(names: Iterable[str], width: int = 36) -> list[str]:
    """Escaped labels for an axis, at most `width` characters each. Equal ones are numbered, since they would share a place."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        text = label(name, width)
        seen[text] = seen.get(text, 0) + 1
        found.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return found


def height(rows: int, *, row: int = 30) -> int:
    """The height in pixels of a figure with so many rows of bars, of `row` pixels each."""
    return max(240, 130 + row * rows)


def ms(value: float | None) -> str:
    """A time with three significant digits, as "0.0353 ms" or "4.56 µs"; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.3g} ms" if abs(value) >= 0.01 or value == 0 else f"{1000 * value:.3g} µs"
