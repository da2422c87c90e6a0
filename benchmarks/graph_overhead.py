"""What the graph itself costs: state, checkpoint and ledger, per node, with tools and an engineer that cost next to nothing.

    python benchmarks/graph_overhead.py            # 100 attempts
    python benchmarks/graph_overhead.py --attempts 500

The tools are those of the tests (`tests/graph/tiny.py`); everything else is the real session, with its fsyncs, in a temporary
folder. Prints one row per node and the target, 20 ms a node.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stitchcuda.nodes.context import Event  # noqa: E402
from tests.graph.tiny import ScriptedEngineer, TinyHands, tiny_session  # noqa: E402

TARGET_MS = 20.0


class Clock:
    """Milliseconds from one node's start to the next one's: the node, its checkpoint and the step between."""

    def __init__(self) -> None:
        self.spans: dict[str, list[float]] = defaultdict(list)
        self._node = ""
        self._started = 0.0

    def __call__(self, event: Event) -> None:
        if event["kind"] == "node" and event["phase"] == "start":
            self.stop()
            self._node, self._started = event["node"], time.perf_counter()

    def stop(self) -> None:
        if self._node:
            self.spans[self._node].append(1e3 * (time.perf_counter() - self._started))
        self._node = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100)
    attempts = parser.parse_args().attempts
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        session = tiny_session(Path(folder), max_attempts=attempts)
        engineer = ScriptedEngineer({f"t{number:04}": ["saves 0.001"] for number in range(attempts)}, predicted_ms=0.02)
        started = time.perf_counter()
        session.run(engineer=engineer, tools=TinyHands(), on_event=clock)
        clock.stop()
        seconds = time.perf_counter() - started
        size = sum(path.stat().st_size for path in session.folder.glob("checkpoints.sqlite*"))
        started = time.perf_counter()
        session.run(engineer=engineer, tools=TinyHands())
        resumed = time.perf_counter() - started
    print(f"{'node':<14}{'runs':>6}{'median ms':>11}{'95 % ms':>9}{'max ms':>8}")
    for node, spans in clock.spans.items():
        high = sorted(spans)[int(0.95 * (len(spans) - 1))]
        print(f"{node:<14}{len(spans):>6}{statistics.median(spans):>11.2f}{high:>9.2f}{max(spans):>8.2f}")
    runs = sum(map(len, clock.spans.values()))
    mean = 1e3 * seconds / runs
    print(f"\n{runs} nodes in {seconds:.2f} s: {mean:.2f} ms a node (target: under {TARGET_MS:g}); ", end="")
    print(f"checkpoints {size / 1e6:.2f} MB; a resume of the finished session took {resumed:.3f} s")
    return 0 if mean < TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
