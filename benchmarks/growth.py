"""How a session grows with its attempts: the checkpoint file, going on, `show` and `report`.

    python benchmarks/growth.py [--attempts 50 100 200 500 1000] [--plot benchmarks/results/growth.svg]
                                                        > benchmarks/results/growth.md

Sessions of the tests' tools and engineer (`tests/graph/tiny.py`), everything else real; each is stopped by Ctrl-C in the middle
of one more attempt. Going on is from opening the session to its next node, all that it rests on looked at; `show` and `report`
are commands of their own, imports of Python included. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from stitchcuda.nodes.context import Event  # noqa: E402
from stitchcuda.sessions.session import Session  # noqa: E402
from tests.graph.tiny import ScriptedEngineer, TinyHands, tiny_session  # noqa: E402

GOALS = {"checkpoints": "10 MB", "going on": "2 s", "show": "1 s", "report": "10 s"}


class Grown(NamedTuple):
    """One session. Sizes in MB, times in seconds."""

    attempts: int
    checkpoints: float
    workspace: float
    going_on: float
    show: float
    report: float
    page: float


class Reached(BaseException):
    """The session has come to its next node."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, nargs="+", default=[50, 100, 200, 500, 1000])
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    found = []
    for attempts in options.attempts:
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            found.append(grown(Path(folder), attempts))
            print(f"{attempts} attempts: {found[-1]}", file=sys.stderr, flush=True)
    print("\n".join(table(found)))
    if options.plot:
        plot(found, options.plot)
    return 0


def grown(folder: Path, attempts: int) -> Grown:
    script = {f"t{number:04}": ["saves 0.001"] for number in range(attempts + 1)}
    session = tiny_session(folder, max_attempts=attempts + 1)
    tools = TinyHands()

    def strike(tool: str) -> None:
        # The first program, the one with nothing stitched, is checked without being built here.
        if tool == "build" and tools.calls.count("build") == attempts:
            raise KeyboardInterrupt

    tools.before = strike
    with contextlib.suppress(KeyboardInterrupt):
        session.run(engineer=ScriptedEngineer(script, predicted_ms=0.02), tools=tools)
    assert session.state()["attempts"] == attempts, session.state()["attempts"]
    going_on = min(_going_on(session, script) for _ in range(3))
    command = [sys.executable, "-m", "stitchcuda"]
    place = [session.name, "--workspace", str(session.home.root)]
    show = min(_seconds([*command, "show", *place]) for _ in range(3))
    report = min(_seconds([*command, "report", *place]) for _ in range(2))
    return Grown(
        attempts=attempts,
        checkpoints=sum(path.stat().st_size for path in session.folder.glob("checkpoints.sqlite*")) / 1e6,
        workspace=sum(path.stat().st_size for path in session.home.root.rglob("*") if path.is_file()) / 1e6,
        going_on=going_on,
        show=show,
        report=report,
        page=(session.folder / "report.html").stat().st_size / 1e6,
    )


def _going_on(session: Session, script: dict[str, list[str]]) -> float:
    def heard(event: Event) -> None:
        if event["kind"] == "node":
            raise Reached

    began = time.perf_counter()
    with contextlib.suppress(Reached):
        Session.open(session.name, session.home.root).run(engineer=ScriptedEngineer(script), tools=TinyHands(), on_event=heard)
    return time.perf_counter() - began


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def table(found: list[Grown]) -> list[str]:
    first, last = found[0], found[-1]
    rate_kb = (last.checkpoints - first.checkpoints) / (last.attempts - first.attempts) * 1e3 if len(found) > 1 else 0.0
    return [
        "# How a session grows",
        "",
        f"`{' '.join(('python', 'benchmarks/growth.py', *sys.argv[1:]))}` on {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}; goals at 500 attempts: "
        + ", ".join(f"{what} ≤ {goal}" for what, goal in GOALS.items()) + ".",
        "",
        "| attempts | checkpoint file | whole workspace | going on | `show` | `report` | report's page |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {grown.attempts:,} | {grown.checkpoints:.2f} MB | {grown.workspace:.1f} MB | {grown.going_on:.2f} s "
            f"| {grown.show:.2f} s | {grown.report:.2f} s | {grown.page:.2f} MB |"
            for grown in found
        ),
        "",
        f"The checkpoint file grows by {rate_kb:.1f} kB an attempt.",
    ]  # fmt: skip


def plot(found: list[Grown], path: Path) -> None:
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("svg")
    from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    attempts = [grown.attempts for grown in found]
    left.plot(attempts, [grown.checkpoints for grown in found], "o-", label="checkpoint file")
    left.plot(attempts, [grown.page for grown in found], "o-", label="report's page")
    left.set(xlabel="attempts", ylabel="MB", ylim=(0, None), xlim=(0, None))
    for name in ("going_on", "show", "report"):
        right.plot(attempts, [getattr(grown, name) for grown in found], "o-", label=name.replace("_", " "))
    right.set(xlabel="attempts", ylabel="seconds", ylim=(0, None), xlim=(0, None))
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
