"""Ordinary CUDA programs on CPU tensors, compared with torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.simulator.programs import load, runs

F = "(float*)"


def test_pointwise_with_a_tail(tmp_path: Path) -> None:
    add = load(tmp_path, runs("""
#include <cuda_runtime.h>
__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}""", "add<<<(n + 255) / 256, 256, 0, stream>>>((float*)a, (float*)b, (float*)c, n);"))  # fmt: skip
    a, b = torch.randn(10_007), torch.randn(10_007)
    assert torch.equal(add(a, b, torch.full_like(a, 9.0), a.numel()), a + b)


def test_row_softmax_with_shuffles_and_shared_memory(tmp_path: Path) -> None:
    softmax = load(tmp_path, runs("""
template <int THREADS>
__global__ void __launch_bounds__(THREADS) softmax(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float partial[32];
  const float* row = x + (size_t)blockIdx.x * columns;
  float top = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += THREADS) top = fmaxf(top, row[i]);
  #pragma unroll
  for (int step = 16; step > 0; step >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = top;
  __syncthreads();
  for (int i = 0; i < THREADS / 32; i++) top = fmaxf(top, partial[i]);
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += __expf(row[i] - top);
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < THREADS / 32; i++) sum += partial[i];
  for (int i = threadIdx.x; i < columns; i += THREADS) y[(size_t)blockIdx.x * columns + i] = __expf(row[i] - top) / sum;
}""", "softmax<128><<<n, 128>>>((const float*)a, (float*)c, m);"))  # fmt: skip
    x = torch.randn(64, 300)
    torch.testing.assert_close(softmax(x, None, torch.empty_like(x), 64, 300), x.softmax(-1))


def test_a_tile_named_by_its_size_alone(tmp_path: Path) -> None:
    """As NVIDIA's guide writes it: a tile of a block is a tile."""
    sums = load(tmp_path, runs("""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__device__ float total(const cg::thread_block_tile<32>& warp, float x) { return cg::reduce(warp, x, cg::plus<float>()); }
__global__ void sums(const float* a, float* c) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  const float sum = total(warp, a[blockIdx.x * 32 + threadIdx.x]);
  if (warp.thread_rank() == 0) c[blockIdx.x] = sum;
}""", "sums<<<n, 32>>>((const float*)a, (float*)c);"))  # fmt: skip
    a = torch.arange(96, dtype=torch.float32)
    assert torch.equal(sums(a, None, torch.empty(3), 3, 0), a.view(3, 32).sum(1))


def test_tiled_product_in_a_template_with_two_dimensional_blocks(tmp_path: Path) -> None:
    product = load(tmp_path, runs("""
template <typename T, int TILE> __global__ void product(const T* a, const T* b, T* c, int n) {
  __shared__ T left[TILE][TILE + 1], right[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  T sum = 0;
  for (int k = 0; k < n; k += TILE) {
    left[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : T(0);
    right[threadIdx.y][threadIdx.x] = column < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : T(0);
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}""", """dim3 block(16, 16), grid((n + 15) / 16, (n + 15) / 16);
  product<double, 16><<<grid, block>>>((double*)a, (double*)b, (double*)c, n);"""))  # fmt: skip
    a, b = torch.randn(50, 50, dtype=torch.float64), torch.randn(50, 50, dtype=torch.float64)
    torch.testing.assert_close(product(a, b, torch.empty_like(a), 50), a @ b)


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ float sums[];",
        "extern __shared__ __align__(16) unsigned char raw[]; float* sums = reinterpret_cast<float*>(raw);",
        "extern __shared__ float4 wide[]; float* sums = (float*)wide;",
        "extern __shared__ float pairs[][2]; float* sums = &pairs[0][0];",
    ],
)
def test_dynamic_shared_memory_and_atomics(tmp_path: Path, declaration: str) -> None:
    total = load(tmp_path, runs(f"""
__global__ void total(const float* x, float* out, int n) {{
  {declaration}
  const int t = threadIdx.x;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sums[t] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {{
    if (t < half) sums[t] += sums[t + half];
    __syncthreads();
  }}
  if (t == 0) atomicAdd(out, sums[0]);
}}""", "total<<<8, 128, 128 * sizeof(float), stream>>>((float*)a, (float*)c, n);"))  # fmt: skip
    x = torch.randn(5000, dtype=torch.float32)
    torch.testing.assert_close(total(x, None, torch.zeros(1), 5000), x.sum()[None], atol=1e-3, rtol=1e-5)


