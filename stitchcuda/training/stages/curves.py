"""Draws the log of a run as one self-contained page: loss, reward and its parts, shares of answers, lengths.

Where to look next: `report/page.py` (the page), `training/stages/stage_run.py` (the log).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stitchcuda.report.figure import Figure, axis
from stitchcuda.report.page import curves_page
from stitchcuda.store import write_atomically
from stitchcuda.training.stages.stage_run import LOG, RunSummary, StageRun

_COLOURS = ("own", "vendor", "framework", "copy", "graph", "warn", "quiet", "accent")
_MOST_ROWS = 200                           # of a table
_FIGURES = (                               # id, title, pattern of the log's names
    ("reward", "mean reward", r"reward|reward/skill\d"),
    ("parts", "what each kind of answer contributes to the mean reward", r"reward_part/.*"),
    ("answers", "answers by what came of them", r"answers/.*"),
    ("shares", "shares: judged, attacks, groups without signal, cut off", r"share/.*|completions/clipped_ratio"),
    ("loss", "loss", r"loss"),
    ("ratio", "importance ratio of an update's tokens", r"ratio/(mean|max)"),
    ("clipped", "shares of tokens outside the clipping: of the policy, of the value", r"ratio/clipped|value/clipped"),
    ("value", "loss of the critic", r"value_loss"),
    ("explained", "share of the rewards' variance that the critic explains", r"explained_variance"),
    ("divergence", "divergence and entropy", r"kl|kl_of_update|entropy"),
    ("gradient", "norm of the gradient", r"grad_norm"),
    ("length", "length of answers, tokens", r"completions/(mean|min|max)_length"),
    ("tools", "calls of tools: of an answer, share that failed", r"tools/.*"),
    ("accuracy", "share of tokens that were the likeliest", r"mean_token_accuracy"),
)


def write_curves(folder: StageRun, table: str, summary: RunSummary) -> None:
    """Writes OUT/curves.html."""
    lines = list(folder.lines(LOG))
    drawn = [figure for id, title, names in _FIGURES if (figure := _figure(id, title, names, lines))]
    facts = [
        ("stage", table), ("steps", f"{summary.steps:,}"), ("updates of the weights", f"{summary.updates:,}"),
        ("result", summary.result), ("SHA-256", summary.sha256),
    ]  # fmt: skip
    write_atomically(folder.out / "curves.html", curves_page(f"Training: {table}", facts, drawn))


def _figure(id: str, title: str, names: str, lines: Sequence[dict[str, Any]]) -> Figure | None:
    found = sorted({name for line in lines for name in line if re.fullmatch(names, name)})
    if not found:
        return None
    traces = tuple(
        {
            "type": "scatter", "mode": "lines+markers", "name": name.rpartition("/")[2] if "/" in name else name,
            "x": [line["update"] for line in lines if name in line], "y": [line[name] for line in lines if name in line],
            "line": {"color": f"@{_COLOURS[number % len(_COLOURS)]}"}, "marker": {"size": 4},
        }
        for number, name in enumerate(found)
    )  # fmt: skip
    last = {name: next(line[name] for line in reversed(lines) if name in line) for name in found}
    shown = lines if len(lines) <= _MOST_ROWS else lines[:: -(-len(lines) // _MOST_ROWS)]
    return Figure(
        id=id, title=title, says="At the end: " + ", ".join(f"{name} {value:.4g}" for name, value in last.items()) + ".",
        traces=traces, layout={"height": 340, "xaxis": axis("update of the weights", rangemode="tozero"), "yaxis": axis("")},
        columns=("update", *found),
        rows=tuple((str(line["update"]), *(f"{line[name]:.4g}" if name in line else "" for name in found)) for line in shown),
    )  # fmt: skip
