"""Renders one run's table, or two side by side, as one self-contained HTML file that loads nothing and runs no script.

Text from references and compilers is escaped by the template. It reads no run and computes no figure but lengths of bars.
Where to look next: `bench/table.py` (the figures), `bench/templates/bench.html.j2`, `report/page.py` (the pages of sessions).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stitchcuda.bench.table import (
    BEST,
    DISAGREEING,
    FASTEST,
    NAMES,
    BenchTable,
    Row,
    columns_of,
    speedup_words,
    within_sentence,
    within_words,
)
from stitchcuda.report.page import page_style
from stitchcuda.state import Record

_WIDTH, _HEIGHT = 640, 260                 # of the drawing, without its margins
_MOST = 3.0                                # the largest p that is drawn
_COLOURS = {
    "eager": "own", "graph": "graph", "compile": "vendor", "max-autotune": "copy", "channels-last": "quiet", BEST: "framework",
    FASTEST: "warn",
}  # fmt: skip


class Curve(Record):
    """fast_p over p from 0 to 3 for one baseline: the path of an SVG drawing, and its colour's name in the style."""

    baseline: str
    path: str
    colour: str


class Line(Record):
    """A problem's rows in the runs of a group, the first run's first."""

    name: str
    rows: tuple[Row | None, ...]


class PrecisionGroup(Record):
    """Runs that are shown in one table of problems: those of one precision, since figures at two are not compared."""

    precision: str
    names: tuple[str, ...]
    columns: tuple[str, ...]               # baselines
    lines: tuple[Line, ...]


def bench_page(tables: Sequence[BenchTable], names: Sequence[str]) -> bytes:
    """The page of one or two runs, as HTML. `names`: how each is called, such as its folder's name."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    text = environment.get_template("bench.html.j2").render(
        runs=[(name, table, curves(table)) for name, table in zip(names, tables, strict=True)],
        groups=_groups(tables, names), titles=NAMES, best=BEST, within_sentence=within_sentence, within_words=within_words,
        speedup_words=speedup_words,
        disagreeing=DISAGREEING if any(row.disagreeing for table in tables for row in table.problems) else "",
        width=_WIDTH, height=_HEIGHT, most=_MOST, style=Markup(page_style()),
        predictions=any(row.predicted for table in tables for row in table.problems),
        claims=any(row.claimed for table in tables for row in table.problems),
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def curves(table: BenchTable) -> tuple[Curve, ...]:
    """The curves of fast_p, one for each baseline: they fall at each problem's speed-up."""
    found = []
    for against in table.against:
        values = sorted(row.speedups[against.baseline] for row in table.problems if against.baseline in row.speedups)
        points, left = [(0.0, len(values) / against.counted)], len(values)
        for value in values:
            if value <= _MOST:
                points += [(value, left / against.counted), (value, (left - 1) / against.counted)]
                left -= 1
        points.append((_MOST, left / against.counted))
        path = " ".join(f"{x / _MOST * _WIDTH:.1f},{(1 - y) * _HEIGHT:.1f}" for x, y in points)
        found.append(Curve(baseline=against.baseline, path=path, colour=_COLOURS[against.baseline]))
    return tuple(found)


def _groups(tables: Sequence[BenchTable], names: Sequence[str]) -> list[PrecisionGroup]:
    found = []
    for precision in dict.fromkeys(table.precision for table in tables):
        own = [table for table in tables if table.precision == precision]
        columns = columns_of(own)
        called = [name for name, table in zip(names, tables, strict=True) if table.precision == precision]
        found.append(PrecisionGroup(precision=precision, names=tuple(called), columns=tuple(columns), lines=tuple(_lines(own))))
    return found


def _lines(tables: Sequence[BenchTable]) -> list[Line]:
    by_name = [{row.name: row for row in table.problems} for table in tables]
    names = dict.fromkeys(name for rows in by_name for name in rows)
    return [Line(name=name, rows=tuple(rows.get(name) for rows in by_name)) for name in names]
