"""Makes the page that compares two sessions: settings, tasks, best times, and a diff of their programs.

It says of neither session that it is better: times of different devices are not compared, and tasks of different references are
not matched. It reads the programs' files from the store, all else from findings.

Where to look next: `report/page.py` (who writes the page), `sessions/compare.py` (the same for the command line).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stitchcuda.errors import StitchError
from stitchcuda.report.diffs import FileChange, changes
from stitchcuda.report.figure import Figure, attempts_axis, axis, ms
from stitchcuda.report.figures import NOTHING_TIMED, levels_of
from stitchcuda.report.findings import Findings, TaskFate
from stitchcuda.report.gathering import sentence
from stitchcuda.report.untrusted_text import label
from stitchcuda.state import Record
from stitchcuda.store import Store

_COLOURS = ("@own", "@vendor")


class Setting(Record):
    """One setting with its value in either session."""

    name: str
    first: str
    other: str


class Pair(Record):
    """A task in either session; None if the session had no such task."""

    id: str
    title: str                             # "" if the sessions gave it different titles
    first: TaskFate | None
    other: TaskFate | None


class Changes(Record):
    """The changes from the first session's program to the second's, or `why` they cannot be shown."""

    files: tuple[FileChange, ...] = ()
    why: str = ""


def settings(first: Findings, other: Findings) -> tuple[Setting, ...]:
    """The settings that differ; a value that a session does not have is ""."""
    left, right = dict(first.card.settings), dict(other.card.settings)
    pairs = {name: (left.get(name, ""), right.get(name, "")) for name in {**left, **right}}
    return tuple(Setting(name=name, first=a, other=b) for name, (a, b) in pairs.items() if a != b)


def same_reference(first: Findings, other: Findings) -> bool:
    """Whether both are sessions of the same reference, by its digest: its file may have been renamed."""
    digests = [dict(found.card.settings).get("reference", "").rpartition(", ")[2] for found in (first, other)]
    return digests[0] == digests[1]


def tasks(first: Findings, other: Findings) -> tuple[Pair, ...]:
    """The tasks of both, matched by id; () for different references, since ids number the regions of one reference."""
    if not same_reference(first, other):
        return ()
    left, right = _by_id(first), _by_id(other)
    pairs = ((name, left.get(name), right.get(name)) for name in {**left, **right})
    return tuple(Pair(id=name, title=_common_title(a, b), first=a, other=b) for name, a, b in pairs)


def best_times(first: Findings, other: Findings) -> Figure:
    """The figure of the best program's time in ms after each attempt, for both sessions."""
    title = "best time of a call over attempts, both sessions"
    both = [found for found in (first, other) if found.attempts and found.baseline]
    if not both:
        return Figure(id="best", title=title, empty="Neither session has judged an attempt yet.")
    traces, rows = [], []
    for found in both:
        levels = levels_of(found)
        kind = "timed" if found.timed else "prediction"
        name = f"{label(found.card.session)} ({kind})"
        colour = _COLOURS[found is other]
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": name, "x": list(range(len(levels))), "y": levels,
            "line": {"shape": "hv", "color": colour, "width": 3, "dash": "solid" if found is first else "dash"},
            "marker": {"color": colour, "size": 7, "symbol": "circle" if found is first else "diamond"},
            "hovertemplate": "after attempt %{x}: %{y:.4g} ms<extra></extra>",
        })  # fmt: skip
        rows += [(found.card.session, str(number), kind, f"{level:.4f}") for number, level in enumerate(levels)]
    notes = []
    if any(not found.timed for found in both):
        notes.append(f"Called a prediction: {NOTHING_TIMED}.")
    if not same_reference(first, other):
        notes.append("They are sessions of different references.")
    if first.device and other.device and first.device.key != other.device.key:
        notes.append(f"Not of one machine, so not to be compared: {first.device.key} and {other.device.key}.")
    last = max(len(found.attempts) for found in both)
    return Figure(
        id="best", title=title, traces=tuple(traces),
        says="; ".join(f"{found.card.session}: {_ends(levels_of(found))}" for found in both) + ".",
        layout={"height": 420, "xaxis": attempts_axis(last), "yaxis": axis("ms of a call", rangemode="tozero")},
        columns=("session", "after attempt", "kind", "ms of a call"), rows=tuple(rows), notes=tuple(notes),
    )  # fmt: skip


def program_changes(first: Findings, other: Findings, store: Store) -> Changes:
    """The changes that turn the first session's best program into the second's."""
    if not first.program or not other.program:
        return Changes(why="One of the sessions has no program yet.")
    try:
        return Changes(files=changes(store, first.program, other.program))
    except (StitchError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Changes(why=f"The programs cannot be compared: {sentence(error)}")


def _ends(levels: Sequence[float]) -> str:
    return f"{ms(levels[0])} to {ms(levels[-1])}"


def _common_title(first: TaskFate | None, other: TaskFate | None) -> str:
    titles = {fate.task.title for fate in (first, other) if fate}
    return titles.pop() if len(titles) == 1 else ""


def _by_id(found: Findings) -> Mapping[str, TaskFate]:
    return {fate.task.id: fate for fate in found.tasks}
