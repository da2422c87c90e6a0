"""Bad references, bad programs, killed processes and Ctrl-C: one clear sentence, the right exception, and judging goes on.

What native code and whole processes of a program do is in `tests/integrity/test_faults.py`; what a reference may not be is in
`tests/verify/test_reference.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import CheckResult, Settings
from stitchcuda.tools.device import device
from stitchcuda.tools.device.toolkit import runtime_cache
from stitchcuda.verify import client
from stitchcuda.verify.client import Judge
from stitchcuda.verify.inputs.secret_inputs import InputTerms
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.judge.judge import JudgeProcess
from stitchcuda.verify.judge.judge_resources import JudgeResources
from stitchcuda.verify.messages import tensor_block, wire
from stitchcuda.verify.messages.judge_requests import CheckProgram, JudgeStart
from stitchcuda.verify.messages.program_requests import WrittenTensors
from stitchcuda.verify.pool import VerifierPool
from stitchcuda.verify.processes.worker import Worker
from stitchcuda.verify.program.trial import ProgramAnswer, Trial
from tests.integrity import faults, remains
from tests.marks import more_but
from tests.verify.judge_parts import Bench
from tests.verify.test_comparisons import Stage, X

pytestmark = pytest.mark.more
NO_GPU = pytest.mark.skipif(device.gpu() is not None, reason="this machine has a GPU")
REFERENCE = """
import os, time
import torch
from torch import nn
CALLS = 0

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {construct}
        self.scale = nn.Parameter(torch.randn(32))

    def forward(self, x):
        global CALLS
        CALLS += 1
        {before}
        out = torch.relu(x * self.scale + x)
        {after}
        return out

def get_inputs():
    {draw}
    return [torch.randn(48, 32)]
"""
ALTERED, EXACT, SECOND_SET = 6, 8, 9       # which of the reference's calls is with other parameters, in float64, ...


def written(place: Path, text: str = REFERENCE, **hooks: str) -> Path:
    """A reference with statements at its hooks."""
    for hook in ("construct", "before", "after", "draw"):
        text = text.replace("{" + hook + "}", hooks.get(hook, "pass"))
    place.write_text(text)
    return place


def program(place: Path, **hooks: str) -> Path:
    """A program that computes what the reference does, with statements at its hooks."""
    return written(place, REFERENCE.replace("class Model(", "class ModelNew("), **hooks)


def sentence(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The text of an exception for a user: one line, without a traceback."""
    said = str(error.value)
    assert len(said.splitlines()) == 1, said
    return said


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    made = Bench(folder, written(folder / "text.py").read_text(), sets=1)
    yield made
    made.close()


@pytest.fixture
def resources(bench: Bench, tmp_path: Path) -> Iterator[JudgeResources]:
    """What a judge holds, in this process, for the reference in `reference.py`."""
    (tmp_path / "scratch").mkdir()
    start = JudgeStart(
        settings=Settings(), limits=Limits(load_s=1, baseline_s=2), arch="sm_90a", scratch=tmp_path / "scratch",
        reference=tmp_path / "reference.py", cache=tmp_path / "cache", runtime=runtime_cache(),
    )  # fmt: skip
    made = JudgeProcess(start, bench._judge.resources.forkserver).resources
    yield made
    made.drop_reference()
    assert list((tmp_path / "scratch").iterdir()) == []


def draw(resources: JudgeResources) -> str:
    """Draws two input sets. Returns the notes on them."""
    return "; ".join(resources.secret_inputs(2, fresh=True, terms=InputTerms()).notes)


FULL_GPU = "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of')"
REMEDY = "use smaller inputs or a machine with more memory, or free some"


@pytest.mark.parametrize("call", more_but(range(3, EXACT + 1), 3, ALTERED))
@pytest.mark.parametrize(("deed", "said"), [
    (FULL_GPU, "2.00 GiB more than there is room for on the GPU"), ("raise MemoryError", "none is left"),
    ("torch.empty(1 << 50)", "GiB more than there is room for"),
])  # fmt: skip
def test_memory_that_is_full_in_the_middle(resources: JudgeResources, tmp_path: Path, call: int, deed: str, said: str) -> None:
    written(tmp_path / "reference.py", before=f"if CALLS == {call}: {deed}")
    with pytest.raises(BadInput) as error:
        draw(resources)
    assert f"{said}: {REMEDY}" in sentence(error)
    if call > 4:                           # else its worker ended, and the next one counts its calls anew
        assert draw(resources) == ""


