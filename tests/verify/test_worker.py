"""How a worker's end is told."""

from __future__ import annotations

from types import SimpleNamespace

from stitchcuda.sandbox.limits import Limits
from stitchcuda.verify.processes.worker import Worker


def test_whoever_is_stopped_for_its_memory_is_told_the_limit() -> None:
    worker = object.__new__(Worker)
    worker._what, worker._bounds = "the reference", Limits(memory_gib=6)
    worker.child = SimpleNamespace(end=lambda seconds: SimpleNamespace(code=-9, output="", reason="memory"))  # type: ignore[assignment]
    said = "the reference used more memory than it may (limit 6 GiB) while loading and was stopped"
    assert str(worker._crashed("loading")) == said
