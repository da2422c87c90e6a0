"""Makes the figures of attempts and tasks: best time, predicted against measured savings, shares of work by origin.

A time that was not measured is called a prediction, in the figure itself.

Where to look next: `report/profile_figures.py` (figures of kernels), `report/figure.py` (the record), `report/findings.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stitchcuda.counts import counted
from stitchcuda.report.figure import ORIGINS, Figure, attempts_axis, axis, bars, height, ms, names_axis, unique_labels
from stitchcuda.report.findings import AttemptFindings, Findings, TaskFate
from stitchcuda.report.untrusted_text import label
from stitchcuda.state import CheckResult, Result
from stitchcuda.tools.profile.system_profile import Origin

_TASKS = 25                                # most tasks in the figure of savings; its table has all
_KEPT = 12                                 # most kept programs in the figure of shares
_MARKS: dict[Result, tuple[str, str, str]] = {
    "kept": ("kept", "@own", "circle"),
    "correct": ("correct, not kept", "@vendor", "circle-open"),
    "wrong": ("wrong", "@bad", "x"),
    "not built": ("not built", "@bad", "triangle-up-open"),
}
BELOW = (
    "Below the speed of light: the floor counts all of the reference's work, fp32 products as three fp16 ones where those are "
    "faster, and a program that skips or swaps work goes below it."
)
NOTHING_TIMED = "nothing was timed here, so every time is a prediction by the cost model"


def best_time(found: Findings) -> Figure:
    """The figure of the best program's time in ms after each attempt: timed if any attempt was, else predicted."""
    prediction = not found.timed
    name = "predicted time of a call over attempts" if prediction else "best time of a call over attempts"
    if not found.attempts or found.baseline is None:
        return Figure(id="best", title=name, empty="No attempt has been judged yet.")
    levels = levels_of(found)
    what = "best program (prediction)" if prediction else "best program"
    steps: dict[str, Any] = {
        "type": "scatter", "mode": "lines", "name": what, "x": list(range(len(levels))), "y": levels,
        "line": {"shape": "hv", "color": "@own", "width": 3}, "hovertemplate": "after attempt %{x}: %{y:.4g} ms<extra></extra>",
    }  # fmt: skip
    traces = [steps, *_marks(found.attempts, levels, prediction), *_lines(found, len(levels) - 1)]
    final = found.final.timing if found.final and not prediction else None
    if final:
        traces.append({
            "type": "scatter", "mode": "markers", "name": "last verification", "x": [len(levels) - 1], "y": [final.program_ms],
            "marker": {"color": "@accent", "symbol": "star", "size": 15},
            "hovertemplate": "last verification: %{y:.4g} ms<extra></extra>",
        })  # fmt: skip
    after = final.program_ms if final else levels[-1]
    tried = counted(len(found.attempts), "attempt")
    says = f"{'Predicted: f' if prediction else 'F'}rom {ms(levels[0])} to {ms(after)} in {tried}."
    notes: tuple[str, ...] = (f"This is no measurement: {NOTHING_TIMED}.",) if prediction else (
        "A mark stands where an attempt was timed, the line at the best program that was kept; what was not timed stands on it."
        " Timings of different moments differ by a few percent, so savings are measured side by side (below).",
    )  # fmt: skip
    if prediction and any(attempt.predicted_ms is None for attempt in found.attempts):
        notes = (*notes, "What an agent changed is not predicted: the line stays where it was.")
    if after < found.baseline.floor_ms:
        notes = (*notes, BELOW)
    yaxis = axis("predicted ms of a call" if prediction else "ms of a call", rangemode="tozero")
    return Figure(
        id="best", title=name, says=says, traces=tuple(traces),
        layout={"height": 420, "xaxis": attempts_axis(len(found.attempts)), "yaxis": yaxis},
        columns=("attempt", "task", "result", "ms of a call", f"{what}, ms"),
        rows=tuple(
            (str(attempt.number), attempt.attempt.task, attempt.result, _number(attempt.attempt.program_ms), _number(level))
            for attempt, level in zip(found.attempts, levels[1:], strict=True)
        ),
        notes=notes,
    )  # fmt: skip


