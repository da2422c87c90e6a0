"""On a GPU, each skeleton computes what torch does in float64, as a call and as a CUDA graph.

`pytest -s -m gpu tests/rag/test_skeletons_gpu.py` prints a line for each case: error, bound, milliseconds beside torch's.
The bound is the judge's: ten times as far from float64 as torch's own result in the same precision, in norm and at the worst
element. Each case runs twice on other numbers with the workspace of the first call, then twice as a CUDA graph. It is timed as
a graph's replay beside torch's, with a cold L2. TF32 is off where errors are compared, and torch's default where it is timed.
Where to look next: `tests/rag/test_skeletons.py` (what needs no GPU).
"""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from stitchcuda.tools.build import libraries
from stitchcuda.tools.device import toolkit

pytestmark = pytest.mark.gpu

FOLDER = Path(__file__).resolve().parents[2] / "stitchcuda" / "rag" / "skeletons"
ALLOWED = 10.0                             # times torch's own error
ROUNDING = 2.0**-24                        # one rounding of fp32
GELU_OF_CUBLASLT = 2.0**-21                # a tenth of what its epilogue is off by


@dataclass(frozen=True)
class Prepared:
    """A skeleton with its inputs on the GPU. All calls use what `call` allocated beforehand."""

    draw: Callable[[], None]               # writes other numbers into the inputs
    call: Callable[[], int]                # runs the skeleton on the current stream; its status, 0 if all is well
    found: Callable[[], list[torch.Tensor]]
    right: Callable[[torch.dtype | None], list[torch.Tensor]]  # torch's results, computed in a dtype; None: its own
    rounding: float = ROUNDING             # torch's error counts as at least this


