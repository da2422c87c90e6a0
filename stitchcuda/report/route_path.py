"""Counts how often a session took each edge of the graph, and lists its steps in order.

The edges are derived from the attempts: what each came to tells which nodes it passed. Steps that ended without a draft are in
no record and are not counted.

Where to look next: `graph/graph.py` (the wiring, which `_EDGES` repeats), `graph/routes.py` (which route is taken).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stitchcuda.report.findings import AttemptFindings
from stitchcuda.state import Record

_EDGES = {                                 # in the order of the wiring, with the edge's condition; "" if it has none
    ("baseline", "planner"): "", ("planner", "search_docs"): "", ("search_docs", "coder"): "", ("coder", "nvcc_build"): "",
    ("nvcc_build", "check"): "built", ("nvcc_build", "verifier"): "fail", ("check", "nsys_profile"): "correct",
    ("check", "verifier"): "fail", ("nsys_profile", "ncu_profile"): "", ("ncu_profile", "verifier"): "",
    ("verifier", "search_docs"): "code / next_task", ("verifier", "planner"): "replan", ("verifier", "report"): "done",
}  # fmt: skip


class RouteStep(Record):
    """One attempt. `plan`: version of the plan, if a new one was made before this attempt."""

    number: int
    task: str
    ordinal: int
    result: str
    route: str
    plan: int | None = None


class Path(Record):
    """The edges as rows of a table (from, to, condition, how often), and the steps."""

    edges: tuple[tuple[str, str, str, str], ...]
    steps: tuple[RouteStep, ...]


def path_of(attempts: Sequence[AttemptFindings], *, begun: bool, ended: bool) -> Path:
    """The path of these attempts through the graph. `begun`: there is a baseline; `ended`: there is a report."""
    times = Counter(_edges_taken(attempts, begun, ended))
    return Path(
        edges=tuple((start, end, condition, f"{times[start, end]}×") for (start, end), condition in _EDGES.items()),
        steps=tuple(_steps(attempts)),
    )


def _edges_taken(attempts: Sequence[AttemptFindings], begun: bool, ended: bool) -> Iterator[tuple[str, str]]:
    if begun:
        yield "baseline", "planner"
    version = None
    for place, found in enumerate(attempts):
        attempt = found.attempt
        if version != attempt.plan_version:
            if version is not None:
                yield "verifier", "planner"
            version = attempt.plan_version
            yield "planner", "search_docs"
        elif not attempts[place - 1].attempt.beside:
            yield "verifier", "search_docs"
        nodes = ["search_docs", "coder", "nvcc_build"]
        if found.result != "not built":
            nodes += ["check"] if found.result == "wrong" else ["check", "nsys_profile", "ncu_profile"]
        yield from pairwise([*nodes, "verifier"])
    if ended:
        yield "verifier", "report"


def _steps(attempts: Sequence[AttemptFindings]) -> Iterator[RouteStep]:
    version = None
    for found in attempts:
        attempt = found.attempt
        yield RouteStep(
            number=found.number, task=attempt.task, ordinal=attempt.ordinal, result=found.result,
            route="beside another candidate" if attempt.beside else attempt.route,
            plan=attempt.plan_version if attempt.plan_version != version else None,
        )  # fmt: skip
        version = attempt.plan_version
