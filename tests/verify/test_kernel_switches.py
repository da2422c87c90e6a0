"""Switches in device memory: counts, skips and replays of graphs, checked against CUPTI's own list (GPU)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stitchcuda.tools.build import masks
from stitchcuda.tools.build.kernel_names import base_name
from stitchcuda.tools.device import toolkit
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.program.kernel_switches import MaskedSwitches
from tests.verify import programs

pytestmark = pytest.mark.gpu

HEADER = """
#pragma once
template <typename T> __global__ void shift(T* x, int n, T by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}
"""
FIRST = """
#include "shift.cuh"
namespace { namespace deep {
template <int N> __global__ void __launch_bounds__(256) scale(float* x, int n) {
  __shared__ float s[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) x[i] = s[threadIdx.x] * N;
}
} }
extern "C" __global__ void idle_gemm(float* x, int n) { if (n < 0) x[0] = 1; }
extern "C" void run_a(float* x, int n, cudaStream_t stream) {
  deep::scale<3><<<(n + 255) / 256, 256, 0, stream>>>(x, n);
  idle_gemm<<<1, 32, 0, stream>>>(x, n);
  shift<float><<<(n + 255) / 256, 256, 0, stream>>>(x, n, 1.0f);
}
"""
SECOND = """
#include "shift.cuh"
__global__ void never(float* x) { x[0] = 1; }
extern "C" void run_b(float* x, int n, cudaStream_t stream) {
  shift<float><<<(n + 255) / 256, 256, 0, stream>>>(x, n, 10.0f);
  if (n < 0) never<<<1, 1, 0, stream>>>(x);
}
"""


def built(folder: Path, *, masked: bool) -> tuple[ctypes.CDLL, Path]:
    kit = toolkit.find_toolkit()
    assert kit is not None
    programs.write(folder, {"shift.cuh": HEADER, "a.cu": FIRST, "b.cu": SECOND})
    sources = [folder / "a.cu", folder / "b.cu"]
    if masked:
        sources, names = masks.add_switches_to_files(sources, folder=folder / "masked")
        assert names == ("scale", "idle_gemm", "shift", "never")
    library = folder / f"library-{masked}.so"
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    command = [str(kit.nvcc), "-shared", "-w", f"-arch={arch}", "-Xcompiler", "-fPIC", "-cudart=shared", "-o", str(library)]
    subprocess.run([*command, *map(str, sources)], check=True, timeout=120)
    return ctypes.CDLL(str(library)), library


def caller(library: ctypes.CDLL, x: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for run in (library.run_a, library.run_b):
            run(ctypes.c_void_p(x.data_ptr()), ctypes.c_int(x.numel()), stream)

    return call


def short(counts: dict[str, int]) -> dict[str, int]:
    return {name.partition(":")[2]: count for name, count in counts.items()}


def test_switches_count_and_skip_also_in_a_replayed_graph(tmp_path: Path) -> None:
    library, _ = built(tmp_path, masked=True)
    x = torch.ones(1000, device="cuda")
    call, switches = caller(library, x), MaskedSwitches()

    def outcome(run: Callable[[], None], *skipped: str) -> float:
        x.fill_(1.0)
        switches.take_launches()
        every = list(switches.take_launches())
        switches.skip([name for name in every if name.partition(":")[2] in skipped])
        run()
        value = float(x[7])
        switches.skip([])
        return value

    assert outcome(call) == 14.0
    assert short(switches.take_launches()) == {"scale": 1, "idle_gemm": 1, "shift": 2, "never": 0}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for run in (call, graph.replay):
        assert outcome(run, "scale") == 12.0
        assert outcome(run, "shift") == 3.0      # the header's kernel in both files
        assert outcome(run, "idle_gemm") == 14.0
        assert outcome(run) == 14.0
        assert short(switches.take_launches())["scale"] == 1
    with pytest.raises(RuntimeError, match="no loaded library"):
        switches.skip(["m0:missing"])


def test_own_kernels_are_those_of_the_library_whatever_they_are_called(tmp_path: Path) -> None:
    library, path = built(tmp_path, masked=False)
    x = torch.ones(1 << 20, device="cuda")
    square = torch.randn(64, 64, device="cuda")  # small beside the graph, which otherwise would not be at work
    call = caller(library, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    def whole() -> None:
        call()
        graph.replay()
        torch.mm(square, square)
        x.mul_(2.0)

    recorded = device_time.record(whole, restore=lambda: None)
    own = device_time.built_kernels([path])
    assert {base_name(name) for name in own} == {"scale", "idle_gemm", "shift", "never"}
    found = device_time.summarize(recorded, own, calls_vendors=True)
    print(found)
    assert found.launches == 8
    assert found.replays == 1
    launches = {base_name(name): count for name, count in found.own_launches.items()}
    assert launches == {"scale": 2, "idle_gemm": 2, "shift": 4}
    assert found.vendor == found.vendor_by_torch > 0  # torch.mm
    assert found.framework > 0
    counted = {"m:scale": 2, "m:idle_gemm": 0, "m:shift": 4}
    assert len(device_time.find_borrowed_names(found.own_launches, counted)) == 1


@pytest.mark.long
def test_switches_of_a_torch_extension(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import load_inline

    text, _ = masks.add_switches(
        "#include <torch/extension.h>\n__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"
        "void run(torch::Tensor x) { twice<<<1, 32>>>(x.data_ptr<float>(), 32); }\n",
        "ext",
    )
    tmp_path.joinpath("build").mkdir()
    module = load_inline(  # type: ignore[no-untyped-call, unused-ignore]
        "masked_extension", cpp_sources="void run(torch::Tensor x);", cuda_sources=text, functions=["run"],
        build_directory=str(tmp_path / "build"), no_implicit_headers=False,
    )  # fmt: skip
    x = torch.ones(32, device="cuda")
    switches = MaskedSwitches()
    module.run(x)
    switches.skip(["ext:twice"])
    module.run(x)
    assert float(x[3]) == 2.0
    assert switches.take_launches()["ext:twice"] == 2
