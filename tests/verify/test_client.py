"""The judge as a session uses it: honest programs pass, every kind of wrong one is refused with a sentence that helps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import CheckResult, Settings
from stitchcuda.tools.device.toolkit import runtime_cache
from stitchcuda.verify.client import Judge
from stitchcuda.verify.judge.judge import JudgeProcess
from stitchcuda.verify.messages.judge_requests import JudgeStart, RunReference
from stitchcuda.verify.processes.forkserver import ForkServer
from tests.verify import programs

# A reply of its own on every descriptor that it can find.
FORGERY = """
        for fd in range(3, 64):
            try: os.write(fd, b'{"structure": {"tensor": 0}, "own": 1.0}\\n')
            except OSError: pass
"""
BOUNDS = Limits(call_s=5, start_s=60, memory_gib=6)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "gated.py"
    path.write_text(programs.REFERENCE)
    return path


@pytest.fixture(scope="module")
def judge(reference: Path, cache: Path) -> Iterator[Judge]:
    with Judge(reference, Settings(), cache=cache, bounds=BOUNDS) as one:
        yield one


def refused(judge: Judge, program: Path) -> str:
    """The reasons of a program that must not pass."""
    result = judge.check(program, seeds=2)
    assert not result.ok
    assert result.reasons
    return "; ".join(result.reasons)


def test_baseline_says_what_the_reference_is(judge: Judge, reference: Path) -> None:
    facts = judge.baseline()
    graph = json.loads(facts.capture)
    assert [spec["name"] for spec in graph["inputs"]] == ["x"]
    assert not graph["opaque"]
    assert facts.eager_ms is None
    assert len(facts.sha) == 64


def test_an_honest_program_passes(judge: Judge, tmp_path: Path) -> None:
    result = judge.check(programs.model(tmp_path), seeds=3)
    assert result.ok, result.reasons
    assert result.tier == "simulated"
    assert result.seeds == 3
    assert {one.name for one in result.outputs} >= {"output", "buffer:norm.running_mean", "buffer:norm.num_batches_tracked"}
    assert result.deterministic
    assert result.own_share == 0.0
    assert result.vendor_share > 0.0


def test_a_kernel_runs_on_the_simulator(judge: Judge, tmp_path: Path) -> None:
    result = judge.check(programs.kernel_program(tmp_path), seeds=2)
    assert result.ok, result.reasons
    assert result.launches == 1
    (own,) = (step for step in result.steps if step.who == "own")
    assert own.tensors.count("float32") >= 2
    assert own.amount > 0
    assert sum(step.amount for step in result.steps if step.who != "own") == result.elsewhere
    assert 0.2 < result.own_share < 0.8
    assert result.own_share + result.vendor_share + result.framework_share == pytest.approx(1.0)


def test_a_cuda_graph_is_welcome_and_a_stale_one_is_not(judge: Judge, tmp_path: Path) -> None:
    result = judge.check(programs.graph_program(tmp_path / "honest"), seeds=2)
    assert result.ok, result.reasons
    assert result.launches == 1, "a replay launches its kernel again"
    assert sum(step.times for step in result.steps if step.who == "own") == 1
    stale = programs.graph_program(tmp_path / "stale", copies="pass")
    assert "output is wrong" in refused(judge, stale)


@pytest.mark.more
def test_fresh_seeds_for_the_last_word(judge: Judge, tmp_path: Path) -> None:
    result = judge.verify_final(programs.model(tmp_path), seeds=2)
    assert result.ok, result.reasons


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"after": "out = out + 1e-3"}, "largest error"),
        ({"after": "out = torch.zeros_like(out)"}, "all zeros"),
        ({"after": "out = torch.empty_like(out)"}, "nothing writes this output"),
        ({"after": "out = out.half()"}, "has dtype float16 where the reference has float32"),
        ({"after": "out = out[:, :-1]"}, "has shape (48, 31) where the reference has (48, 32)"),
        ({"after": "return out, out"}, "2 tensors"),
        ({"after": "return None"}, "returns nothing where the reference returns 1 tensor ("),
        ({"after": "return 'done'"}, "not a tensor"),
        ({"after": "x.add_(1)"}, "writes into its input 0"),
        ({"after": "self.scale.data.mul_(2)"}, "changes scale, which the reference leaves alone"),
        ({"init": "self.norm.momentum = 0.0"}, "buffer:norm.running_mean"),
        ({"init": "self.eval()", "before": "self.norm.eval()"}, "buffer:norm"),
        ({"after": "out = out + 0.01 * (self.calls > 1)"}, "on a second call with the same inputs"),
        (
            {"before": "if self.calls > 1: self.norm(self.linear(x)); return self.kept", "after": "self.kept = out"},
            "output is wrong",
        ),
        ({"before": "raise ValueError('no such tile')"}, "raised ValueError (model_new.py line 17): no such tile"),
        ({"init": "self.more = nn.Parameter(torch.ones(1))"}, "adds more"),
        ({"init": "del self.scale"}, "lacks scale"),
        ({"imports": "import does_not_exist"}, "does_not_exist"),
        ({"imports": "def ("}, "SyntaxError"),
        ({"before": "ctypes.CDLL('libc.so.6').strlen(0)"}, "SIGSEGV while running forward (model_new.py, line 17, in"),
        ({"before": "os._exit(0)"}, "ended by itself with exit code 0"),
        ({"before": "sys.exit(0)"}, "SystemExit"),
        pytest.param({"before": "time.sleep(60)"}, "did not finish running forward within 5 s", marks=pytest.mark.more),
        ({"before": "torch.ones(3 * 2**30)"}, "out of memory"),
        ({"before": FORGERY}, "sent an answer of its own making"),
        ({"after": "out = out.as_subclass(type('Lazy', (torch.Tensor,), {}))"}, "a Lazy, not a plain tensor"),
    ],
)
def test_wrong_programs_are_refused(judge: Judge, tmp_path: Path, hooks: dict[str, str], said: str) -> None:
    assert said in refused(judge, programs.model(tmp_path, **hooks))


def test_a_source_with_half_a_surrogate_pair_is_refused_in_a_sentence(judge: Judge, tmp_path: Path) -> None:
    (program := tmp_path / "model_new.py").write_text('import torch\ngetattr(torch, "a\\ud800").b = 1\n')
    assert "replaces torch.a?.b" in refused(judge, program)


def test_a_program_without_the_class(judge: Judge, tmp_path: Path) -> None:
    assert "defines no class ModelNew" in refused(judge, programs.write(tmp_path, {"model_new.py": "x = 1"}))


def test_ones_and_zeros_cannot_be_baked_in(judge: Judge, tmp_path: Path) -> None:
    """The reference's own `scale` is all ones, so a program that ignores it must meet other values."""
    ignores = programs.MODEL.replace("y * self.scale + x", "y + x")
    for hook in ("init", "before", "after"):
        ignores = ignores.replace("{" + hook + "}", "pass")
    program = programs.write(tmp_path, {"model_new.py": ignores.replace("{imports}", "")})
    assert "output is wrong" in refused(judge, program)