class Pair(torch.nn.Module):
    """An nn.LSTM or nn.GRU, of which `forward` returns all steps and the last state."""

    def __init__(self, gru: bool, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = (torch.nn.GRU if gru else torch.nn.LSTM)(inputs, hidden)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        if isinstance(self.cell, torch.nn.GRU):
            return list(self.cell(x, h))
        out, (last, cell) = self.cell(x, (h, c))
        return [out, last, cell]


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """A skeleton, built by nvcc for this GPU."""
    kit = toolkit.find_toolkit()
    if kit is None:
        pytest.skip(toolkit.missing() or "no toolkit")
    source = FOLDER / f"{name}.cu"
    found = libraries.find(libraries.included_headers([source]), libraries.places(kit))
    if found.missing or found.unlinked:
        pytest.skip(" ".join([*found.missing.values(), *found.unlinked.values()]))
    major, minor = torch.cuda.get_device_capability()
    number = f"{major}{minor}" + ("a" if major >= 9 else "")
    made = Path(tempfile.mkdtemp(prefix="stitchcuda-skeletons-")) / f"{name}.so"
    includes = [flag for folder in found.includes for flag in ("-isystem", str(folder))]
    build = [
        str(kit.nvcc), "-std=c++17", "-O3", f"-gencode=arch=compute_{number},code=sm_{number}", "-shared", "-Xcompiler=-fPIC",
        *found.cuda_flags, *includes, str(source), "-o", str(made),
        *(f"-Xlinker={flag[4:]}" if flag.startswith("-Wl,") else flag for flag in found.link),
    ]  # fmt: skip
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, f"{' '.join(build)}\n{done.stdout}{done.stderr}"
    return ctypes.CDLL(str(made))


def called(function: Callable[..., int], *arguments: torch.Tensor | ctypes.c_void_p | int | float | None) -> int:
    """Calls a skeleton's entry with tensors as pointers, and the current stream as the last argument."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return int(function(*(as_c(argument) for argument in arguments), stream))


def as_c(argument: torch.Tensor | ctypes.c_void_p | int | float | None) -> object:
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return argument if isinstance(argument, int) else argument or ctypes.c_void_p()


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory that holds NaN: what is read before it is written shows."""
    return torch.full(shape, torch.nan, dtype=dtype, device="cuda")


def drawer(*tensors: torch.Tensor, spread: bool = True) -> Callable[[], None]:
    """Writes normal numbers; with `spread` each row has a size of its own, from 2^-6 to 2^6."""

    def draw() -> None:
        for tensor in tensors:
            tensor.normal_()
            if spread and tensor.dim() > 1:
                tensor.mul_(torch.exp2(torch.randint(-6, 7, (*tensor.shape[:-1], 1), device="cuda")))

    return draw


def several_kernels(rows: int, columns: int, name: str = "several_kernels") -> Prepared:
    run = library(name).run
    x, y, partial = empty(rows, columns), empty(rows, columns), empty({"several_kernels": 8}.get(name, 32), columns)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        values = x.to(dtype or x.dtype)
        return [values - values.mean(0)]

    return Prepared(drawer(x, spread=False), lambda: called(run, x, partial, y, rows, columns), lambda: [y], right)


def dependent_launch(rows: int, columns: int) -> Prepared:
    return several_kernels(rows, columns, "dependent_launch")


def block_statistics(rows: int, columns: int) -> Prepared:
    run = library("block_statistics").run
    x, affine, y = empty(rows, columns), empty(2, columns), empty(rows, columns)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        values, (weight, bias) = x.to(dtype or x.dtype), affine.to(dtype or x.dtype)
        return [functional.layer_norm(values, (columns,), weight, bias)]

    return Prepared(drawer(x, affine), lambda: called(run, x, affine, y, rows, columns), lambda: [y], right)


def tiled_product(n: int, k: int) -> Prepared:
    run = library("tiled_product").run
    a, b, c = empty(n, k), empty(n, k), empty(n, n)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        return [a.to(dtype or a.dtype) @ b.to(dtype or b.dtype).t()]

    return Prepared(drawer(a, b), lambda: called(run, a, b, c, n, k), lambda: [c], right)


def pipelined_product(m: int, n: int, k: int, name: str = "pipelined_product") -> Prepared:
    built = library(name)
    width = (k + 63) // 64 * 64
    a, b, bias, c = empty(m, k), empty(n, k), empty(n), empty(m, n)
    a_parts, b_parts = empty(2, m, width, dtype=torch.float16), empty(2, n, width, dtype=torch.float16)
    a_undo, b_undo = empty(m), empty(n)
    fill = drawer(a, b, bias)

    def draw() -> None:
        fill()
        assert called(built.split_launch, b, b_parts, b_undo, n, k) == 0     # weights: once

    def call() -> int:
        return called(built.split_launch, a, a_parts, a_undo, m, k) or called(
            built.product_launch, a_parts, a_undo, b_parts, b_undo, bias, c, m, n, k
        )

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        return [functional.linear(*(tensor.to(dtype or a.dtype) for tensor in (a, b, bias)))]

    return Prepared(draw, call, lambda: [c], right)


def split_product(m: int, n: int, k: int) -> Prepared:
    built = library("split_product")
    x, w, bias, y = empty(m, k), empty(n, k), empty(n), empty(m, n)
    x3, w3 = empty(m, 3 * k, dtype=torch.float16), empty(n, 3 * k, dtype=torch.float16)
    workspace = torch.empty(2**25, dtype=torch.uint8, device="cuda")
    plan = ctypes.c_void_p()
    fill = drawer(x, w, bias, spread=False)
    x_scale, w_scale = 2.0, 2.0 ** (1 + math.floor(math.log2(k) / 2))        # the largest normal number is near 4
    size = ctypes.c_size_t(workspace.numel())
    pointer = ctypes.c_void_p(bias.data_ptr())
    assert built.plan_product(ctypes.byref(plan), m, n, k, pointer, size) == 0

    def draw() -> None:
        fill()
        w.div_(k**0.5)
        assert called(built.split_launch, w, w3, n, k, w_scale, 1) == 0

    def call() -> int:
        factor = ctypes.c_float(1.0 / (x_scale * w_scale))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x3, w3, y, workspace)]
        return called(built.split_launch, x, x3, m, k, x_scale, 0) or int(
            built.product_launch(plan, *pointers[:3], factor, pointers[3], size, stream)
        )

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        return [functional.gelu(functional.linear(*(t.to(dtype or x.dtype) for t in (x, w, bias))), approximate="tanh")]

    return Prepared(draw, call, lambda: [y], right, rounding=GELU_OF_CUBLASLT)


def small_attention(heads: int, length: int) -> Prepared:
    run = library("small_attention").run
    q, kv, out = empty(heads, length, 32), empty(2, heads, length, 32), empty(heads, length, 32)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        query, key, value = (tensor.to(dtype or q.dtype) for tensor in (q, kv[0], kv[1]))
        return [functional.scaled_dot_product_attention(query, key, value, is_causal=True)]

    return Prepared(drawer(q, kv, spread=False), lambda: called(run, q, kv, out, heads, length), lambda: [out], right)


