"""The way a session took through the graph, as its record tells it: how often each edge was taken, and the steps in order.

Steps that ended without a draft are in no record and are not counted. Nothing is decided here: the graph is wired in
`graph/graph.py`; the places below are those of its picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stitchcuda.report.findings import AttemptFindings
from stitchcuda.state import Record

WIDTH, HEIGHT = 960, 270
BOX = 132                                  # width of a node
_TALL = 44
_COLUMNS, _ROWS = (80, 280, 480, 680, 880), (50, 178)
_PLACES = {
    "baseline": (0, 0), "planner": (1, 0), "search_docs": (2, 0), "coder": (3, 0), "nvcc_build": (4, 0),
    "report": (0, 1), "verifier": (1, 1), "ncu_profile": (2, 1), "nsys_profile": (3, 1), "check": (4, 1),
}  # fmt: skip
_EDGES = {                                 # the way of each, the place of its words and where they are held
    ("baseline", "planner"): ("M146 50H206", 177, 38, "middle"),
    ("planner", "search_docs"): ("M346 50H406", 377, 38, "middle"),
    ("search_docs", "coder"): ("M546 50H606", 577, 38, "middle"),
    ("coder", "nvcc_build"): ("M746 50H806", 777, 38, "middle"),
    ("nvcc_build", "check"): ("M880 72V148", 894, 116, "start"),
    ("nvcc_build", "verifier"): ("M824 72C730 140 480 118 346 152", 640, 108, "middle"),
    ("check", "verifier"): ("M880 200C860 262 320 262 288 208", 590, 264, "middle"),
    ("check", "nsys_profile"): ("M814 178H754", 783, 166, "middle"),
    ("nsys_profile", "ncu_profile"): ("M614 178H554", 583, 166, "middle"),
    ("ncu_profile", "verifier"): ("M414 178H354", 383, 166, "middle"),
    ("verifier", "planner"): ("M232 156V80", 222, 118, "end"),
    ("verifier", "search_docs"): ("M312 156C330 118 400 110 440 80", 390, 98, "end"),
    ("verifier", "report"): ("M214 178H154", 183, 166, "middle"),
}
_SAID = {
    ("nvcc_build", "verifier"): "fail", ("check", "verifier"): "fail", ("verifier", "planner"): "replan",
    ("verifier", "search_docs"): "code / next_task", ("verifier", "report"): "done",
}  # fmt: skip


class Node(Record):
    """A box of the picture, by its upper left corner."""

    name: str
    x: int
    y: int
    taken: bool


class Edge(Record):
    """An arrow of the picture with the place of its words."""

    start: str
    end: str
    said: str                              # what the edge is called; "" for the only way on
    way: str                               # an SVG path
    x: int
    y: int
    anchor: str
    times: int
    weight: float                          # width of its line


class Step(Record):
    """One attempt on the way; `plan` is a new plan's version where one was made before it."""

    number: int
    task: str
    ordinal: int
    result: str
    route: str
    plan: int | None = None


class Path(Record):
    """The picture and the steps."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    steps: tuple[Step, ...]

    @property
    def says(self) -> str:
        taken = ", ".join(f"{edge.start} to {edge.end} {edge.times} times" for edge in self.edges if edge.times)
        return f"Edges taken: {taken}." if taken else "No edge has been taken yet."


def path_of(attempts: Sequence[AttemptFindings], *, begun: bool, ended: bool) -> Path:
    """`begun`: there is a baseline; `ended`: there is a report."""
    times = Counter(_taken(attempts, begun, ended))
    most = max(times.values(), default=1)
    visited = {name for edge in times for name in edge} | ({"baseline"} if begun else set())
    return Path(
        nodes=tuple(
            Node(name=name, x=_COLUMNS[column] - BOX // 2, y=_ROWS[row] - _TALL // 2, taken=name in visited)
            for name, (column, row) in _PLACES.items()
        ),
        edges=tuple(
            Edge(
                start=start, end=end, said=_SAID.get((start, end), ""), way=way, x=x, y=y, anchor=anchor,
                times=times[start, end], weight=1.5 + 4.0 * times[start, end] / most,
            )
            for (start, end), (way, x, y, anchor) in _EDGES.items()
        ),
        steps=tuple(_steps(attempts)),
    )


def _taken(attempts: Sequence[AttemptFindings], begun: bool, ended: bool) -> Iterator[tuple[str, str]]:
    if begun:
        yield "baseline", "planner"
    version = None
    for place, one in enumerate(attempts):
        attempt = one.attempt
        if version != attempt.plan_version:
            if version is not None:
                yield "verifier", "planner"
            version = attempt.plan_version
            yield "planner", "search_docs"
        elif not attempts[place - 1].attempt.beside:
            yield "verifier", "search_docs"
        yield "search_docs", "coder"
        yield "coder", "nvcc_build"
        if one.result == "not built":
            yield "nvcc_build", "verifier"
            continue
        yield "nvcc_build", "check"
        if one.result == "wrong":
            yield "check", "verifier"
            continue
        yield "check", "nsys_profile"
        yield "nsys_profile", "ncu_profile"
        yield "ncu_profile", "verifier"
    if ended:
        yield "verifier", "report"


def _steps(attempts: Sequence[AttemptFindings]) -> Iterator[Step]:
    version = None
    for one in attempts:
        attempt = one.attempt
        yield Step(
            number=one.number, task=attempt.task, ordinal=attempt.ordinal, result=one.result,
            route="beside another candidate" if attempt.beside else attempt.route,
            plan=attempt.plan_version if attempt.plan_version != version else None,
        )  # fmt: skip
        version = attempt.plan_version