@pytest.mark.parametrize("call", [1, ALTERED])
def test_a_reference_that_ends_for_lack_of_memory(resources: JudgeResources, tmp_path: Path, call: int) -> None:
    """As C++ ends a process: no Python code of ours gets to say it."""
    deed = "print('terminate called after throwing an instance of std::bad_alloc', flush=True); os.abort()"
    written(tmp_path / "reference.py", before=f"if CALLS == {call}: {deed}")
    with pytest.raises(BadInput) as error:
        draw(resources)
    doing = "running forward" if call == 1 else "running with other parameters"
    assert sentence(error).startswith("the reference ran out of memory (limit ")
    assert str(error.value).endswith(f" GiB) while {doing}: use smaller inputs or a machine with more memory")


@pytest.mark.parametrize("deed", ["raise ValueError('odd')", "raise KeyError('odd')"])
@pytest.mark.parametrize("call", [3, 4, 5, ALTERED, 7, EXACT, SECOND_SET])
def test_a_reference_that_raises_in_a_later_call(resources: JudgeResources, tmp_path: Path, call: int, deed: str) -> None:
    path = written(tmp_path / "reference.py", before=f"if CALLS == {call}: {deed}")
    if call in (ALTERED, SECOND_SET):      # what it does not stand is tried again, or left out
        note = draw(resources)
        assert call == ALTERED or "limited: only values like those of get_inputs() were tried" in note
        return
    with pytest.raises(BadInput) as error:
        draw(resources)
    line = path.read_text().splitlines().index(f"        if CALLS == {call}: {deed}") + 1
    assert sentence(error).startswith("The reference's forward raises ")
    assert f"odd (line {line} of reference.py)" in str(error.value).replace("'", "")


@pytest.mark.parametrize(("hooks", "said"), [
    ({"construct": "while True: pass"}, "constructing its Model did not end within 1 s and was stopped, in line 10: it loops"),
    ({"draw": "time.sleep(1000)"}, "get_inputs() of reference.py did not end within 1 s and was stopped, in line 22"),
    ({"before": "time.sleep(1000)"}, "the reference did not finish running forward within 2 s: use smaller inputs"),
    ({"before": f"CALLS == {ALTERED} and time.sleep(1000)"},
     "the reference did not finish running with other parameters within 2 s: use smaller inputs"),
    pytest.param({"construct": "sum(range(1 << 50))"}, "the reference did not finish loading within 6 s: use smaller inputs",
                 marks=pytest.mark.more),
])  # fmt: skip
def test_a_reference_that_takes_too_long(resources: JudgeResources, tmp_path: Path, hooks: dict[str, str], said: str) -> None:
    written(tmp_path / "reference.py", **hooks)
    with pytest.raises(BadInput) as error:
        draw(resources)
    assert said in sentence(error)
    written(tmp_path / "reference.py")
    resources.drop_reference()
    assert draw(resources) == ""


def test_memory_that_is_full_while_an_answer_is_copied_is_not_the_programs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> list[torch.Tensor]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    stage = Stage()
    with monkeypatch.context() as patched:
        patched.setattr(tensor_block, "_read", full)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            stage.receive(X)
    assert stage.receive(X).names == ("output",)


def checked(bench: Bench, path: Path) -> CheckResult:
    with bench.load(path) as loaded:
        return correctness.check(loaded.trial, bench.secret_inputs, 1, final=False)