def tensor_core_attention(heads: int, queries: int, keys: int, head: int, causal: int, dtype: torch.dtype) -> Prepared:
    built = library("tensor_core_attention")
    q, k, v = (empty(heads, length, head, dtype=dtype) for length in (queries, keys, keys))
    out = empty(heads, queries, head, dtype=dtype)
    sizes = (heads, queries, keys, head, causal)

    def call() -> int:
        if dtype == torch.float32:
            return called(built.run, q, k, v, out, *sizes)
        return called(built.run_half, q, k, v, out, *sizes, int(dtype == torch.bfloat16))

    def right(wanted: torch.dtype | None) -> list[torch.Tensor]:
        query, key, value = (tensor.to(wanted or dtype)[None] for tensor in (q, k, v))
        return [functional.scaled_dot_product_attention(query, key, value, is_causal=causal != 0)[0]]

    return Prepared(drawer(q, k, v, spread=False), call, lambda: [out], right)


def persistent_recurrent(gru: int, steps: int, batch: int, inputs: int, hidden: int) -> Prepared:
    run = library("persistent_recurrent").run
    cell = Pair(gru != 0, inputs, hidden).cuda().requires_grad_(False)
    exact = Pair(gru != 0, inputs, hidden).cuda().double().requires_grad_(False)
    exact.load_state_dict(cell.state_dict())
    w_ih, w_hh, b_ih, b_hh = (parameter.detach() for parameter in cell.cell.parameters())
    x, h0, c0 = empty(steps, batch, inputs), empty(1, batch, hidden), empty(1, batch, hidden)
    gates, out = empty(steps * batch, w_ih.shape[0]), empty(steps, batch, hidden)
    h, c = empty(1, batch, hidden), empty(1, batch, hidden)
    bias = b_ih if gru else b_ih + b_hh

    def call() -> int:
        torch.addmm(bias, x.view(-1, inputs), w_ih.t(), out=gates)
        before, after = (None, None) if gru else (c0, c)
        sizes = (steps, batch, hidden, gru)
        return called(run, gates, w_hh, b_hh if gru else None, h0, before, out, h, after, *sizes)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        if dtype is None:
            return list(cell(x, h0, c0))
        with torch.backends.cudnn.flags(enabled=False):
            return list(exact(x.double(), h0.double(), c0.double()))

    return Prepared(drawer(x, h0, c0, spread=False), call, lambda: [out, h] if gru else [out, h, c], right)