def levels_of(found: Findings) -> list[float]:
    """The reference's time in ms, then the best program's after each attempt; predicted if no attempt was timed."""
    assert found.baseline is not None
    if not found.timed:
        predicted = [found.baseline.predicted_ms]
        for attempt in found.attempts:
            predicted.append(attempt.predicted_ms or predicted[-1])
        return predicted
    timings = [attempt.evidence.timing for attempt in found.attempts if attempt.evidence and attempt.evidence.timing]
    levels = [found.baseline.eager_ms or (timings[0].reference_ms if timings else found.baseline.predicted_ms)]
    for attempt in found.attempts:
        timed = attempt.attempt.program_ms if attempt.attempt.kept else None
        levels.append(levels[-1] if timed is None else timed)
    return levels


def savings(found: Findings) -> Figure:
    """The figure of the time that each task was predicted, or claimed by a chat model, to save, beside what it saved."""
    title = "predicted against measured saving of each task"
    tried = [fate for fate in found.tasks if fate.attempts]
    if not tried:
        return Figure(id="savings", title=title, empty="No task has been tried yet.")
    shown = sorted(tried, key=lambda fate: -_largest(fate))[:_TASKS]
    names = unique_labels(f"{fate.task.id} {fate.task.title}" for fate in shown)
    measured = [(name, fate) for name, fate in zip(names, shown, strict=True) if fate.measured_ms is not None]
    predicted = [fate.task.predicted_ms for fate in shown]
    traces = [bars("predicted", "@prediction", names, predicted, [_prediction(fate) for fate in shown])]
    if measured:
        whiskers = {
            "type": "data", "symmetric": False, "color": "@ink", "thickness": 1.5, "width": 4,
            "array": [_distance(fate.high_ms, fate.measured_ms) for _, fate in measured],
            "arrayminus": [_distance(fate.measured_ms, fate.low_ms) for _, fate in measured],
        }  # fmt: skip
        texts = [f"measured {ms(fate.measured_ms)}{_interval(fate)}" for _, fate in measured]
        values = [fate.measured_ms or 0.0 for _, fate in measured]
        traces.append(bars("measured", "@own", [name for name, _ in measured], values, texts, error_x=whiskers))
    notes = [f"Measured: none; {NOTHING_TIMED}."] if not measured else []
    if len(tried) > len(shown):
        notes.append(f"The {len(shown)} largest of {len(tried)} tasks are drawn; the table has all.")
    if measured:
        notes.append("A saving is measured against the program before it, side by side; whiskers are its 95 % interval.")
    if any(fate.claimed for fate in tried):
        notes.append("What a chat model claims of its own tasks is shown, and enters no prediction of the program.")
    saved = sum(fate.measured_ms or 0.0 for fate in tried if fate.fate == "kept")
    says = f"Tried: {counted(len(tried), 'task')}"
    says += f"; measured {ms(saved)} for those kept." if measured else "."
    return Figure(
        id="savings", title=title, says=says, traces=tuple(traces),
        layout={
            "height": height(len(shown), row=44 if measured else 32), "barmode": "group", "yaxis": names_axis(names),
            "xaxis": axis("ms saved" if measured else "ms saved (prediction)"),
        },
        columns=("task", "title", "fate", "predicted", "measured", "95 % interval", "floor of its regions"),
        rows=tuple(_row(fate) for fate in tried),
        notes=tuple(notes),
    )  # fmt: skip