@pytest.mark.parametrize(("output", "said"), [
    ("out.to('meta')", "forward returned a tensor on the device meta, which has no values"),
    ("out.as_strided((48, 32), (0, 1))", "output is wrong"),
    ("out.as_strided((48, 32), (16, 1))", "output is wrong"),
    ("out[:1].expand(48, 32)", "output is wrong"),
    ("out[:1, :1].expand(1 << 20, 1 << 20)", "output has shape (1048576, 1048576) where the reference has (48, 32)"),
    ("out[:1, :1].as_strided((1 << 31, 1 << 31), (0, 0))", "cannot be read: unreadable tensors: too many elements"),
    ("out.to_sparse()", "a tensor with layout torch.sparse_coo; only strided tensors are supported"),
    ("torch.quantize_per_tensor(out, 0.1, 0, torch.qint8)", "a tensor of dtype qint8"),
    ("out[:0]", "output has shape (0, 32) where the reference has (48, 32)"),
    ("out.as_subclass(type('Lazy', (torch.Tensor,), {}))", "forward returned a Lazy, not a plain tensor"),
    ("out.numpy()", "a value of type numpy.ndarray"),
    ("(out,)", "returns 1 tensor (output.0) where the reference returns 1 tensor (output): only one of them is in a tuple"),
    ("None", "the program returns nothing where the reference returns 1 tensor (output)"),
    ("(out, out.untyped_storage().resize_(0))[0]", "returned something that cannot be judged: a tensor whose memory was given"),
    pytest.param("[out] * 70_000", "70000 of them where 65536 are the most", marks=pytest.mark.more),
])  # fmt: skip
def test_outputs_that_are_none(bench: Bench, tmp_path: Path, output: str, said: str) -> None:
    result = checked(bench, program(tmp_path / "program.py", after=f"out = {output}"))
    assert not result.ok
    assert said in result.reasons[0]
    assert len(result.reasons[0].splitlines()) == 1
    assert checked(bench, program(tmp_path / "good.py")).ok


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no layout": (lambda answer: answer.pop("outputs"), "nonsense while running forward: outputs: Field required"),
    "a layout that is a list": (lambda answer: answer.update(outputs=[1]), "unreadable tensors"),
    "no layout of the inputs": (lambda answer: answer.pop("inputs_after"), "unreadable tensors"),
    "a block of another size": (lambda answer: answer["outputs"].update(spans=[1 << 40]), "the spans lie outside their memory"),
    "a tensor of another size": (
        lambda answer: answer["outputs"]["tensors"][0].update(shape=[480, 320]), "a tensor lies outside its memory",
    ),
    "fewer tensors": (lambda answer: answer["outputs"].update(tensors=[]), "they were changed after"),
    "a field that nobody knows": (lambda answer: answer.update(layouts={}), "running forward: layouts: Unexpected"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_that_lies_about_its_answer(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    change, said = LIES[lie]
    real = Worker._answer

    def answer(worker: Worker, deadline: float) -> dict[str, Any]:
        told = real(worker, deadline)
        if "inputs_after" in told:
            change(told)
        return told

    path = program(tmp_path / "program.py")
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_answer", answer)
        result = checked(bench, path)
    assert not result.ok
    assert "the program's outputs cannot be read" in result.reasons[0] or "nonsense" in result.reasons[0]
    assert said in result.reasons[0]
    assert checked(bench, path).ok


FORGERIES = [fault.name.removeprefix("forged: ") for fault in faults.FORGED]


@pytest.mark.parametrize("deed", more_but(FORGERIES, *FORGERIES[::7]))
def test_a_forged_answer_is_no_defect_of_ours(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str) -> None:
    """Each answer of a program's worker is changed as native code in it could. It may be accepted where nobody believes it."""
    real = Worker._answer

    def answer(worker: Worker, deadline: float) -> dict[str, Any]:
        message = real(worker, deadline)
        if worker._what == "the program" and "error" not in message:
            exec(deed, {"message": message})
        return wire._printable(message, 64)  # type: ignore[no-any-return]

    asked = CheckProgram(str(program(tmp_path / "program.py")), 2, fresh=True)
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_answer", answer)
        result = bench._judge.answer(asked)
    assert result.ok or result.reasons
    assert result.launches < 2**63
    assert sum(map(len, (*result.notes, *result.reasons))) < 20_000
    CheckResult.model_validate_json(result.model_dump_json())
    assert bench._judge.answer(asked).ok


@pytest.mark.parametrize(("whom", "said"), [
    ("worker", "the reference was killed (SIGKILL) while "),
    ("supervisor", "the supervisor of the reference was killed while "),
])  # fmt: skip
def test_a_reference_that_is_killed_while_it_holds_an_answer(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whom: str, said: str
) -> None:
    """Another one is started, and the check is made once more; a second time it is no verdict."""
    judge, real, kills = bench._judge, Trial.find_changed, [0]

    def find_changed(trial: Trial, before: ProgramAnswer[WrittenTensors], after: ProgramAnswer[WrittenTensors]) -> list[str]:
        if kills[0]:
            kills[0] -= 1
            supervisor = judge.resources.reference_worker().pid
            below = remains.below(supervisor)
            for pid in [supervisor] if whom == "supervisor" else below:
                os.kill(pid, signal.SIGKILL)
            assert remains.soon(lambda: all(map(ended, below)))
        return real(trial, before, after)

    monkeypatch.setattr(Trial, "find_changed", find_changed)
    asked = CheckProgram(str(program(tmp_path / "program.py")), 1, fresh=False)
    kills[0] = 1
    assert judge.answer(asked).ok
    assert kills == [0]
    kills[0] = 2
    with pytest.raises(Unavailable) as error:
        judge.answer(asked)
    assert said in sentence(error)
    assert "run the command again" in str(error.value)
    assert judge.answer(asked).ok


@pytest.mark.more
def test_a_slow_reference_is_not_a_slow_program(tmp_path: Path) -> None:
    """The reference draws the other sets while the program's worker waits."""
    made = Bench(tmp_path, written(tmp_path / "text.py", before="time.sleep(0.7)").read_text(), sets=1)
    try:
        made._judge.resources.limits = Limits(check_s=4)
        asked = CheckProgram(str(program(tmp_path / "program.py")), 5, fresh=False)
        assert made._judge.answer(asked).reasons == ()
    finally:
        made.close()


def test_a_judge_that_takes_too_long_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_GRACE_S", 0)
    reference, path = written(tmp_path / "reference.py", before="time.sleep(1000)"), program(tmp_path / "program.py")
    with remains.marked() as mark:
        with Judge(reference, Settings(), cache=tmp_path / "cache", bounds=Limits(check_s=3, start_s=1)) as judge:
            with pytest.raises(Unavailable) as error:
                judge.check(path, seeds=1)
            assert sentence(error).startswith("judging a program took longer than 4 s and was stopped: use smaller inputs")
            assert not judge.is_alive()
        assert remains.soon(lambda: not remains.processes(mark))
        assert not remains.scratch()


@pytest.mark.more
def test_a_pool_goes_on_after_the_process_that_makes_workers_was_killed(tmp_path: Path) -> None:
    """With another judge, which judges the program once more."""
    reference, path = written(tmp_path / "reference.py"), tmp_path / "program.py"
    with remains.marked() as mark:
        with VerifierPool(at_once=1, target="sim", cache=tmp_path / "cache", seeds=2) as pool:
            program(path, before="open(os.environ['TMPDIR'] + '/asleep', 'w'); time.sleep(1000)")
            asked = pool.submit(path, reference)
            assert remains.soon(lambda: bool(asleep(os.getpid())), 60)
            program(path)
            [job] = pool._running
            assert job.verifier is not None
            process = job.verifier.judge._process
            assert process is not None
            [forkserver] = (pid for pid in remains.below(process.pid) if parent(pid) == process.pid)
            os.kill(forkserver, signal.SIGKILL)
            for verdict in (asked, pool.submit(path, reference)):
                assert "own kernels hold 0.0%" in verdict.result(60).reasons[0]
        assert remains.soon(lambda: not remains.processes(mark))
    assert not remains.scratch()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])


