"""The judge's own process: a reference that ends while inputs are drawn, or on the contents of timed calls."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, cast

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.state import CheckResult
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.other_parameters import redraw_parameters
from stitchcuda.verify.inputs.reference_requests import CompareAnswer, FindChanged, InputSet, Receive
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs
from stitchcuda.verify.integrity.device_time import RecordedWork
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge_resources import Born
from stitchcuda.verify.judge.program_check import ProgramCheck, loaded, start_loading
from stitchcuda.verify.processes.worker import Worker, WorkerFailed
from stitchcuda.verify.timing import rounds
from tests.verify import programs
from tests.verify.judge_parts import Bench
from tests.verify.test_timing import timed_result

FRAGILE = programs.REFERENCE.replace("        y = ", "        if x.abs().max() > 7: __import__('os').abort()\n        y = ")


def test_a_reference_that_a_variant_ends_is_started_again(tmp_path: Path) -> None:
    """Patchwork holds values above 7, nearly always: rows are large, unless they become small or zero."""
    bench = Bench(tmp_path, FRAGILE)
    try:
        assert len(bench.secret_inputs.sets) == 3
        assert bench.secret_inputs.usual > 0
        note = "were not tried: the reference is of no use on them (the reference crashed with SIGABRT"
        assert f"where the reference looks for them) {note}" in "; ".join(bench.secret_inputs.notes)
        with bench.load(programs.model(tmp_path / "program")) as loaded:
            for given in bench.secret_inputs.sets:
                answer = loaded.trial.call(given, same_addresses=True)
                assert loaded.trial.compare(given, answer, bench.secret_inputs.bounds(3))[1] == []
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
        with bench.load(tmp_path / "new.py") as loaded:
            assert correctness.check(loaded.trial, bench.secret_inputs, 3, final=True).reasons == ()
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("wrong", "late", "again", "said"),
    [
        ([], [], 2, ""),
        (["output is wrong"], [], 2, "while it was profiled, output is wrong"),
        ([], ["pause()"], 2, "work in another stream goes on after the call returned (pause())"),
        ([], [], 1, "it launches 2 kernels of its own for new inputs and 1 for the same ones again"),
        (None, [], 2, "the program crashed"),
    ],
)
def test_what_a_trace_adds(wrong: list[str] | None, late: list[str], again: int, said: str, tmp_path: Path) -> None:
    work = RecordedWork(own=0.75, vendor=0.25, elsewhere=100, launches=2, own_launches={"mine": 2}, late=late, again=again)
    before = CheckResult(ok=True, tier="timed", seeds=3, reasons=(), notes=("a note",), deterministic=True)
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)

    def profile(given: InputSet, bounds: dict[str, Bound]) -> tuple[RecordedWork, list[str]]:
        assert given is bench.secret_inputs.sets[0]
        assert bounds == bench.secret_inputs.bounds(1)
        if wrong is None:
            raise WorkerFailed("crash", "the program crashed")
        bench_trial.notes.append("another note")
        return work, wrong

    try:
        with bench.load(programs.model(tmp_path / "program")) as loaded:
            bench_trial = loaded.trial
            bench_trial.profile = profile  # type: ignore[method-assign]
            after = correctness.add_trace(before, bench_trial, bench.secret_inputs, 1)
    finally:
        bench.close()
    assert after.ok is not bool(said)
    assert " ".join(after.reasons).startswith(said)
    if wrong is not None:
        assert (after.own_share, after.elsewhere, after.launches, after.deterministic, after.seeds) == (0.75, 100, 2, True, 3)
        assert after.notes == ("a note", *(note for note in bench_trial.notes if note != "a note"))


def test_a_worker_that_was_started_ahead_is_taken_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    (program := tmp_path / "new.py").write_text(programs.REFERENCE.replace("class Model(", "class ModelNew("))
    judge = bench._judge
    try:
        ahead = [start_loading(judge.resources, program, bench.secret_inputs, judge.resources.new_builder())]
        worker = ahead[0].worker
        for expected in (True, False):
            with loaded(judge.resources, program, bench.secret_inputs, ahead) as found:
                assert (found.worker is worker) == expected
                answer = found.trial.call(bench.secret_inputs.sets[0], same_addresses=True)
                assert found.trial.compare(bench.secret_inputs.sets[0], answer, bench.secret_inputs.bounds(1))[1] == []
        assert ahead == []
        judge.resources.background.quiet()
        assert not worker.scratch.exists()
        (program := tmp_path / "broken.py").write_text("raise RuntimeError('no')")
        broken = loaded(judge.resources, program, bench.secret_inputs, [])
        with pytest.raises(WorkerFailed, match=r"RuntimeError \(broken.py line 1\): no"), broken:
            pass
    finally:
        bench.close()


SLEEPS = "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
BUILDS = "import tvm_ffi.cpp\ntvm_ffi.cpp.load_inline('k', cuda_sources='#include <regex>\\n', functions=[])\n"


@pytest.mark.parametrize(("text", "after"), [(SLEEPS, 0.0), (SLEEPS, 0.5), (BUILDS, 1.0)])
def test_a_worker_that_nobody_takes_is_closed_while_it_is_loading(tmp_path: Path, text: str, after: float) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    (program := tmp_path / "new.py").write_text(text)
    try:
        resources = bench._judge.resources
        loading = [start_loading(resources, program, bench.secret_inputs, resources.new_builder()) for _ in range(4)]
        time.sleep(after)
        assert not any(one.loading.done() for one in loading)
        for one in loading:
            resources.background.tidy(one.close)
        resources.background.quiet()
        assert [type(one.loading.exception()) for one in loading] == [WorkerFailed] * 4
        assert not any(one.worker.scratch.exists() for one in loading)
    finally:
        bench.close()


@pytest.mark.more
def test_two_workers_at_once_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a last verification on a GPU, which loads two workers at once, with the simulator's workers."""
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    right = programs.REFERENCE.replace("class Model(", "class ModelNew(")
    spins = "it works on the device while nobody calls it (spin)"
    judge, program, idle = bench._judge, tmp_path / "new.py", [""]
    judge.resources.two_at_once = judge.resources.watches_idle = True
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
            result = judge.examination.check(str(program), 5, fresh=True)
            assert result.ok == (not reason), result.reasons
            assert reason in " ".join(result.reasons)
            assert ("inputs are not taken: the program crashed" in " ".join(result.notes)) == ("is_contiguous" in text)
            left = [path.name for path in judge.resources.scratch.iterdir() if path.name.startswith("program-")]
            assert left == []
        judge.resources.background.quiet()
        assert [path.name for path in judge.resources.scratch.iterdir() if path.name.startswith("program-")] == []
    finally:
        bench.close()