def test_a_kernel_that_does_not_compile(judge: Judge, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path, kernel=programs.KERNEL.replace("value > 0.0f", "valu > 0.0f"))
    said = refused(judge, program)
    assert "do not build" in said
    assert "kernels/gate.cu:6" in said
    assert "valu" in said


def test_an_unwritten_element_shows(judge: Judge, tmp_path: Path) -> None:
    kernel = programs.KERNEL.replace("i < rows * columns;", "i < rows * columns - 1;")
    program = programs.kernel_program(tmp_path, kernel=kernel)
    assert "NaN in 1 of 1536 elements" in refused(judge, program)


def test_what_the_simulator_refuses_was_not_judged(judge: Judge, tmp_path: Path) -> None:
    kernel = programs.KERNEL.replace("const float value", 'asm volatile("membar.gl;"); const float value')
    result = judge.check(programs.kernel_program(tmp_path, kernel=kernel), seeds=1)
    assert not result.ok
    assert result.tier == "compiled"
    assert "could not judge" in result.reasons[0]
    assert "inline PTX" in result.reasons[0]


def test_a_foreign_file_with_other_parameters(judge: Judge, tmp_path: Path) -> None:
    """KernelBench-style: constructed under the reference's seed, its parameters named otherwise; and it asks for "cuda"."""
    text = programs.REFERENCE.replace("class Model(", "class ModelNew(").replace("self.scale", "self.gate")
    text = text.replace("y = self.norm", "assert x.is_cuda and torch.zeros(2, device='cuda').is_cuda; y = self.norm")
    path = tmp_path / "foreign.py"
    path.write_text(text)
    result = judge.check(path, seeds=1)
    assert result.ok, result.reasons
    assert any("'gate' taken for 'scale', by shape" in note for note in result.notes)