def test_dynamic_shared_memory_declared_at_file_scope(tmp_path: Path) -> None:
    reverse = load(tmp_path, runs("""
extern __shared__ int words[];
namespace inner { __device__ int mirrored(int i) { return words[blockDim.x - 1 - i]; } }
__global__ void reverse(const int* x, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  words[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = inner::mirrored(threadIdx.x);
}""", "reverse<<<n, 64, 64 * sizeof(int)>>>((int*)a, (int*)c);"))  # fmt: skip
    x = torch.arange(64 * 40, dtype=torch.int32)
    assert torch.equal(reverse(x, None, torch.empty_like(x), 40), x.view(40, 64).flip(1).flatten())


def test_half2_and_vector_loads(tmp_path: Path) -> None:
    scale = load(tmp_path, runs("""
#include <cuda_fp16.h>
__global__ void scale(const uint4* x, uint4* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint4 packed = x[i];
  __half2* pairs = reinterpret_cast<__half2*>(&packed);
  #pragma unroll
  for (int k = 0; k < 4; ++k) {
    float2 wide = __half22float2(pairs[k]);
    pairs[k] = __hmul2(__floats2half2_rn(wide.x + 1.0f, wide.y + 1.0f), __float2half2_rn(2.0f));
  }
  y[i] = packed;
}""", "scale<<<(n + 63) / 64, 64>>>((uint4*)a, (uint4*)c, n);"))  # fmt: skip
    x = torch.randn(8 * 100).half()
    assert torch.equal(scale(x, None, torch.empty_like(x), 100), (x + 1) * 2)


def test_bfloat16_rows(tmp_path: Path) -> None:
    norm = load(tmp_path, runs("""
#include <cuda_bf16.h>
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
  return __shfl_sync(0xffffffff, v, 0);
}
__global__ void rms(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int columns) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
  float squares = 0;
  for (int i = lane; i < columns; i += 32) { float v = __bfloat162float(x[row * columns + i]); squares += v * v; }
  const float scale = rsqrtf(warp_sum(squares) / columns + 1e-6f);
  for (int i = lane; i < columns; i += 32)
    y[row * columns + i] = __float2bfloat16(__bfloat162float(x[row * columns + i]) * scale * __bfloat162float(w[i]));
}""", "rms<<<n / 4, 128>>>((__nv_bfloat16*)a, (__nv_bfloat16*)b, (__nv_bfloat16*)c, m);"))  # fmt: skip
    x, w = torch.randn(16, 96).bfloat16(), torch.randn(96).bfloat16()
    wanted = torch.nn.functional.rms_norm(x.float(), (96,), w.float(), 1e-6).bfloat16()
    torch.testing.assert_close(norm(x, w, torch.empty_like(x), 16, 96), wanted)


