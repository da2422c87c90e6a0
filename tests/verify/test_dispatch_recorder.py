"""Operators that hide from the dispatch modes are seen from below."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from stitchcuda.verify.integrity.byte_traffic import ByteTraffic, poison
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder, note

ANEW = """
import torch
from torch._C import _profiler
from stitchcuda.verify.integrity.dispatch_recorder import DispatchRecorder, close_recordings, note

C, cpu = torch._C._autograd, {torch.profiler.ProfilerActivity.CPU}
config = _profiler.ProfilerConfig(_profiler.ProfilerState.KINETO, *[False] * 5, _profiler._ExperimentalConfig())
%s
with DispatchRecorder() as witness:
    note("framework", 5)
    try:
        seen = C._disable_profiler().events()
        C._prepare_profiler(config, cpu)
        C._enable_profiler(config, cpu)
        for name in [event.name() for event in seen][:%d]:
            with _profiler._RecordFunctionFast(name):
                pass
    except RuntimeError as error:
        print(error)
    note("framework", 7)
print(witness.reasons, witness.total("framework"))
"""


def watched(call: object) -> DispatchRecorder:
    witness = DispatchRecorder()
    with torch.no_grad(), witness, ByteTraffic():
        call()  # type: ignore[operator]
    return witness


def honest() -> None:
    x = torch.randn(8, 16)
    y = torch.nn.functional.linear(x, torch.randn(4, 16)).contiguous().to(torch.float32)
    torch.nn.functional.dropout(y, 0.5, False).reshape(-1).view(4, 8).t().softmax(0)
    q = torch.randn(1, 2, 4, 8)
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.empty(3, dtype=torch.bool), torch.cat([y, y]), y.sum().item(), torch.nn.functional.layer_norm(x, (16,))
    torch.nn.MultiheadAttention(16, 2)(x, x, x), torch.nn.GRU(16, 4)(x), torch.einsum("ij,kj->ik", x, x)


def test_honest_calls_hide_nothing() -> None:
    assert watched(honest).reasons == []


@pytest.mark.parametrize("way", ["modes left", "own thread", "own mode"])
def test_hidden_operators_are_named(way: str) -> None:
    x = torch.randn(8, 8)

    class Own(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    def call() -> None:
        torch.relu(x)
        if way == "own thread":
            thread = threading.Thread(target=lambda: torch.mm(x, x))
            thread.start()
            thread.join()
        elif way == "modes left":
            with _disable_current_modes():
                torch.mm(x, x)
        else:
            with _disable_current_modes(), Own():  # type: ignore[no-untyped-call, unused-ignore]
                torch.mm(x, x)

    (reason,) = watched(call).reasons
    assert "aten::mm" in reason


def test_a_recording_that_the_program_ends_is_told() -> None:
    def call() -> None:
        torch._C._autograd._disable_profiler()
        torch.mm(torch.randn(4, 4), torch.randn(4, 4))

    assert "ended the recording" in watched(call).reasons[0]


@pytest.mark.parametrize("repeated", [0, 1])
def test_a_recording_begun_anew_lacks_what_was_said(repeated: int) -> None:
    assert "ended the recording" in said_of(ANEW % ("", repeated))


@pytest.mark.more
def test_recordings_are_closed_to_a_program() -> None:
    assert said_of(ANEW % ("close_recordings()", 9)).splitlines()[-1] == "[] 12"
    for where in ("torch.autograd", "torch.autograd.profiler", "torch._C._autograd"):
        start = "import torch\nfrom stitchcuda.verify.integrity.dispatch_recorder import close_recordings\nclose_recordings()\n"
        assert "recordings are the verifier's" in said_of(f"{start}{where}._disable_profiler()")


def said_of(script: str) -> str:
    """In a process of its own: what it replaces stays so."""
    return subprocess.run([sys.executable, "-c", script], text=True, stdout=-1, stderr=subprocess.STDOUT, check=False).stdout


def test_what_was_counted_is_in_the_recording() -> None:
    """And nowhere else: there is no sum that a program could set back, and what it forges adds to the sums."""
    x = torch.randn(8, 8)

    def call() -> None:
        torch.relu(torch.mm(x, x)).sum().item()
        note("replay", 1)

    witness = watched(call)
    assert witness.noted["vendor"] == {"mm": 3 * 256}
    assert witness.noted["framework"]["relu"] == 2 * 256
    assert witness.steps[:2] == [
        ("vendor", "mm", 3 * 256, "[8, 8] float32", ""), ("framework", "relu", 2 * 256, "[8, 8] float32", ""),
    ]  # fmt: skip
    assert (witness.total("read"), witness.total("replay"), witness.total("other")) == (4, 1, 0)
    assert not [name for name, value in vars(ByteTraffic()).items() if isinstance(value, int) and not isinstance(value, bool)]


def test_booleans_are_poisoned_two_ways() -> None:
    one, other = torch.empty(5, dtype=torch.bool), torch.empty(5, dtype=torch.bool)
    poison(one)
    poison(other, inverted=True)
    assert one.tolist() == [False, True, False, True, False]
    assert torch.equal(one, ~other)


def test_who_was_there_first_keeps_its_kernels() -> None:
    """A program's own operators are its own; what torch computes below the modes stays as it is."""
    code = (
        "import torch\n"
        "from stitchcuda.verify.integrity import dispatch_recorder as witness\n"
        "witness.close_recordings()\n"
        "own = torch.library.Library('mine', 'DEF')\n"
        "own.define('twice(Tensor x) -> Tensor')\n"
        "own.impl('twice', lambda x: x + x, 'CPU')\n"
        "assert not witness.is_builtin_operator('mine::twice') and witness.is_builtin_operator('aten::relu')\n"
        "torch.library.Library('aten', 'IMPL').impl('relu', lambda x: x, 'Meta', allow_override=True)\n"
        "more = torch.library.Library('aten', 'FRAGMENT')\n"
        "more.define('not_there_before(Tensor x) -> Tensor')\n"
        "more.impl('not_there_before', lambda x: x, 'CPU')\n"
        "for space, key in (('aten', 'CPU'), ('aten', 'Autograd'), ('aten', 'CompositeExplicitAutograd'), ('_', 'CUDA')):\n"
        "    library = torch.library.Library(space, 'IMPL')\n"
        "    try:\n"
        "        library.m.fallback(key, print) if space == '_' else library.impl('relu', lambda x: x, key)\n"
        "    except PermissionError:\n"
        "        continue\n"
        "    raise SystemExit(f'{space} {key} went through')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
