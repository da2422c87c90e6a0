"""Times generated kernels against torch on a GPU: every strategy of a dozen representative kernels.

    python -m benchmarks.kernels [--only softmax] [--seconds 0.2] [--json FILE]

Needs torch, apache-tvm-ffi and nvcc. Each kernel is checked against torch in float64 first; a wrong one is reported and not
timed. Times are medians of CUDA-graph replays over rotating input sets, so that the L2 cache holds nothing from the last run.
GB/s counts each input read once and each output written once; `share` is of a device-to-device copy measured here.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tvm_ffi.cpp
from torch.nn import functional as F

from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.dtypes import size_of
from stitchcuda.compiler.lower.ir import Argument, Kernel, KernelSource
from tests.compiler import kernels as build

Tensors = dict[str, torch.Tensor]
CACHE = 60 * 2**20


@dataclass(frozen=True)
class Case:
    """One kernel and what torch does for it: `eager` takes the inputs by argument name and returns the outputs by name."""

    kernel: Kernel
    eager: Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kernel: str
    variant: int
    strategy: str
    error: float           # largest difference from float64, over the outputs' scale
    correct: bool
    ms: float
    gbs: float
    share: float           # of the measured copy bandwidth
    speedup: float         # over torch eager


def _layer_norm(t: Tensors) -> Tensors:
    total = t["x"] + t["residual"] if "residual" in t else t["x"]
    y = F.layer_norm(total, total.shape[-1:], t["weight"], t["bias"])
    return {"y": y, "total": total} if "residual" in t else {"y": y}


def _softmax(t: Tensors) -> Tensors:
    return {"y": F.softmax(t["x"], 1)}


def _batch_norm(t: Tensors) -> Tensors:
    mean, var = t["running_mean"], t["running_var"]
    y = F.relu(F.batch_norm(t["x"], mean, var, t["weight"], t["bias"], training=True, momentum=0.1))
    return {"y": y, "running_mean": mean, "running_var": var}


def _group_norm(groups: int) -> Callable[[Tensors], Tensors]:
    return lambda t: {"y": F.silu(F.group_norm(t["x"], groups, t["weight"], t["bias"]))}


def gate(name: str, rows: int, width: int, dtype: str) -> Kernel:
    """silu(a) * b."""
    draft = build.Draft(name, (rows, width), comment="silu(a) * b")
    a, b = draft.load("a", dtype), draft.load("b", dtype)
    draft.store("y", draft.do("mul", draft.do("mul", a, draft.do("sigmoid", a)), b), dtype)
    return draft.kernel()


def gelu(name: str, count: int, dtype: str) -> Kernel:
    draft = build.Draft(name, (count,), comment="gelu")
    x = draft.load("x", dtype)
    inner = draft.do("add", draft.do("erf", draft.do("mul", x, 0.7071067811865476)), 1.0)
    draft.store("y", draft.do("mul", draft.do("mul", x, 0.5), inner), dtype)
    return draft.kernel()


def cases() -> list[Case]:
    """The table, biggest families first."""
    out = []
    for rows, length in ((4096, 768), (16384, 1024), (8192, 4096)):
        for dtype in ("float32", "bfloat16"):
            out.append(Case(build.layer_norm(f"add_layer_norm_{rows}x{length}_{dtype}", rows, length, dtype), _layer_norm))
    out.append(Case(build.layer_norm("layer_norm_200704x96_float32", 200704, 96, residual=False), _layer_norm))
    out.append(Case(build.softmax("softmax_32768x1024", (32768, 1024), 1), _softmax))
    out.append(Case(build.softmax("softmax_24576x197_bfloat16", (24576, 197), 1, "bfloat16"), _softmax))
    out.append(Case(build.softmax("softmax_1024x50257", (1024, 50257), 1), _softmax))
    out.append(Case(build.softmax("softmax_dim1_64x128x3136", (64, 128, 3136), 1), _softmax))
    for dtype in ("float32", "bfloat16"):
        out.append(Case(gelu(f"gelu_64M_{dtype}", 1 << 26, dtype), lambda t: {"y": F.gelu(t["x"])}))
    out.append(Case(gate("silu_mul_8192x11008_bfloat16", 8192, 11008, "bfloat16"), lambda t: {"y": F.silu(t["a"]) * t["b"]}))
    channels = lambda t: {"y": F.relu(t["x"] + t["bias"][:, None])}  # noqa: E731
    out.append(Case(build.channel_bias("bias_relu_128x256x784", 128, 256, 784), channels))
    out.append(Case(build.channel_bias("bias_relu_128x512x49", 128, 512, 49), channels))
    for dtype in ("float32", "bfloat16"):
        turned = lambda t: {"z": t["x"].transpose(1, 2) + t["y"]}  # noqa: E731
        out.append(Case(build.transpose(f"transpose_16x2048x1024_{dtype}", 16, 2048, 1024, dtype), turned))
    for n, c, side in ((32, 64, 56), (32, 256, 56), (128, 512, 7)):
        out.append(Case(build.batch_norm(f"batch_norm_{n}x{c}x{side}x{side}", n, c, side * side), _batch_norm))
    out.append(Case(build.batch_norm("batch_norm_32x64x56x56_bfloat16", 32, 64, 3136, "bfloat16"), _batch_norm))
    out.append(Case(build.group_norm("group_norm_32x256x56x56", 32, 32, 8, 3136), _group_norm(32)))
    mean = build.total("mean_hw_256x1024x196", (256, 1024, 196), (2,), scale=1 / 196)
    out.append(Case(mean, lambda t: {"y": t["x"].mean(2)}))
    out.append(Case(build.total("sum_rows_65536x1024", (65536, 1024), (0,)), lambda t: {"y": t["x"].sum(0)}))
    out.append(Case(build.total("sum_all_64M", (1 << 26,), (0,)), lambda t: {"y": t["x"].sum()}))
    out.append(Case(build.layer_norm("small_layer_norm_512x512", 512, 512), _layer_norm))
    return out


def _fill(argument: Argument, device: str, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, argument.dtype)
    if argument.role == "out":
        return torch.full(argument.shape, float("nan"), dtype=dtype, device=device)
    tensor = torch.randn(argument.shape, dtype=torch.float32, device=device, generator=generator).to(dtype)
    return tensor.abs() + 0.5 if argument.name == "running_var" else tensor


def _bytes(kernel: Kernel) -> int:
    def size(argument: Argument) -> int:
        return math.prod(argument.shape) * size_of(argument.dtype) * (2 if argument.role == "inout" else 1)

    return sum(size(argument) for argument in kernel.arguments)


def measure(runs: Sequence[Callable[[], Any]], seconds: float) -> float:
    """Milliseconds of one run: the median over replays of a CUDA graph that makes all runs in turn."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for run in runs:
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    repeat = max(1, 20 // len(runs))
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeat):
            for run in runs:
                run()
    graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    while sum(times) * repeat * len(runs) < seconds * 1e3 or len(times) < 5:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / (repeat * len(runs)))
    return statistics.median(times)