def implicit_gemm_convolution(n: int, size: int, channels: int, filters: int, kernel: int) -> Prepared:
    built = library("implicit_gemm_convolution")
    half = torch.float16
    x = empty(n, channels, size, size, dtype=half).to(memory_format=torch.channels_last)
    w = empty(filters, channels, kernel, kernel, dtype=half).to(memory_format=torch.channels_last)
    bias = empty(filters, dtype=half)
    y = empty(n, filters, size, size, dtype=half).to(memory_format=torch.channels_last)
    plan, needed = ctypes.c_void_p(), ctypes.c_int64()
    shape = (n, size, size, channels, filters, kernel, kernel)
    assert built.plan_convolution(ctypes.byref(plan), *shape, ctypes.byref(needed)) == 0
    workspace = torch.empty(max(needed.value, 1), dtype=torch.uint8, device="cuda")
    fill = drawer(x, w, bias, spread=False)

    def draw() -> None:
        fill()
        w.div_((channels * kernel * kernel) ** 0.5)

    def right(dtype: torch.dtype | None) -> list[torch.Tensor]:
        image, weight, shift = (tensor.to(dtype or half) for tensor in (x, w, bias))
        return [functional.conv2d(image, weight, shift, padding=kernel // 2).relu()]

    return Prepared(draw, lambda: called(built.convolution_launch, plan, x, w, bias, y, workspace), lambda: [y], right)


HALF, BFLOAT, SINGLE = torch.float16, torch.bfloat16, torch.float32
CASES: list[tuple[Callable[..., Prepared], tuple[object, ...]]] = [
    (several_kernels, (37, 301)), (several_kernels, (8192, 4096)),
    (dependent_launch, (37, 301)), (dependent_launch, (5, 1)), (dependent_launch, (1024, 1024)),
    (dependent_launch, (8192, 4096)),
    (block_statistics, (9, 701)), (block_statistics, (16384, 1024)),
    (tiled_product, (70, 37)), (tiled_product, (2048, 2048)),
    (pipelined_product, (1, 9, 5)), (pipelined_product, (70, 131, 37)), (pipelined_product, (129, 65, 260)),
    (pipelined_product, (1500, 1301, 777)), (pipelined_product, (1024, 512, 512)), (pipelined_product, (4096, 4096, 4096)),
    (pipelined_product, (128, 1024, 16384)),
    (split_product, (64, 48, 40)), (split_product, (1024, 512, 512)), (split_product, (4096, 4096, 1024)),
    (small_attention, (3, 21)), (small_attention, (96, 257)),
    (tensor_core_attention, (2, 1, 1, 5, 1, SINGLE)), (tensor_core_attention, (3, 77, 77, 32, 1, SINGLE)),
    (tensor_core_attention, (3, 65, 130, 50, 0, SINGLE)), (tensor_core_attention, (2, 200, 200, 128, 1, SINGLE)),
    (tensor_core_attention, (2, 33, 95, 90, 0, SINGLE)), (tensor_core_attention, (96, 1024, 1024, 64, 1, SINGLE)),
    (tensor_core_attention, (96, 512, 512, 128, 0, SINGLE)), (tensor_core_attention, (3, 77, 77, 64, 1, HALF)),
    (tensor_core_attention, (3, 65, 130, 33, 0, BFLOAT)), (tensor_core_attention, (96, 1024, 1024, 64, 1, HALF)),
    (persistent_recurrent, (0, 1, 1, 3, 1)), (persistent_recurrent, (0, 7, 3, 5, 33)), (persistent_recurrent, (1, 7, 3, 5, 33)),
    (persistent_recurrent, (0, 20, 35, 20, 200)), (persistent_recurrent, (1, 20, 70, 20, 131)),
    (persistent_recurrent, (1, 9, 17, 16, 128)), (persistent_recurrent, (0, 512, 10, 128, 256)),
    (persistent_recurrent, (1, 512, 10, 128, 256)),
    (implicit_gemm_convolution, (2, 15, 16, 24, 3)), (implicit_gemm_convolution, (32, 56, 64, 64, 3)),
]  # fmt: skip


def named(case: tuple[Callable[..., Prepared], tuple[object, ...]]) -> str:
    return "-".join([case[0].__name__, *(str(part).removeprefix("torch.") for part in case[1])])


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(25)
    with torch.no_grad():
        yield


def errors(found: list[torch.Tensor], right: list[torch.Tensor]) -> list[tuple[float, float]]:
    """In norm, and at the worst element over the largest of all; for each result."""
    pairs = [(value.double() - exact, exact) for value, exact in zip(found, right, strict=True)]
    return [(float(off.norm() / exact.norm()), float(off.abs().max() / exact.abs().max())) for off, exact in pairs]


def clone(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def graph_of(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph, flush: torch.Tensor) -> float:
    """The median of 25 replays, each with a cold L2."""
    taken: list[float] = []
    for _ in range(25):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end))
    return statistics.median(taken)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_skeleton_computes_what_torch_does(case: tuple[Callable[..., Prepared], tuple[object, ...]]) -> None:
    prepare, shape = case
    prepared = prepare(*shape)
    found: list[list[tuple[float, float]]] = []  # errors, ours and torch's, of two calls and two replays, each on other numbers
    graph: torch.cuda.CUDAGraph | None = None

    def call() -> None:
        assert prepared.call() == 0

    for turn in range(4):
        prepared.draw()
        for tensor in prepared.found():
            tensor.fill_(torch.nan)
        if turn == 2:
            graph = graph_of(call)
        if graph is None:
            call()
        else:
            graph.replay()
        torch.cuda.synchronize()
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            exact, own = prepared.right(torch.float64), prepared.right(None)
        found.append([
            (mine, max(theirs, prepared.rounding))
            for each, other in zip(errors(prepared.found(), exact), errors(own, exact), strict=True)
            for mine, theirs in zip(each, other, strict=True)
        ])  # fmt: skip
    assert graph is not None
    first = clone(prepared.found())
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(first, prepared.found(), strict=True)), "not the same on the same numbers"
    worst, bound = max((pair for pairs in found for pair in pairs), key=lambda pair: pair[0] / pair[1])
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    prepared.right(None)                   # what torch makes at its first call is not part of a graph
    mine, theirs = (milliseconds(graph_of(work), flush) for work in (call, lambda: prepared.right(None)))
    print(
        f"\n{named(case)}: error {worst:.2e}, bound {ALLOWED * bound:.2e} ({worst / bound:.2f} times torch's, {ALLOWED:.0f} "
        f"allowed); {mine:.4f} ms, torch {theirs:.4f} ms ({theirs / mine:.2f} times)"
    )
    assert [pair for pairs in found for pair in pairs if not pair[0] <= ALLOWED * pair[1]] == []