@pytest.mark.more
@pytest.mark.parametrize("question", [Receive, CompareAnswer, FindChanged])
def test_a_check_is_made_once_more_when_the_references_process_ends(
    question: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret inputs are still there: the judge holds their blocks. The program's answers have to be given anew."""
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    judge, ask, killed = bench._judge, bench._judge.resources.ask, list[int]()
    (program := tmp_path / "new.py").write_text(programs.REFERENCE.replace("class Model(", "class ModelNew("))

    def ask_and_kill(request: Any) -> Any:
        reference = judge.resources._shared.reference
        if isinstance(request, question) and reference is not None and not killed:
            killed.append(reference.pid)
            reference.child.end()
        return ask(request)

    monkeypatch.setattr(judge.resources, "ask", ask_and_kill)
    try:
        result = judge.examination.check(str(program), 2, fresh=False)
        assert result.ok, result.reasons
        assert judge.resources._shared.reference is not None
        assert killed != [judge.resources._shared.reference.pid]
    finally:
        bench.close()


def test_timing_is_tried_without_moved_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    tried: list[bool] = []

    def timed(of: str, before: str, started: list[Born], *, integers: bool) -> object:
        tried.append(integers)
        if integers or len(tried) > 2:
            raise rounds.ReferenceUnfit("error", "the reference raised IndexError")
        return timed_result(1.0)

    monkeypatch.setattr(bench._judge.timing, "_timed_together", timed)
    assert bench._judge.timing._interleaved("a", "b", []) == timed_result(1.0)
    assert tried == [True, False]
    with pytest.raises(BadInput, match="The reference cannot be timed: the reference raised IndexError"):
        bench._judge.timing._interleaved("a", "b", [])
    assert issubclass(rounds.ReferenceUnfit, WorkerFailed)


def test_workers_of_a_timing_are_started_while_a_program_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, closed, made = Bench(tmp_path, programs.REFERENCE, sets=1), list[Born](), list[Born]()
    resources = bench._judge.resources

    def start_worker(program: str, secret_inputs: SecretInputs) -> Born:
        stack = contextlib.ExitStack()
        made.append(Born(Path(program), cast(Worker, None), stack))
        stack.callback(closed.append, made[-1])
        return made[-1]

    monkeypatch.setattr(resources, "start_worker", start_worker)
    resources.start_for_timing("a", bench.secret_inputs)
    assert not made, "the simulator times nothing"
    monkeypatch.setattr(resources, "target", "cuda")
    for program in ("a", "a", "b"):        # a check may be made again, on other terms
        resources.start_for_timing(program, bench.secret_inputs)
    first, second, *taken = made
    assert closed == [first, second]
    assert resources.take_waiting("b") == taken
    assert resources.take_waiting("b") == []
    resources.start_for_timing("a", bench.secret_inputs)
    assert resources.for_parallel_check().take_waiting("a") == []
    assert resources.take_waiting("b") == []
    assert closed == [first, second, *made[4:]]
    monkeypatch.setattr(resources, "is_large", lambda given: True)
    resources.start_for_timing("c", bench.secret_inputs)
    assert len(made) == 6
    monkeypatch.setattr(resources, "target", "sim")
    bench.close()


def test_what_changed_after_its_check_is_not_timed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    resources, program = bench._judge.resources, tmp_path / "program.py"
    program.write_text("class ModelNew: ...\n")
    for _ in range(2):                     # a check takes it as it is
        with resources.program_copy(str(program)):
            pass
        with resources.program_copy(str(program), checked=True):
            pass
        program.write_text(program.read_text() + "# changed\n")
    with pytest.raises(BadInput, match="was changed after it was checked"):
        resources.start_worker(program, bench.secret_inputs)
    bench.close()


def test_a_disputed_timing_is_made_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, programs.REFERENCE, sets=1)
    disputed = timed_result(1.0).model_copy(update={"refused": ("the clocks disagree",), "disputed": True})
    answers = [disputed, timed_result(2.0), disputed, disputed, timed_result(3.0)]
    monkeypatch.setattr(bench._judge.timing, "_timed_together", lambda *_, **__: answers.pop(0))
    assert bench._judge.timing._interleaved("a", "b", []) == timed_result(2.0)
    assert bench._judge.timing._interleaved("a", "b", []).refused == ("the clocks disagree",)
    assert answers == [timed_result(3.0)]


