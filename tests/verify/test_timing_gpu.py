"""On a GPU: known kernels get the ratio they deserve, and tricks with clocks, streams, threads and caches do not pay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.state import Settings, TimingResult
from stitchcuda.verify.client import Judge

pytestmark = pytest.mark.gpu

REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        x = torch.tanh(x) + y
        return torch.tanh(x) + y

def get_inputs():
    return [torch.randn(4096, 4096), torch.rand(4096, 4096)]
'''
MODEL = '''
import queue, threading, time
import torch
from torch import nn
{top}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream, self.seen, self.calls, self.queue = torch.cuda.Stream(), dict(), 0, queue.Queue()
        {init}

    def work(self, x, y):
        x = torch.tanh(x).add_(y)
        return torch.tanh_(x).add_(y)

    def later(self):
        with torch.no_grad():
            while True:
                x, y, out = self.queue.get()
                out.copy_(self.work(x, y))

    def forward(self, x, y):
        {forward}
'''
JOINED = """self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            out = self.work(x, y)
        torch.cuda.current_stream().wait_stream(self.stream)
        return out"""
TRICKS = {
    "side stream": ("with torch.cuda.stream(self.stream):\n            return self.work(x, y)", ""),
    "thread": (
        "out = torch.empty_like(x)\n        self.queue.put((x, y, out))\n        return out",
        "threading.Thread(target=self.later, daemon=True).start()",
    ),
    "pointer cache": (
        "key = (x.data_ptr(), y.data_ptr())\n        if key not in self.seen:\n            "
        "self.seen = {key: self.work(x, y)}\n        return self.seen[key]", "",
    ),
    "first call": ("self.calls += 1\n        return self.work(x, y) if self.calls < 40 else torch.empty_like(x)", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("timing")
    path = folder / "reference.py"
    path.write_text(REFERENCE)
    with Judge(path, Settings(target="cuda"), cache=folder / "cache") as made:
        yield made


def timed(judge: Judge, folder: Path, forward: str, *, init: str = "", top: str = "") -> TimingResult:
    program = folder / "model_new.py"
    program.write_text(MODEL.replace("{top}", top).replace("{init}", init).replace("{forward}", forward))
    return judge.time(program, program)


@pytest.mark.parametrize("forward", ["return self.work(x, y)", JOINED])
def test_honest_programs_are_timed(judge: Judge, tmp_path: Path, forward: str) -> None:
    """Four passes over 67 MB tensors take as long in either, and a joined stream costs only its joining."""
    result = timed(judge, tmp_path, forward)
    assert result.refused == ()
    assert 0.7 < result.ratio < 1.3
    assert result.deliveries == 5
    assert result.outside_ms == pytest.approx(result.program_ms, rel=0.5)


def test_outputs_do_not_wait_for_the_driver(tmp_path: Path) -> None:
    """Inputs at new addresses take no memory that an output would have come from: such a call would take twice as long."""
    reference, program = tmp_path / "reference.py", tmp_path / "model_new.py"
    small = REFERENCE.replace("torch.randn(4096, 4096), torch.rand(4096, 4096)", "torch.randn(256, 512), torch.rand(256, 512)")
    reference.write_text(small)
    program.write_text(small.replace("class Model(", "class ModelNew("))
    with Judge(reference, Settings(target="cuda"), cache=tmp_path / "cache") as judge:
        results = [judge.time(program, program) for _ in range(2)]
    assert [note for one in results for note in one.notes if "new addresses" in note] == []
    assert [one.refused for one in results] == [(), ()]


def test_short_calls_are_not_refused(judge: Judge, tmp_path: Path) -> None:
    """In a row, a call takes no longer than alone on a cold device: also one that the host's part dominates."""
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE.replace("4096, 4096", "64, 64"))
    program = tmp_path / "model_new.py"
    program.write_text(MODEL.replace("{top}", "").replace("{init}", "").replace("{forward}", JOINED))
    with Judge(reference, Settings(target="cuda"), cache=tmp_path / "cache") as short:
        assert short.time(program, program).refused == ()


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_are_refused(judge: Judge, tmp_path: Path, trick: str) -> None:
    forward, init = TRICKS[trick]
    assert timed(judge, tmp_path, forward, init=init).refused


@pytest.mark.parametrize(
    "top",
    [
        "torch.cuda.synchronize = lambda *_: None\ntime.perf_counter = time.monotonic = lambda: 0.0",
        "from stitchcuda.verify.timing.stopwatch import DeviceClock\nDeviceClock.stop = lambda self: (0.01, 0.002)",
        "from stitchcuda.verify.timing.timed_calls import TimedCalls\n"
        "TimedCalls.block = lambda self, calls, *, run: {'device_ms': [0.01] * len(calls), 'rest_ms': [0.003] * len(calls)}",
    ],
)
def test_patched_clocks_do_not_help(judge: Judge, tmp_path: Path, top: str) -> None:
    """Either the patch changes nothing, or it is seen."""
    try:
        result = timed(judge, tmp_path, "return self.work(x, y)", top=top)
    except Unavailable:
        return
    assert result.refused or 0.7 < result.ratio < 1.3