def shares(found: Findings) -> Figure:
    """The figure of shares by origin (own kernels, vendor libraries, framework): of device time on a GPU, else of bytes
    moved."""
    title = "shares of work by origin"
    rows: list[tuple[str, dict[str, float]]] = []
    reference = next((seen.profile for seen in found.seen if seen.title == "reference"), None)
    if reference and reference.kernels:
        origins: tuple[Origin, ...] = ("own", "vendor", "framework", "copy", "graph")
        rows.append(("reference", {origin: reference.share_of(origin) for origin in origins}))
    kept = [
        (attempt, attempt.evidence.check)
        for attempt in found.attempts
        if attempt.result == "kept" and attempt.evidence and attempt.evidence.check
    ]
    rows += [(f"{attempt.number}: {attempt.attempt.task}", _shares(check)) for attempt, check in kept[-_KEPT:]]
    if found.final and found.final.check:
        rows.append(("final program", _shares(found.final.check)))
    rows = [(name, parts) for name, parts in rows if sum(parts.values()) > 0]
    if not rows:
        return Figure(id="shares", title=title, empty="No program was kept whose work could be told apart.")
    on_gpu = any(check.tier in ("measured", "timed") for _, check in kept)
    work = "device time" if on_gpu else "bytes moved, on the simulator"
    names = unique_labels(name for name, _ in rows)
    traces = [
        bars(
            origin_name, f"@{origin}", names, [100 * parts.get(origin, 0.0) for _, parts in rows],
            [f"{origin_name}: {100 * parts.get(origin, 0.0):.1f} %" for _, parts in rows],
        )
        for origin, origin_name in ORIGINS.items()
        if any(parts.get(origin) for _, parts in rows)
    ]  # fmt: skip
    notes = ["What is missing to 100 % are copies and what no tool has put down to anybody."]
    if len(kept) > _KEPT:
        notes.append(f"The latest {_KEPT} of {len(kept)} kept programs are drawn.")
    own = rows[-1][1].get("own", 0.0)
    return Figure(
        id="shares",
        title=f"{title}, of {work}",
        says=f"Own kernels hold {own:.0%} of {work} in the last program.",
        traces=tuple(traces),
        layout={
            "height": height(len(rows)), "barmode": "stack", "yaxis": names_axis(names),
            "xaxis": axis(f"percent of {work}", range=[0, 100]),
        },
        columns=("program", *ORIGINS.values()),
        rows=tuple((name, *(f"{100 * parts.get(origin, 0.0):.1f} %" for origin in ORIGINS)) for name, parts in rows),
        notes=tuple(notes),
    )  # fmt: skip


def _shares(check: CheckResult) -> dict[str, float]:
    return {"own": check.own_share, "vendor": check.vendor_share, "framework": check.framework_share}


def _marks(attempts: Sequence[AttemptFindings], levels: Sequence[float], prediction: bool) -> list[dict[str, Any]]:
    """A mark for each attempt, by its result."""
    traces: list[dict[str, Any]] = []
    for result, (name, colour, symbol) in _MARKS.items():
        own = [attempt for attempt in attempts if attempt.result == result]
        timed = [None if prediction else attempt.attempt.program_ms for attempt in own]
        if own:
            traces.append({
                "type": "scatter", "mode": "markers", "name": name, "x": [attempt.number for attempt in own],
                "y": [levels[attempt.number] if took is None else took for attempt, took in zip(own, timed, strict=True)],
                "text": [label(f"{attempt.number}: {attempt.attempt.task} {attempt.title}") for attempt in own],
                "hovertemplate": "%{text}<br>" + name + ", %{y:.4g} ms<extra></extra>",
                "marker": {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}},
            })  # fmt: skip
    return traces


def _lines(found: Findings, end: int) -> list[dict[str, Any]]:
    """Two levels: the best baseline, if it is not eager, and the speed of light."""
    assert found.baseline is not None
    best = found.baselines.best if found.baselines else None
    ceilings = "measured" if found.baseline.device.measured else "nominal"
    lines = [(f"best baseline: {best.mode}", best.ms, "@framework")] if best and best.mode != "eager" and found.timed else []
    lines.append((f"speed of light ({ceilings} ceilings)", found.baseline.floor_ms, "@quiet"))
    return [
        {
            "type": "scatter", "mode": "lines", "name": name, "x": [0, end], "y": [level, level],
            "line": {"dash": "dash", "width": 2, "color": colour}, "hovertemplate": f"{name}: %{{y:.4g}} ms<extra></extra>",
        }
        for name, level, colour in lines
        if level
    ]  # fmt: skip


def _row(fate: TaskFate) -> tuple[str, ...]:
    interval = f"{ms(fate.low_ms)} to {ms(fate.high_ms)}" if fate.low_ms is not None else "-"
    saving = _prediction(fate).removeprefix("predicted ")
    return fate.task.id, fate.task.title, fate.fate, saving, ms(fate.measured_ms), interval, fate.floor or "-"


def _prediction(fate: TaskFate) -> str:
    """The expected saving of a task: "predicted 0.1 ms" by the cost model, or "claims 0.1 ms" by a chat model."""
    return f"{'claims' if fate.claimed else 'predicted'} {ms(fate.task.predicted_ms)}"


def _largest(fate: TaskFate) -> float:
    return max(fate.task.predicted_ms, abs(fate.measured_ms or 0.0))


def _interval(fate: TaskFate) -> str:
    return f" ({ms(fate.low_ms)} to {ms(fate.high_ms)})" if fate.low_ms is not None else ""


def _distance(high: float | None, low: float | None) -> float:
    return max(0.0, high - low) if high is not None and low is not None else 0.0


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
