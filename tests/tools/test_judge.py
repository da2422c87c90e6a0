"""The judge's own process: a reference that ends in the middle of an exam, or on the contents of timed calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.tools import timing
from stitchcuda.tools.worker import WorkerFailed
from tests.tools import programs
from tests.tools.seats import Bench
from tests.tools.test_timing import timed_result

FRAGILE = programs.REFERENCE.replace("        y = ", "        if x.abs().max() > 20: __import__('os').abort()\n        y = ")


def test_a_reference_that_a_variant_ends_is_started_again(tmp_path: Path) -> None:
    """Patchwork holds an outlier, nearly always."""
    bench = Bench(tmp_path, FRAGILE)
    try:
        assert len(bench.exam.sets) == 3
        assert bench.exam.usual > 0
        note = "inputs were not tried: the reference does not stand them (the reference crashed with SIGABRT"
        assert f"patchwork {note}" in bench.exam.note
        with bench.seat(programs.model(tmp_path / "program")) as seat:
            for given in bench.exam.sets:
                answer = seat.trial.call(given, same_addresses=True)
                assert seat.trial.judged(given, answer, bench.exam.bounds(3))[1] == []
    finally:
        bench.close()


def test_timing_is_tried_without_moved_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    tried: list[bool] = []

    def timed(of: str, before: str, *, integers: bool) -> object:
        tried.append(integers)
        if integers or len(tried) > 2:
            raise timing.Unfit("error", "the reference raised IndexError")
        return timed_result(1.0)

    monkeypatch.setattr(bench._judge, "_timed_together", timed)
    assert bench._judge._interleaved("a", "b") == timed_result(1.0)
    assert tried == [True, False]
    with pytest.raises(BadInput, match="The reference cannot be timed: the reference raised IndexError"):
        bench._judge._interleaved("a", "b")
    assert issubclass(timing.Unfit, WorkerFailed)