SCALED = """
import torch
from torch import nn


class CLASS(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.kept = []

    def forward(self, x):
        BODY


def get_inputs():
    return [torch.randn(16, 4)]
"""
KEPT = "self.kept = self.kept or [self.scale.detach().clone().clamp(max=4.0)]\n        return x * self.kept[0].exp()"


@pytest.mark.more
@pytest.mark.parametrize(("body", "note", "reason"), [
    ("return x * self.scale.clamp(max=4.0).exp()", "", ""),
    (KEPT, "limited: parameters loaded after the first call are not taken over: load them before", ""),
    ("return x * self.scale.exp()", "limited: parameters loaded after", "output is wrong"),
    ("assert self.scale.max() < 4; return x * self.scale.exp()", "limited: parameters cannot be loaded", "AssertionError"),
])  # fmt: skip
def test_a_program_must_be_right_with_other_parameters_once_it_is_loaded_with_them(
    body: str, note: str, reason: str, tmp_path: Path
) -> None:
    before = CheckResult(ok=True, tier="timed", seeds=1, reasons=(), notes=("a note",))
    text = SCALED.replace("CLASS", "Model").replace("BODY", "return x * self.scale.clamp(max=4.0).exp()")
    bench = Bench(tmp_path, text, sets=1)
    (program := tmp_path / "new.py").write_text(SCALED.replace("CLASS", "ModelNew").replace("BODY", body))
    resources = bench._judge.resources
    try:
        other = redraw_parameters(bench.ask, bench.secret_inputs)
        assert other is not None
        with bench.load(program) as loaded:
            assert loaded.trial.is_correct(bench.secret_inputs.sets[0], bench.secret_inputs.bounds(1))
            result, found = correctness.add_remarks(before, loaded.trial, bench.secret_inputs, 1, [other], twice=True)
        assert (result.ok, result.notes) == (True, ("a note",))
        assert found.startswith(note)
        assert bool(found) == bool(note)
        with resources.worker(program, other) as worker:
            trial = resources.trial(worker, other)
            result = correctness.check_anew(result, trial, program, bench.secret_inputs, other, found)
    finally:
        bench.close()
    assert result.ok is not bool(reason)
    if reason:
        assert result.reasons[0].startswith("with other parameters, larger and smaller than those that the constructor")
        assert reason in result.reasons[0]
        assert note not in "".join(result.notes)
    else:
        assert result.notes == ("a note", found)


