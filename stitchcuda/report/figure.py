"""The record of a figure: plotly traces and layout as plain data, the same numbers as a table, and a caption.

Colours are named by what they stand for ("@own"): the page's style knows them, for light and for dark. Text of others goes
through `foreign.label` before it gets in here, since plots understand a little HTML. A figure without data says why in `empty`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from stitchcuda.report.untrusted_text import label
from stitchcuda.state import Record

ORIGINS = {
    "own": "own kernels", "vendor": "vendor libraries", "framework": "framework operators", "copy": "copies",
    "graph": "CUDA graphs, not seen into", "idle": "device idle",
}  # fmt: skip
"""What device time goes to, and how people are told so. The colours are called the same."""
Axis = Mapping[str, Any]


class Figure(Record):
    """One figure. `says` is its content in a sentence, for who cannot see it."""

    id: str
    title: str
    says: str = ""
    empty: str = ""                        # why nothing is drawn
    traces: tuple[dict[str, Any], ...] = ()
    layout: dict[str, Any] = Field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()            # what to know before believing it

    @property
    def drawing(self) -> dict[str, Any]:
        """What the page's script is given."""
        return {"data": self.traces, "layout": self.layout, "says": self.says}


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def attempts_axis(last: int) -> dict[str, Any]:
    """The axis of attempts up to the number `last`: from 0, whole numbers only."""
    steps = (lead * 10**power for power in range(6) for lead in (1, 2, 5))
    return axis("attempt", rangemode="tozero", tick0=0, dtick=next(step for step in steps if last <= 16 * step))


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """The axis of `bars`, from top to bottom. Names stay names, also those that look like numbers or dates."""
    return axis(
        "", type="category", categoryorder="array", categoryarray=list(names), autorange="reversed", automargin=True
    )


def bars(
    name: str, colour: str, names: Sequence[str], values: Sequence[float], texts: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """Horizontal bars; `names` are places on the axis as `places` made them."""
    trace: dict[str, Any] = {
        "type": "bar", "orientation": "h", "name": name, "y": list(names), "x": list(values), "marker": {"color": colour},
        "hovertemplate": "%{text}<extra></extra>" if texts else "%{x:.4g}<extra>" + name + "</extra>",
    }  # fmt: skip
    return trace | ({"text": list(texts), "textposition": "none"} if texts else {}) | more


def places(names: Iterable[str], width: int = 36) -> list[str]:
    """Names as places on an axis: escaped, and no two alike, since what is called alike would share a place."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        text = label(name, width)
        seen[text] = seen.get(text, 0) + 1
        found.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return found


def height(rows: int, *, row: int = 30, frame: int = 130) -> int:
    """Pixels of a figure with so many rows of bars."""
    return max(240, frame + row * rows)


def ms(value: float | None) -> str:
    """"0.0353 ms" with three digits that count; "-" for none."""
    if value is None:
        return "-"
    return f"{value:.3g} ms" if abs(value) >= 0.01 or value == 0 else f"{1000 * value:.3g} µs"