def test_a_crash_leaves_the_judge_in_order(judge: Judge, tmp_path: Path) -> None:
    refused(judge, programs.model(tmp_path / "bad", before="os.kill(os.getpid(), 9)"))
    result = judge.check(programs.model(tmp_path / "good"), seeds=1)
    assert result.ok, result.reasons


def test_nothing_is_timed_without_a_gpu(judge: Judge, tmp_path: Path) -> None:
    program = programs.model(tmp_path)
    with pytest.raises(Unavailable, match="needs a GPU"):
        judge.time(program, program)


@pytest.fixture(scope="module")
def forkserver() -> Iterator[ForkServer]:
    torch.set_num_threads(1)               # a pool of threads that other tests started would not survive the forkserver's fork
    one = ForkServer()
    yield one
    one.close()


UNUSABLE = {
    "not valid Python": "def (",
    "no class Model": "x = 1",
    "no data": programs.REFERENCE.replace("return [torch.randn(48, 32), 1.5]", "raise RuntimeError('no data')"),
    "different results for the same inputs": programs.REFERENCE.replace("* gain", "* gain + __import__('random').random()"),
}


@pytest.mark.parametrize("said", UNUSABLE)
def test_an_unusable_reference_is_bad_input(forkserver: ForkServer, tmp_path: Path, cache: Path, said: str) -> None:
    """Said by its worker, and passed on by a judge (in this process, for starting one takes seconds)."""
    path, scratch = tmp_path / "reference.py", tmp_path / "scratch"
    path.write_text(UNUSABLE[said])
    scratch.mkdir()
    start = JudgeStart(
        settings=Settings(), limits=Limits(), scratch=scratch, reference=path, cache=cache, arch="sm_90a",
        runtime=runtime_cache(),
    )  # fmt: skip
    judge = JudgeProcess(start, forkserver)
    with pytest.raises(BadInput, match=said):
        judge.answer(RunReference())
    judge.resources.drop_reference()


def test_a_reference_that_crashes_is_bad_input(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(programs.REFERENCE.replace("y = self.norm", "import ctypes; ctypes.string_at(0); y = self.norm"))
    with Judge(path, Settings(), cache=cache) as judge, pytest.raises(BadInput, match="SIGSEGV"):
        judge.baseline()


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    tasks = Path(f"/proc/{pid}/task")
    for task in tasks.iterdir() if tasks.exists() else ():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def gone(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(running(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.more)])
def test_no_orphan_and_no_scratch_survive(reference: Path, cache: Path, tmp_path: Path, how: signal.Signals) -> None:
    """A client that is interrupted or killed in the middle of a check takes everything with it."""
    before = "open(os.environ['HOME'] + '/started', 'w').close(); time.sleep(100)"
    program = programs.model(tmp_path / "program", before=before)
    script = tmp_path / "client.py"
    script.write_text(
        "from pathlib import Path\nfrom stitchcuda.state import Settings\nfrom stitchcuda.verify.client import Judge\n"
        f"with Judge(Path({str(reference)!r}), Settings(), cache=Path({str(cache)!r})) as judge:\n"
        "    print(judge._scratch, flush=True)\n"
        f"    judge.check(Path({str(program)!r}), seeds=1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    client = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    assert client.stdout is not None
    scratch = Path(client.stdout.readline().strip())
    deadline = time.monotonic() + 60
    while not any(scratch.rglob("started")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = children(client.pid)
    assert len(family) >= 7, "judge, forkserver, supervisor and worker of reference and program, process 1 of its namespace"
    client.send_signal(how)
    client.wait(10)
    client.stdout.close()
    assert gone(family, 5), "a process survived"
    assert not scratch.exists()


def test_results_are_records(judge: Judge, tmp_path: Path) -> None:
    result = judge.check(programs.model(tmp_path), seeds=1)
    assert CheckResult.model_validate_json(result.model_dump_json()) == result