ALL = """self.__class__.all = getattr(self.__class__, 'all', None) or [self]
        return x * self.all[0].scale.clamp(max=4.0).exp()"""
ELSE = "return 0 * x if WHEN else x * self.scale.clamp(max=4.0).exp()"
ONCE = """return x * self.scale.clamp(max=4.0).exp()

MADE = []
class CLASS(CLASS):
    def __init__(self):
        assert not MADE
        MADE.append(0)
        super().__init__()
"""


@pytest.mark.parametrize(("body", "reason", "note"), [
    ("return x * self.scale.clamp(max=4.0).exp()", "", ""),
    (ALL, "with two instances of ModelNew in one process, output is wrong", ""),
    (ELSE.replace("WHEN", "torch.is_grad_enabled()"), "with gradients enabled, for inputs that require them, output", ""),
    (ELSE.replace("WHEN", "torch.is_inference_mode_enabled()"), "under torch.inference_mode(), output is wrong", ""),
    (f"assert not torch.is_grad_enabled(); {ELSE.replace('WHEN', 'False')}", "", "limited: it cannot be called with gradients"),
    (ONCE, "", "limited: ModelNew cannot be constructed twice in a process: the program raised AssertionError"),
])  # fmt: skip
def test_a_program_must_be_right_beside_a_second_instance_and_in_other_modes(
    body: str, reason: str, note: str, tmp_path: Path
) -> None:
    before = CheckResult(ok=True, tier="timed", seeds=1, reasons=(), notes=())
    text = SCALED.replace("CLASS", "Model").replace("BODY", "return x * self.scale.clamp(max=4.0).exp()")
    bench = Bench(tmp_path, text, sets=1)
    (program := tmp_path / "new.py").write_text(SCALED.replace("BODY", body).replace("CLASS", "ModelNew"))
    try:
        other = redraw_parameters(bench.ask, bench.secret_inputs)
        assert other is not None
        with bench.load(program) as loaded:
            assert loaded.trial.is_correct(bench.secret_inputs.sets[0], bench.secret_inputs.bounds(1))
            result, _ = correctness.add_remarks(before, loaded.trial, bench.secret_inputs, 1, [other], twice=True)
    finally:
        bench.close()
    assert result.ok is not bool(reason)
    assert "".join(result.reasons).startswith(reason)
    assert "".join(result.notes).startswith(note)
    assert bool(result.notes) == bool(note)


@pytest.mark.more
def test_a_large_programs_first_process_ends_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCALED.replace("BODY", KEPT)
    bench = Bench(tmp_path, SCALED.replace("CLASS", "Model").replace("BODY", "return x * self.scale.exp()"), sets=1)
    (folder := tmp_path / "program").mkdir()
    (program := folder / "new.py").write_text(text.replace("CLASS", "ModelNew").replace(".clamp(max=4.0)", ""))
    resources, start, events = bench._judge.resources, bench._judge.resources.worker, list[str]()

    def watched(*given: Any) -> Worker:
        worker = start(*given)
        close = worker.close

        def ends() -> None:
            close()
            events.append("ends")

        monkeypatch.setattr(worker, "close", ends)
        events.append("begins")
        return worker

    monkeypatch.setattr(resources, "worker", watched)
    monkeypatch.setattr(resources, "is_large", lambda secret_inputs: True)
    try:
        check = ProgramCheck(resources, lambda name: contextlib.nullcontext(), program, 3, InputTerms(), fresh=True, two=False)
        result = check.run(lambda secret_inputs: None)
        resources.background.quiet()
    finally:
        bench.close()
    assert result.ok
    assert events == ["begins", "ends"] * 3
    assert result.notes[-1] == "limited: parameters loaded after the first call are not taken over: load them before"
