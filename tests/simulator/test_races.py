"""Races are found although threads run one after another; what is in order, atomic, volatile or changes nothing is none. Reads
of unwritten shared memory are noted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from stitchcuda.simulator import loaded_runtime
from tests.simulator.programs import load, runs

DEVICE = "static float* d = nullptr; if (!d) { cudaMalloc(&d, 65536); } cudaMemset(d, 0, 65536);"

RACES = {
    "a sum without atomics": (
        "__global__ void k(float* y, float* d) { d[0] += 1.f; }", "k<<<1, 64>>>((float*)c, d);", "device memory"
    ),
    "blocks that write one number": (
        "__global__ void k(float* y, float* d) { if (threadIdx.x == 0) d[0] = blockIdx.x; }", "k<<<4, 32>>>((float*)c, d);",
        "of another block"
    ),
    "blocks that read their neighbours' results": (
        "__global__ void k(float* y, float* d) { int i = blockIdx.x * 32 + threadIdx.x; d[i + 32] = d[i] + 1.f; }",
        "k<<<4, 32>>>((float*)c, d);", "of another block"
    ),
    "no barrier before reading": (
        """__global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = threadIdx.x;
        y[threadIdx.x] = s[63 - threadIdx.x]; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "no barrier before writing again": (
        """__global__ void k(float* y) { __shared__ float s[64]; float sum = 0;
        for (int i = 0; i < 3; i++) { s[threadIdx.x] = threadIdx.x + i; __syncthreads(); sum += s[63 - threadIdx.x]; }
        y[threadIdx.x] = sum; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "dynamic memory, one warp": (
        "__global__ void k(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x ^ 1]; }",
        "k<<<1, 32, 128>>>((float*)c);", "shared memory"
    ),
    "four numbers at once, then one": (
        """__global__ void k(float* y) { __shared__ float4 s[16];
        if (threadIdx.x < 16) s[threadIdx.x] = make_float4(1, 2, 3, 4);
        y[threadIdx.x] = ((float*)s)[threadIdx.x]; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "a half of a word, then the word": (
        """__global__ void k(float* y) { __shared__ unsigned short h[64]; h[threadIdx.x] = threadIdx.x;
        y[threadIdx.x] = ((float*)h)[threadIdx.x / 2]; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "a byte of its neighbour": (
        "__global__ void k(float* y, unsigned char* b) { b[threadIdx.x] = threadIdx.x + 1; b[threadIdx.x ^ 3] += 2; }",
        "k<<<1, 64>>>((float*)c, (unsigned char*)d);", "device memory"
    ),
    "a fence orders no shared memory": (
        """__global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = 1; __threadfence();
        y[threadIdx.x] = s[63 - threadIdx.x]; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "readers of one warp, then a writer among them": (
        """__global__ void k(float* y) { __shared__ float n; if (threadIdx.x == 0) n = 1; __syncwarp(); y[threadIdx.x] = n;
        __syncwarp(); if (threadIdx.x < 2) y[threadIdx.x] += n; if (threadIdx.x == 1) n += 1; __syncwarp(); y[0] = n; }""",
        "k<<<1, 32>>>((float*)c);", "shared memory"
    ),
    "readers of one warp, then a writer of another": (
        """__global__ void k(float* y) { __shared__ float n; if (threadIdx.x == 0) n = 1; __syncthreads();
        if (threadIdx.x < 32) y[threadIdx.x] = n; __syncwarp(); if (threadIdx.x == 0) y[0] += n;
        if (threadIdx.x == 32) n = 2; __syncthreads(); y[0] = n; }""", "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
    "readers of two warps, then a writer of one": (
        """__global__ void k(float* y) { __shared__ float n; if (threadIdx.x == 0) n = 1; __syncthreads(); y[threadIdx.x] = n;
        __syncwarp(); if (threadIdx.x == 0) n += 1; __syncthreads(); y[0] = n; }""",
        "k<<<1, 64>>>((float*)c);", "shared memory"
    ),
}  # fmt: skip

NONE = {
    "atomics": ("__global__ void k(float* y, float* d) { atomicAdd(d, 1.f); }", "k<<<4, 64>>>((float*)c, d);"),
    "one value by many": ("__global__ void k(float* y, float* d) { d[0] = 7.f; }", "k<<<4, 64>>>((float*)c, d);"),
    "barriers": (
        """__global__ void k(float* y) { __shared__ float s[64]; float sum = 0;
        for (int i = 0; i < 3; i++) { s[threadIdx.x] = i; __syncthreads(); sum += s[63 - threadIdx.x]; __syncthreads(); }
        y[threadIdx.x] = sum; }""", "k<<<2, 64>>>((float*)c);"
    ),
    "a warp": (
        """__global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = threadIdx.x; __syncwarp();
        float v = s[threadIdx.x ^ 1]; __syncwarp(); s[threadIdx.x] = v; __shfl_xor_sync(0xffffffffu, v, 1);
        y[threadIdx.x] = s[threadIdx.x ^ 1]; }""", "k<<<1, 64>>>((float*)c);"
    ),
    "a warp reads, then one of its lanes reads and writes": (
        """__global__ void k(float* y) { __shared__ float n; if (threadIdx.x == 0) n = 1; __syncwarp();
        for (int i = 0; i < 3; i++) { if (threadIdx.x % 3 < 2) y[threadIdx.x] = n; __syncwarp();
        if (threadIdx.x == i) n += 1; __syncwarp(); } y[threadIdx.x] = n; }""", "k<<<2, 32>>>((float*)c);"
    ),
    "a warp reads, then its lanes add in turn": (
        """__global__ void k(float* y) { __shared__ float n; if (threadIdx.x == 0) n = 1; __syncwarp(); y[threadIdx.x] = n;
        __shfl_sync(0xffffffffu, 1, 0); if (threadIdx.x == 5) n += 1; __ballot_sync(0xffffffffu, 1);
        if (threadIdx.x == 7) n += 1; __syncwarp(); y[0] = n; }""", "k<<<1, 32>>>((float*)c);"
    ),
    "each warp has a number of its own": (
        """__global__ void k(float* y) { __shared__ int n[2]; int* mine = n + threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0) *mine = 0; __syncwarp(); for (int i = 0; i < 4; i++) { unsigned votes = __ballot_sync(~0u, lane > i);
        if (lane > i) y[*mine] = lane; __syncwarp(); if (lane == 0) *mine += __popc(votes) > 0; __syncwarp(); } }""",
        "k<<<1, 64>>>((float*)c);"
    ),
    "a volatile warp": (
        """__global__ void k(float* y) { __shared__ float all[64]; volatile float* s = all; s[threadIdx.x] = 1;
        y[threadIdx.x] = s[threadIdx.x ^ 1]; }""", "k<<<1, 32>>>((float*)c);"
    ),
    "halves of a word": (
        """__global__ void k(float* y) { __shared__ __half h[64]; h[threadIdx.x] = __float2half(1.f); __syncthreads();
        y[threadIdx.x] = __half2float(h[63 - threadIdx.x]); }""", "k<<<1, 64>>>((float*)c);"
    ),
    "halves of a word, in place": (
        """__global__ void k(float* y, __half* h) { int i = blockIdx.x * 64 + threadIdx.x;
        h[i] = __hadd(h[i], __float2half(1.f)); }""", "k<<<4, 64>>>((float*)c, (__half*)d);"
    ),
    "bytes in place, and a word of them by its owner": (
        """__global__ void k(float* y, unsigned char* b) { b[threadIdx.x] = 255 - b[threadIdx.x]; __syncthreads();
        if (threadIdx.x < 16) ((unsigned*)b)[threadIdx.x] += 1; }""",
        "k<<<1, 64>>>((float*)c, (unsigned char*)d);"
    ),
    "the last block": (
        """__device__ unsigned count = 0;
        __global__ void k(float* y, float* d) { __shared__ bool last; if (threadIdx.x == 0) { d[blockIdx.x] = blockIdx.x;
        __threadfence(); last = atomicAdd(&count, 1u) == gridDim.x - 1; } __syncthreads();
        if (last && threadIdx.x == 0) { for (int i = 0; i < gridDim.x; i++) d[99] += d[i]; count = 0; } }""",
        "k<<<8, 32>>>((float*)c, d);"
    ),
    "rows of one's own": (
        """__global__ void k(float* y, float* d) { float* row = d + (blockIdx.x * 64 + threadIdx.x) * 4;
        for (int i = 0; i < 4; i++) row[i] += i; }""", "k<<<4, 64>>>((float*)c, d);"
    ),
    "two launches": (
        "__global__ void k(float* y, float* d, int by) { d[threadIdx.x ^ by] += 1.f; }",
        "k<<<1, 64>>>((float*)c, d, 0); k<<<1, 64>>>((float*)c, d, 1);"
    ),
}  # fmt: skip

UNWRITTEN = {                              # each with whether it reads shared memory that its block has not written
    "all of it is written": (
        "__global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = 1; __syncthreads(); y[0] = s[63]; }",
        "k<<<2, 64>>>((float*)c);", False,
    ),
    "one more is read": (
        """__global__ void k(float* y) { __shared__ float s[65]; s[threadIdx.x] = 1; __syncthreads();
        y[0] = s[threadIdx.x + 1]; }""", "k<<<1, 64>>>((float*)c);", True,
    ),
    "another block wrote it": (
        """__global__ void k(float* y) { __shared__ float s[64]; if (blockIdx.x == 0) s[threadIdx.x] = 1; __syncthreads();
        y[0] = s[63 - threadIdx.x]; }""", "k<<<4, 64>>>((float*)c);", True,
    ),
    "half of a vector": (
        """__global__ void k(float* y) { extern __shared__ float4 s[]; ((float2*)s)[2 * threadIdx.x] = make_float2(1, 1);
        __syncthreads(); y[0] = s[threadIdx.x].z; }""", "k<<<1, 32, 512>>>((float*)c);", True,
    ),
    "bytes, then a word": (
        """__global__ void k(float* y) { __shared__ char s[256]; for (int i = 0; i < 4; i++) s[4 * threadIdx.x + i] = -1;
        __syncthreads(); y[0] = ((int*)s)[63 - threadIdx.x]; }""", "k<<<1, 64>>>((float*)c);", False,
    ),
    "atomics begin with what is there": (
        "__global__ void k(int* y) { __shared__ int s; atomicAdd(&s, 1); __syncthreads(); y[0] = s; }",
        "k<<<1, 64>>>((int*)c);", False,
    ),
    "a volatile variable": (
        "__global__ void k(float* y) { __shared__ volatile float s[64]; s[threadIdx.x] = 1; __syncthreads(); y[0] = s[63]; }",
        "k<<<1, 64>>>((float*)c);", False,
    ),
}  # fmt: skip

EVERY = {name: case[:2] for name, case in {**RACES, **NONE, **UNWRITTEN}.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Runs the case of a name. All are built at once: a build takes seconds."""
    kernels = "\n".join(f"namespace case{number} {{ {kernel} }}" for number, (kernel, _) in enumerate(EVERY.values()))
    launches = " ".join(
        f"if (n == {number}) {{ using namespace case{number}; {launch} }}" for number, (_, launch) in enumerate(EVERY.values())
    )
    program = load(tmp_path_factory.mktemp("races"), runs(kernels, f"{DEVICE} {launches}"))

    def run_case(name: str) -> None:
        program(torch.zeros(64), None, torch.zeros(128), list(EVERY).index(name))

    return run_case


@pytest.fixture(autouse=True, params=["forward", "reverse", "random:4"])
def schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_SIM_CHECK", "1")
    monkeypatch.setenv("STITCHCUDA_SIM_SCHEDULE", request.param)


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found(run: Callable[[str], None], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"kernel k has a race in .*{RACES[name][2]}"):
        run(name)


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_race(run: Callable[[str], None], name: str) -> None:
    run(name)


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_reads_unwritten_shared_memory(run: Callable[[str], None], name: str) -> None:
    loaded_runtime.take_unwritten_read()
    run(name)
    told = loaded_runtime.take_unwritten_read()
    assert told.startswith("kernel k reads shared memory that its block has not written: thread ") == UNWRITTEN[name][2], told
    assert not loaded_runtime.take_unwritten_read()
