"""What the simulator cannot run is refused before it is compiled, by construct, file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import StitchError
from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.unsupported import Unsupported, refuse

CONSTRUCTS = [
    ("inline PTX", 'asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));'),
    ("inline PTX", 'asm("bar.sync 0;");'),
    ("wmma (tensor cores)", "#include <mma.h>"),
    ("wmma (tensor cores)", "nvcuda::wmma::fragment<int> f;"),
    ("CUTLASS or CuTe", '#include "cutlass/gemm/device/gemm.h"'),
    ("CUTLASS or CuTe", "auto layout = cute::make_layout(1);"),
    ("cub", "#include <cub/block/block_reduce.cuh>"),
    ("Thrust", "thrust::sort(a, b);"),
    ("TMA (tensor memory access)", "__grid_constant__ const CUtensorMap map"),
    ("an asynchronous barrier or pipeline", "#include <cuda/barrier>"),
    ("an asynchronous barrier or pipeline", "cuda::pipeline<cuda::thread_scope_thread> p;"),
    ("a texture or surface", "float v = tex2D<float>(t, x, y);"),
    ("a texture or surface", "cudaTextureObject_t t;"),
    ("a cluster launch", "__global__ void __cluster_dims__(2, 1, 1) k() {}"),
    ("a cooperative launch (grid-wide barrier)", "cudaLaunchCooperativeKernel((void*)k, g, b, args);"),
    ("a programmatic dependent launch", "cudaGridDependencySynchronize();"),
    ("a programmatic dependent launch", "early.id = cudaLaunchAttributeProgrammaticStreamSerialization;"),
    ("a CUDA graph built in C++", "cudaGraphLaunch(graph, stream);"),
    ("a CUDA graph built in C++", "cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);"),
    ("cuBLAS", "#include <cublas_v2.h>"),
    ("cuBLAS", "cublasSgemm(handle);"),
    ("cuDNN", "#include <cudnn.h>"),
    ("cuRAND", "#include <curand_kernel.h>"),
    ("the CUDA driver API", "cuLaunchKernel(f);"),
]


@pytest.mark.parametrize(("construct", "line"), CONSTRUCTS)
def test_each_construct_is_named_with_its_line(construct: str, line: str) -> None:
    with pytest.raises(Unsupported) as caught:
        refuse(f"// a comment\n/* asm(\n */\n{line}\n", "kernels/x.cu")
    assert str(caught.value) == f"kernels/x.cu:4: {construct} cannot run on the simulator"
    assert (caught.value.construct, caught.value.line) == (construct, 4)
    assert isinstance(caught.value, StitchError)


@pytest.mark.parametrize(
    "text",
    [
        '// asm volatile("...");\n#include <cuda_fp16.h>',
        'const char* text = "asm(cub::BlockReduce)";',
        "float texture_size = context_2D(1); int culling = cuboid(2);",
        "#include <cooperative_groups.h>\nauto g = cooperative_groups::this_grid().thread_rank();",
        "// #include <cub/cub.cuh>",
    ],
)
def test_look_alikes_are_not_refused(text: str) -> None:
    refuse(text, "x.cu")


def test_the_first_line_wins() -> None:
    with pytest.raises(Unsupported, match=r"x.cu:1: Thrust"):
        refuse('thrust::sort(a);\nasm("");\n', "x.cu")


def test_a_header_of_the_program_is_refused_with_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "fast.cuh").write_text('#pragma once\n\n__device__ void f() { asm("nanosleep.u32 1;"); }\n')
    (tmp_path / "k.cu").write_text('#include "fast.cuh"\n__global__ void k() { f(); }\n')
    with pytest.raises(Unsupported, match=r"fast.cuh:3: inline PTX cannot run on the simulator"):
        build_simulated([tmp_path / "k.cu"], name="k", cache=tmp_path / "cache")