def copy_bandwidth(seconds: float) -> float:
    """GB/s of a 1 GiB device-to-device copy, counting reads and writes: the ceiling that shares are taken of."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / measure([lambda: target.copy_(source)], seconds) / 1e6


def load(sources: list[KernelSource], folder: Path) -> Any:
    """Builds kernels into one module."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        (folder / f"{source.name}.cu").write_text(source.cuda)
        (folder / f"{source.name}_binding.cc").write_text(source.binding)
    return tvm_ffi.cpp.load(
        "kernels", cpp_files=[str(folder / f"{s.name}_binding.cc") for s in sources],
        cuda_files=[str(folder / f"{s.name}.cu") for s in sources], build_directory=str(folder / "build"),
        extra_cuda_cflags=["-O3", "-std=c++17"],
    )  # fmt: skip


def run_case(case: Case, sources: list[KernelSource], module: Any, ceiling: float, seconds: float) -> list[Row]:
    """All strategies of one kernel, checked and timed."""
    kernel = case.kernel
    generator = torch.Generator("cuda").manual_seed(7)
    moved = _bytes(kernel)
    copies = max(1, min(16, -(-2 * CACHE // moved)))
    sets = [{a.name: _fill(a, "cuda", generator) for a in kernel.arguments} for _ in range(copies)]
    inputs = [{a.name: s[a.name] for a in kernel.arguments if a.role != "out"} for s in sets]
    pristine = {name: tensor.clone() for name, tensor in sets[0].items()}      # eager updates running statistics in place
    want = case.eager({name: tensor.double() for name, tensor in inputs[0].items()})
    eager_ms = measure([functools.partial(case.eager, given) for given in inputs], seconds)
    rate = moved / eager_ms / 1e6
    rows = [Row(kernel.name, -1, "torch eager", 0.0, True, eager_ms, rate, rate / ceiling, 1.0)]
    for number, source in enumerate(sources):
        workspace = [torch.empty(source.workspace_bytes, dtype=torch.uint8, device="cuda")] if source.workspace_bytes else []
        call = getattr(module, source.name)
        trial = {name: tensor.clone() for name, tensor in pristine.items()}
        call(*trial.values(), *workspace)
        torch.cuda.synchronize()
        error = 0.0
        correct = True
        for name, expected in want.items():
            got, bound = trial[name].double(), {torch.float32: 2e-5, torch.bfloat16: 1.6e-2}.get(trial[name].dtype, 4e-3)
            scale = max(1.0, float(expected.abs().max()))
            worst = float((got - expected.reshape(got.shape)).abs().max()) / scale
            correct = correct and worst <= bound
            error = max(error, worst)
        if not correct:
            rows.append(Row(kernel.name, number, source.strategy, error, False, 0.0, 0.0, 0.0, 0.0))
            continue
        ms = measure([functools.partial(call, *tensors.values(), *workspace) for tensors in sets], seconds)
        rate = moved / ms / 1e6
        rows.append(Row(kernel.name, number, source.strategy, error, True, ms, rate, rate / ceiling, eager_ms / ms))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run kernels whose name contains this")
    parser.add_argument("--first", action="store_true", help="only the best-guess strategy of each kernel")
    parser.add_argument("--seconds", type=float, default=0.05, help="device time per measurement")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.kernels needs an NVIDIA GPU that torch can use", file=sys.stderr)
        return 2
    chosen = [case for case in cases() if options.only in case.kernel.name]
    groups: list[list[KernelSource]] = []
    for case in chosen:
        count = 1 if options.first else count_variants(case.kernel)
        groups.append([emit(replace(case.kernel, name=f"{case.kernel.name}_v{v}"), v) for v in range(count)])
    with tempfile.TemporaryDirectory() as folder:
        module = load([source for group in groups for source in group], Path(folder))
        ceiling = copy_bandwidth(options.seconds)
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy: {ceiling:.0f} GB/s")
        print(f"{'kernel':44} {'v':>2} {'ms':>8} {'GB/s':>6} {'share':>6} {'x eager':>8} {'error':>8}  strategy")
        rows: list[Row] = []
        for case, group in zip(chosen, groups, strict=True):
            for row in run_case(case, group, module, ceiling, options.seconds):
                rows.append(row)
                number = "-" if row.variant < 0 else str(row.variant)
                figures = f"{row.ms:8.4f} {row.gbs:6.0f} {row.share:6.1%} {row.speedup:8.2f}"
                figures = figures if row.correct else f"{'WRONG':>31}"
                print(f"{row.kernel:44} {number:>2} {figures} {row.error:8.1e}  {row.strategy}", flush=True)
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if all(row.correct for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
