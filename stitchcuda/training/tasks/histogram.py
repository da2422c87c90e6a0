"""Shows how difficult sets of tasks are, as text or as a page: a histogram for each measure, sets beside each other.

A set is a file of tasks, or a folder of references such as a level of KernelBench, which are captured for it and not run.
Where to look next: `training/tasks/difficulty.py` (the measures).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from stitchcuda.bench.problems import read_problems
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput
from stitchcuda.tools.device.device import device_facts
from stitchcuda.training.tasks.difficulty import Difficulty, difficulty_of
from stitchcuda.training.tasks.scaling import UnusableSource, shape_graph
from stitchcuda.training.tasks.task_file import read_tasks

_MEASURES: tuple[tuple[str, Callable[[Difficulty], float], tuple[float, ...]], ...] = (
    ("kernels of an eager call", lambda task: task.kernels, (2, 4, 6, 9, 13, 20, 40)),
    ("eager ms, estimated", lambda task: task.eager_ms, (1, 2, 5, 10, 20, 50, 100)),
    ("speed of light, ms", lambda task: task.floor_ms, (0.01, 0.05, 0.1, 0.5, 1, 5, 10)),
    ("share of library work", lambda task: task.library, (0.01, 0.2, 0.4, 0.6, 0.8, 0.95)),
    ("fused time over speed of light", lambda task: task.gap, (1.2, 1.5, 2, 3, 5, 8, 12)),
)
"""Each measure with the bounds between its classes."""
_BAR = 40


@dataclass(frozen=True)
class TaskSet:
    """`left_out`: references of a folder that could not be captured."""

    name: str
    tasks: tuple[Difficulty, ...]
    left_out: int = 0

    def counts(self) -> dict[str, Any]:
        measures = {
            title: dict(zip(_classes(bounds), _count([value(task) for task in self.tasks], bounds), strict=True))
            for title, value, bounds in _MEASURES
        }  # fmt: skip
        return {"name": self.name, "tasks": len(self.tasks), "left_out": self.left_out, "measures": measures}


def read_sets(places: Sequence[Path], predict_for: str) -> list[TaskSet]:
    """Reads files of tasks, and captures the references of folders at their own sizes, without allocating tensors."""
    return [_from_folder(place, predict_for) if place.is_dir() else _from_file(place) for place in places]


def _from_file(path: Path) -> TaskSet:
    return TaskSet(path.name, tuple(task.difficulty for task in read_tasks(path)))


def _from_folder(path: Path, predict_for: str) -> TaskSet:
    problems = read_problems("folder", path, path)
    device = device_facts("sim", predict_for=predict_for)
    found: list[Difficulty] = []
    for problem in problems:
        try:
            graph = shape_graph(problem.reference.read_text(encoding="utf-8"))
        except UnusableSource:
            continue
        if not graph.opaque:
            found.append(difficulty_of(graph, device))
    if not found:
        raise BadInput(f"{path} holds no reference whose operators can be captured")
    return TaskSet(path.name, tuple(found), len(problems) - len(found))


def as_text(sets: Sequence[TaskSet], predict_for: str) -> str:
    lines = [*map(_heading, sets), f"Times are estimates for one {predict_for.upper()}; nothing was measured.", ""]
    for title, value, bounds in _MEASURES:
        lines.append(title)
        for found in sets:
            counts = _count([value(task) for task in found.tasks], bounds)
            lines += [f"  {found.name}"] if len(sets) > 1 else []
            for name, number in zip(_classes(bounds), counts, strict=True):
                share = number / max(len(found.tasks), 1)
                lines.append(f"  {name:>12} {number:6,} {share:6.1%} {'#' * round(share * _BAR)}")
        lines.append("")
    return "\n".join(lines)


def as_page(sets: Sequence[TaskSet], predict_for: str) -> str:
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Difficulty of tasks</title><style>'
        "body{font-family:system-ui,sans-serif;max-width:60rem;margin:2rem auto;color:#222}"
        "table{border-collapse:collapse;width:100%}"
        "th{text-align:right;font-weight:normal;width:8rem;padding-right:.6rem;white-space:nowrap}td{padding:1px 0}"
        ".b{display:inline-block;height:.9rem;background:#357;vertical-align:middle;margin-right:.4rem}"
        "</style><h1>Difficulty of tasks</h1>",
        *(f"<p>{escape(_heading(found))}</p>" for found in sets),
        f"<p>Times are estimates for one {escape(predict_for.upper())}; nothing was measured.</p>",
    ]
    for title, value, bounds in _MEASURES:
        parts.append(f"<h2>{escape(title)}</h2>")
        for found in sets:
            counts = _count([value(task) for task in found.tasks], bounds)
            parts.append(f"<table><caption>{escape(found.name)}</caption>")
            for name, number in zip(_classes(bounds), counts, strict=True):
                share = number / max(len(found.tasks), 1)
                bar = f'<span class="b" style="width:{share * 75:.1f}%"></span>'
                parts.append(f'<tr><th scope="row">{escape(name)}</th><td>{bar}{number:,} ({share:.1%})</td></tr>')
            parts.append("</table>")
    return "\n".join([*parts, "</html>"]) + "\n"


def _heading(found: TaskSet) -> str:
    left = f", {found.left_out} could not be captured" if found.left_out else ""
    return f"{found.name}: {counted(len(found.tasks), 'task')}{left}"


def _classes(bounds: Sequence[float]) -> list[str]:
    return [f"< {bounds[0]:g}", *(f"{low:g} to {high:g}" for low, high in pairwise(bounds)), f"≥ {bounds[-1]:g}"]


def _count(values: Sequence[float], bounds: Sequence[float]) -> list[int]:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[sum(value >= bound for bound in bounds)] += 1
    return counts