def test_launches_in_macros_through_pointers_and_with_deduced_arguments(tmp_path: Path) -> None:
    shift = load(tmp_path, runs("""
#define CHECK(call) do { cudaError_t status = (call); if (status != cudaSuccess) return (int)status; } while (0)
#define LAUNCH(KERNEL, BLOCKS, ...)  \\
  KERNEL<<<BLOCKS,                   \\
           128>>>(__VA_ARGS__);      \\
  CHECK(cudaGetLastError())
__device__ int at() { return blockIdx.x * 128 + threadIdx.x; }
template <typename T> __global__ void shift(T* x, T by, int n) { if (at() < n) x[at()] += by; }
template <typename T, int BY = 3> __global__ void shift_by(T* x, int n) { if (at() < n) x[at()] += BY; }
namespace kernels { __global__ void twice(float* x, int n) { if (at() < n) x[at()] *= 2; } }
""", """float* x = (float*)c;
  const int blocks = (n + 127) / 128;
  LAUNCH(shift, blocks, x, 1.0f, n);                       // deduced
  LAUNCH((shift_by<float, (4 > 3) ? 5 : 6>), blocks, x, n); // a comma and a > in the arguments
  void (*chosen)(float*, int) = m ? kernels::twice : nullptr;
  if (chosen)
    chosen<<<dim3(blocks, 1, 1),
             dim3(128) /* threads */>>>(
        x, n);
  auto launch = [&](int repeat) { for (int i = 0; i < repeat; i++) shift_by<float><<<blocks, 128, 0, stream>>>(x, n); };
  launch(2);
  float by = 0.5f;
  void* arguments[] = {&x, &by, &n};
  CHECK(cudaLaunchKernel((const void*)shift<float>, dim3(blocks), dim3(128), arguments, 0, stream));"""))  # fmt: skip
    x = torch.randn(1000)
    assert torch.allclose(shift(x, None, x.clone(), 1000, 1), (x + 6) * 2 + 6.5)


def test_constants_symbols_and_device_globals(tmp_path: Path) -> None:
    polynomial = load(tmp_path, runs("""
static __constant__ float kScale[2] = {2.0f, 4.0f};
__constant__ float weights[4];
__device__ int calls = 0;
__global__ void evaluate(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) atomicAdd(&calls, 1);
  if (i < n) y[i] = kScale[1] * (weights[0] + x[i] * (weights[1] + x[i] * (weights[2] + x[i] * weights[3])));
}""", """if (cudaMemcpyToSymbol(weights, b, sizeof(weights)) != cudaSuccess) return 1;
  evaluate<<<4, 64>>>((float*)a, (float*)c, n);
  int seen = 0;
  cudaMemcpyFromSymbol(&seen, calls, sizeof(int));
  if (seen != 1) return 999;"""))  # fmt: skip
    x, w = torch.randn(200), torch.tensor([1.0, 2.0, 3.0, 4.0])
    torch.testing.assert_close(polynomial(x, w, torch.empty(200), 200), 4 * (1 + x * (2 + x * (3 + x * 4))))


def test_the_runtime_answers_as_an_h200(tmp_path: Path) -> None:
    ask = load(tmp_path, runs("""
#include <cstring>
__global__ void nothing(float*) {}
""", """cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  int optin = 0, blocks = 0, grid = 0, block = 0, *out = (int*)c;
  cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 0);
  cudaOccupancyMaxPotentialBlockSize(&grid, &block, nothing, 0, 0);
  float *device, host[3] = {1, 2, 3}, back[3];
  cudaEvent_t start, end;
  cudaStream_t own;
  float elapsed = -1;
  cudaStreamCreate(&own); cudaEventCreate(&start); cudaEventCreate(&end); cudaEventRecord(start, own);
  cudaMalloc(&device, sizeof host); cudaMemset(device, 0xff, sizeof host);
  cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, own); cudaStreamSynchronize(own);
  cudaMemcpy(back, device, sizeof host, cudaMemcpyDeviceToHost); cudaFree(device);
  cudaEventRecord(end, own); cudaEventSynchronize(end); cudaEventElapsedTime(&elapsed, start, end);
  out[0] = p.multiProcessorCount; out[1] = optin; out[2] = p.major * 10 + p.minor; out[3] = blocks;
  out[4] = grid > 0 && block > 0; out[5] = (int)(back[0] + back[1] + back[2]); out[6] = elapsed >= 0;
  out[7] = strcmp(p.name, "NVIDIA H200");"""))  # fmt: skip
    answers = ask(torch.empty(1), None, torch.zeros(8, dtype=torch.int32))
    assert answers.tolist() == [132, 227 * 1024, 90, 8, 1, 6, 1, 0]


