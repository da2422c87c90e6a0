"""The judge's own process: a reference that ends in the middle of an exam, or on the contents of timed calls."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge_resources import Born
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.timing import rounds
from tests.verify import programs
from tests.verify.judge_parts import Bench
from tests.verify.test_timing import timed_result

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
                assert seat.trial.compare(given, answer, bench.exam.bounds(3))[1] == []
    finally:
        bench.close()


BINNED = """
import torch
from torch import nn

class CLASS(nn.Module):
    def forward(self, x, edges, index):
        CHECKS
        return torch.bucketize(x, edges) * 0.3 + x[index[1]].sum() + torch.zeros(90).index_add_(0, index[0], x[index[1]])[:64]

def get_inputs():
    ends = torch.stack([torch.randint(90, (500,)).sort().values, torch.randint(64, (500,))])
    return [torch.randn(64), torch.randn(16).sort().values, ends]
"""


def test_what_a_program_may_rely_on_stays_in_every_call(tmp_path: Path) -> None:
    checks = "assert (edges.diff() >= 0).all() and (index[0].diff() >= 0).all()"
    bench = Bench(tmp_path, BINNED.replace("CLASS", "Model").replace("CHECKS", "pass"))
    (tmp_path / "new.py").write_text(BINNED.replace("CLASS", "ModelNew").replace("CHECKS", checks))
    try:
        with bench.seat(tmp_path / "new.py") as seat:
            assert correctness.sit(seat.trial, bench.exam, 3, final=True, profile=False).reasons == ()
    finally:
        bench.close()


def test_a_seat_that_was_begun_ahead_is_taken_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    (program := tmp_path / "new.py").write_text(programs.REFERENCE.replace("class Model(", "class ModelNew("))
    judge = bench._judge
    try:
        ahead = [judge.examination._seated(program, bench.exam, judge.room.new_builder())]
        worker = ahead[0].worker
        for expected in (True, False):
            with judge.examination._seat(program, bench.exam, ahead) as seat:
                assert (seat.worker is worker) == expected
                answer = seat.trial.call(bench.exam.sets[0], same_addresses=True)
                assert seat.trial.compare(bench.exam.sets[0], answer, bench.exam.bounds(1))[1] == []
        assert ahead == []
        judge.room.errands.quiet()
        assert not worker.scratch.exists()
        (program := tmp_path / "broken.py").write_text("raise RuntimeError('no')")
        seat_of_broken = judge.examination._seat(program, bench.exam, [])
        with pytest.raises(WorkerFailed, match=r"RuntimeError \(broken.py line 1\): no"), seat_of_broken:
            pass
    finally:
        bench.close()


SLEEPS = "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
BUILDS = "import tvm_ffi.cpp\ntvm_ffi.cpp.load_inline('k', cuda_sources='#include <regex>\\n', functions=[])\n"


@pytest.mark.parametrize(("text", "after"), [(SLEEPS, 0.0), (SLEEPS, 0.5), (BUILDS, 1.0)])
def test_a_seat_that_nobody_takes_is_closed_while_it_is_being_loaded(tmp_path: Path, text: str, after: float) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    (program := tmp_path / "new.py").write_text(text)
    try:
        room = bench._judge.room
        seats = [bench._judge.examination._seated(program, bench.exam, room.new_builder()) for _ in range(4)]
        time.sleep(after)
        assert not any(one.loading.done() for one in seats)
        for one in seats:
            bench._judge.room.errands.tidy(one.close)
        bench._judge.room.errands.quiet()
        assert [type(one.loading.exception()) for one in seats] == [WorkerFailed] * 4
        assert not any(one.worker.scratch.exists() for one in seats)
    finally:
        bench.close()


def test_two_workers_at_once_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a last verification on a GPU, which loads two workers at once, with the simulator's workers."""
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    right = programs.REFERENCE.replace("class Model(", "class ModelNew(")
    spins = "it works on the device while nobody calls it (spin)"
    judge, program, idle = bench._judge, tmp_path / "new.py", [""]
    judge.room.two_at_once = judge.room.watches_idle = True
    monkeypatch.setattr("stitchcuda.verify.program.trial.Trial.idle", lambda self, seconds: idle[0])
    try:
        for text, idle[0], reason in (
            (right, "", ""),
            (right, spins, "nobody calls it"),
            (right.replace("return torch", "x.is_contiguous() or __import__('os').abort()\n        return torch"), "", ""),
            (right.replace("* gain", "* gain + 1"), "", "output is wrong"),
            (right.replace("return torch", "__import__('os').abort()\n        return torch"), "", "SIGABRT"),
            (f"import no_such_module\n{right}", "", "no_such_module"),
        ):
            program.write_text(text)
            result = judge.check({"program": str(program), "seeds": 5, "fresh": True})
            assert result["ok"] == (not reason)
            assert reason in " ".join(result["reasons"])
            assert ("inputs are not taken: the program crashed" in " ".join(result["notes"])) == ("is_contiguous" in text)
            left = [path.name for path in judge.room.scratch.iterdir() if path.name.startswith("program-")]
            assert left == []
        judge.room.errands.quiet()
        assert [path.name for path in judge.room.scratch.iterdir() if path.name.startswith("program-")] == []
    finally:
        bench.close()


def test_timing_is_tried_without_moved_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    tried: list[bool] = []

    def timed(of: str, before: str, born: list[Born], *, integers: bool) -> object:
        tried.append(integers)
        if integers or len(tried) > 2:
            raise rounds.ReferenceUnfit("error", "the reference raised IndexError")
        return timed_result(1.0)

    monkeypatch.setattr(bench._judge.clocking, "_timed_together", timed)
    assert bench._judge.clocking._interleaved("a", "b", []) == timed_result(1.0)
    assert tried == [True, False]
    with pytest.raises(BadInput, match="The reference cannot be timed: the reference raised IndexError"):
        bench._judge.clocking._interleaved("a", "b", [])
    assert issubclass(rounds.ReferenceUnfit, WorkerFailed)


def test_a_disputed_timing_is_made_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    disputed = timed_result(1.0).model_copy(update={"refused": ("the clocks disagree",), "disputed": True})
    answers = [disputed, timed_result(2.0), disputed, disputed, timed_result(3.0)]
    monkeypatch.setattr(bench._judge.clocking, "_timed_together", lambda *_, **__: answers.pop(0))
    assert bench._judge.clocking._interleaved("a", "b", []) == timed_result(2.0)
    assert bench._judge.clocking._interleaved("a", "b", []).refused == ("the clocks disagree",)
    assert answers == [timed_result(3.0)]