def ended(pid: int) -> bool:
    """Whether a process is no more, or is one that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def scratch(pid: int) -> list[Path]:
    """Scratch folders of the client with this process number."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return [path for place in places for path in place.glob(f"stitchcuda-{pid}-*")]


def asleep(pid: int) -> list[str]:
    """The workers of a client whose program has said that it is being called."""
    return [path.parent.name for folder in scratch(pid) for path in folder.glob("program-*/asleep")]


def runs(pid: int, command: bytes) -> bool:
    """Whether a process below this one was started by such a command."""
    for below in remains.below(pid):
        try:
            if command in Path(f"/proc/{below}/cmdline").read_bytes():
                return True
        except OSError:                    # it has ended meanwhile
            continue
    return False


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder for caches."""
    return tmp_path_factory.mktemp("home")


SLEEPS = "Path(SCRATCH, 'asleep').touch(); time.sleep({seconds})"


@pytest.mark.parametrize("when", more_but(
    ["the judge starts", "the reference loads", "the program builds", "the program is called", "kernels are left out"],
    "the judge starts",
))  # fmt: skip
@NO_GPU
def test_ctrl_c(tmp_path: Path, home: Path, when: str) -> None:
    """Exit code 130, one sentence, and neither a process nor a folder is left."""
    seconds = {"the program is called": "1000", "kernels are left out": "0.05"}.get(when, "0")
    path = faults.write(faults.python("sleeps", before=SLEEPS.replace("{seconds}", seconds)), tmp_path / "program")
    loading, seen = tmp_path / "loading", set[str]()
    slow = f"import time; open({str(loading)!r}, 'w'); time.sleep(1000)\n" if when == "the reference loads" else ""
    (tmp_path / "reference.py").write_text(slow + faults.REFERENCE)
    if when == "the program builds":
        home = tmp_path                    # where nothing was built yet

    def begun() -> bool:
        seen.update(asleep(running.pid))
        return {
            "the judge starts": runs(running.pid, b"stitchcuda.verify.judge.judge"),
            "the reference loads": loading.exists(),
            "the program builds": runs(running.pid, b"launcher.py"),
            "the program is called": bool(seen),
            "kernels are left out": len(seen) == 2,  # in a second worker, after all other questions
        }[when]

    with remains.marked() as mark:
        command = [sys.executable, "-m", "stitchcuda", "verify", str(path), "--reference", str(tmp_path / "reference.py")]
        running = subprocess.Popen(
            [*command, "--device", "sim"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "XDG_CACHE_HOME": str(home)},
        )  # fmt: skip
        try:
            assert remains.soon(begun, 120)
            os.killpg(running.pid, signal.SIGINT)
            out, err = running.communicate(timeout=10)
        finally:
            running.kill()
        assert (running.returncode, out, err) == (130, "", "stitchcuda: interrupted: nothing was judged\n")
        assert remains.soon(lambda: not remains.processes(mark))
    assert not scratch(running.pid)