def test_local_headers_and_conditions_for_the_device_compiler(tmp_path: Path) -> None:
    (tmp_path / "common.cuh").write_text("""#pragma once
#if !defined(__CUDACC__)
#error "this header is CUDA"
#endif
template <int N> __device__ float block_sum(float v) {
  __shared__ float parts[N];
  parts[threadIdx.x] = v; __syncthreads();
  float sum = 0; for (int i = 0; i < N; i++) sum += parts[i];
  __syncthreads(); return sum;
}
""")
    sums = load(tmp_path, runs("""
#include "common.cuh"
__global__ void sums(const float* x, float* y) {
#if __CUDA_ARCH__ >= 800
  float s = block_sum<32>(x[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
#endif
}""", "sums<<<n, 32>>>((float*)a, (float*)c);"))  # fmt: skip
    x = torch.randn(5, 32)
    torch.testing.assert_close(sums(x, None, torch.zeros(5), 5), x.sum(1))


def test_launches_of_different_sizes_one_after_another(tmp_path: Path) -> None:
    sums = load(tmp_path, runs("""
__global__ void sums(const int* x, int* y) {
  __shared__ int parts[32];
  int v = x[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  parts[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) { int all = 0; for (int i = 0; i < (int)blockDim.x / 32; i++) all += parts[i]; y[blockIdx.x] = all; }
}""", "sums<<<m, n>>>((int*)a, (int*)c);"))  # fmt: skip
    x = torch.randint(0, 99, (1024,), dtype=torch.int32)
    for threads in (1024, 32, 96, 544, 64, 1024, 192):
        assert sums(x, None, torch.zeros(8, dtype=torch.int32), threads, 8).tolist() == [int(x[:threads].sum())] * 8


def test_a_lock_of_spinning_threads_makes_progress(tmp_path: Path) -> None:
    count = load(tmp_path, runs("""
__device__ int lock = 0;
__global__ void count(int* total) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    *(volatile int*)total += 1;
    __syncwarp(1u);
    __threadfence();
    atomicExch(&lock, 0);
  }
}""", "count<<<8, 256>>>((int*)c);"))  # fmt: skip
    assert count(torch.empty(1), None, torch.zeros(1, dtype=torch.int32)).item() == 64


def test_device_printf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    say = load(
        tmp_path,
        runs(
            '#include <cstdio>\n__global__ void say() { printf("thread %d of %d\\n", threadIdx.x, blockDim.x); }',
            "say<<<1, 3>>>(); fflush(stdout);",
        ),
    )
    say(torch.empty(1), None, torch.empty(1))
    assert capfd.readouterr().out.splitlines() == ["thread 0 of 3", "thread 1 of 3", "thread 2 of 3"]


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:3"])
def test_every_schedule_gives_the_same_result(tmp_path: Path, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_SIM_SCHEDULE", schedule)
    scan = load(tmp_path, runs("""
__global__ void scan(const int* x, int* y) {
  __shared__ int words[256];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  words[t] = x[i]; __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    const int below = t >= step ? words[t - step] : 0;
    __syncthreads(); words[t] += below; __syncthreads();
  }
  y[i] = words[t];
}""", "scan<<<n, 256>>>((int*)a, (int*)c);"))  # fmt: skip
    x = torch.randint(0, 9, (30, 256), dtype=torch.int32)
    assert torch.equal(scan(x, None, torch.empty_like(x), 30), x.cumsum(1).int())


def test_checks_poison_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget = load(tmp_path, runs("""
__global__ void forget(float* y) {
  __shared__ float still[64];
  extern __shared__ float moving[];
  y[threadIdx.x] = threadIdx.x < 32 ? still[threadIdx.x] : moving[threadIdx.x];
}""", "forget<<<1, 64, 64 * sizeof(float)>>>((float*)c);"))  # fmt: skip
    monkeypatch.setenv("STITCHCUDA_SIM_CHECK", "1")
    assert forget(torch.empty(1), None, torch.zeros(64)).isnan().all()
