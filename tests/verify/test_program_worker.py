"""What a program does to the objects that it is given, or in answers to the worker's own questions, changes no finding."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.verify.processes.worker import WorkerFailed
from tests.verify import programs
from tests.verify.judge_parts import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), programs.REFERENCE)
    yield made
    made.close()


def test_an_input_of_another_class_sees_nothing_of_the_next_call(bench: Bench, tmp_path: Path) -> None:
    top = """
class Watching(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func)
        with torch._C.DisableTorchFunction():
            return func(*args, **(kwargs or {}))

seen = []
"""
    before, after = "early = len(seen)", "x.__class__ = Watching; seen.clear(); out = out * 0 if early else out"
    program = programs.model(tmp_path, imports=top, before=before, after=after)
    given = bench.secret_inputs.sets[0]
    with bench.load(program) as loaded:
        for _ in range(3):
            answer = loaded.trial.call(given, same_addresses=True)
            errors, reasons = loaded.trial.compare(given, answer, bench.secret_inputs.bounds(1))
            assert all(error.ok for error in errors)
            assert all("tensor object that it is given" in reason for reason in reasons)


def test_state_is_asked_for_before_there_are_inputs(bench: Bench, tmp_path: Path) -> None:
    """Else a program could work in its `state_dict`, where nothing counts, on what its next call will be given."""
    after = "out = out * 0 if self.seen is not None and self.seen.equal(x) else out"
    program = programs.model(tmp_path, before="self.x = x", after=after, init="self.seen = None")
    text = (program / "model_new.py").read_text()
    text += """
    def state_dict(self, *args, **kwargs):
        if self.__dict__.get("x") is not None:
            self.seen = self.x.clone()
        return super().state_dict(*args, **kwargs)
"""
    (program / "model_new.py").write_text(text)
    given = bench.secret_inputs.sets
    with bench.load(program) as loaded:
        for one in (given[0], given[1], given[0]):
            answer = loaded.trial.call(one, same_addresses=True)
            assert loaded.trial.compare(one, answer, bench.secret_inputs.bounds(2))[1] == []


def test_one_of_many_further_calls_is_answered_without_any_poison(bench: Bench, tmp_path: Path) -> None:
    """Else a program that asks its fresh memory, or who started it, would be right only where it is judged."""
    asks = "fresh = torch.empty(64, device=x.device); out = out if bool(fresh.isnan().all()) else out * 0"
    given = bench.secret_inputs.sets[1]
    for name, line, right in (("plain", "pass", True), ("poison", asks, False)):
        (tmp_path / name).mkdir()
        program = programs.model(tmp_path / name, after=line)
        with bench.load(program) as loaded:
            answer = loaded.trial.repeat(given, calls=6, seconds=20.0)
            assert answer.reply.calls == 6
            assert (loaded.trial.compare(given, answer, bench.secret_inputs.bounds(2))[1] == []) == right


def test_nothing_says_who_started_the_process(bench: Bench, tmp_path: Path) -> None:
    after = "import sys; told = str([*sys.argv, *sys.orig_argv]); out = out * 0 if 'judge' in told or 'pytest' in told else out"
    given = bench.secret_inputs.sets[0]
    with bench.load(programs.model(tmp_path, after=after)) as loaded:
        answer = loaded.trial.call(given, same_addresses=True)
        assert loaded.trial.compare(given, answer, bench.secret_inputs.bounds(1))[1] == []
    code = "from stitchcuda.verify.processes import forkserver; forkserver._rename(); print(open('/proc/self/cmdline').read())"
    told = subprocess.run([sys.executable, "-c", code, "a word"], capture_output=True, text=True, check=True).stdout
    assert told.strip("\0\n") == sys.executable


HIDING = """
import json
_made = json.dumps

def _dumps(value, **options):
    return _made(value | {"tampered": []} if isinstance(value, dict) and "tampered" in value else value, **options)

json.dumps = _dumps
json.encoder.JSONEncoder.encode = lambda self, value: _dumps(value)
"""


def test_a_program_that_changes_how_answers_are_written_is_told(bench: Bench, tmp_path: Path) -> None:
    program = programs.model(tmp_path, imports=HIDING)
    with pytest.raises(WorkerFailed) as caught, bench.load(program):
        pass
    assert caught.value.kind == "tampering"
    assert "json.dumps was replaced" in str(caught.value)
