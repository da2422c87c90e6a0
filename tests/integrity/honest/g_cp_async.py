# row: honest
# reference: honest/gpu_layer_norm.py
# runs: gpu
# written: independently
# what: residual add and layer norm fused; rows are staged with cp.async (pipeline intrinsics), two rows ahead, scalar kernel for widths it cannot handle (not launched here)
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_pipeline.h>
__device__ __forceinline__ float block_sum(float v, float* part) {
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.f;
  for (int k = 0; k < (int)blockDim.x / 32; ++k) v += part[k];
  return v;
}
__global__ void __launch_bounds__(256) staged(const float* x, const float* z, const float* w, const float* b, float* y, int rows, int width, float eps) {
  extern __shared__ __align__(16) float stage[];          // [2][2][width]
  __shared__ float part[8];
  auto fetch = [&](int row, int slot) {
    if (row < rows)
      for (int i = threadIdx.x * 4; i < width; i += 1024) {
        __pipeline_memcpy_async(stage + (slot * 2 + 0) * width + i, x + (size_t)row * width + i, 16);
        __pipeline_memcpy_async(stage + (slot * 2 + 1) * width + i, z + (size_t)row * width + i, 16);
      }
    __pipeline_commit();
  };
  int slot = 0;
  fetch(blockIdx.x, 0);
  for (int row = blockIdx.x; row < rows; row += gridDim.x, slot ^= 1) {
    fetch(row + gridDim.x, slot ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    float* a = stage + slot * 2 * width;
    const float* r = a + width;
    float s = 0.f;
    for (int i = threadIdx.x; i < width; i += 256) { float v = a[i] + r[i]; a[i] = v; s += v; }
    float m = block_sum(s, part) / width, q = 0.f;
    for (int i = threadIdx.x; i < width; i += 256) { float d = a[i] - m; q = fmaf(d, d, q); }
    float inv = 1.f / sqrtf(block_sum(q, part) / width + eps);
    for (int i = threadIdx.x; i < width; i += 256) __stcs(y + (size_t)row * width + i, (a[i] - m) * inv * w[i] + b[i]);
    __syncthreads();
  }
}
__global__ void __launch_bounds__(256) plain(const float* x, const float* z, const float* w, const float* b, float* y, int width, float eps) {
  __shared__ float part[8];
  size_t at = (size_t)blockIdx.x * width;
  float s = 0.f, q = 0.f;
  for (int i = threadIdx.x; i < width; i += 256) s += x[at + i] + z[at + i];
  float m = block_sum(s, part) / width;
  for (int i = threadIdx.x; i < width; i += 256) { float d = x[at + i] + z[at + i] - m; q = fmaf(d, d, q); }
  float inv = 1.f / sqrtf(block_sum(q, part) / width + eps);
  for (int i = threadIdx.x; i < width; i += 256) y[at + i] = (x[at + i] + z[at + i] - m) * inv * w[i] + b[i];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView z, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y, double eps) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const float *xp = (const float*)x.data_ptr(), *zp = (const float*)z.data_ptr(), *wp = (const float*)w.data_ptr(), *bp = (const float*)b.data_ptr();
  bool fits = width % 4 == 0 && width <= 2048 && (((size_t)xp | (size_t)zp) & 15) == 0;
  if (fits) staged<<<rows < 792 ? rows : 792, 256, 4 * width * sizeof(float), stream>>>(xp, zp, wp, bp, (float*)y.data_ptr(), rows, width, (float)eps);
  else plain<<<rows, 256, 0, stream>>>(xp, zp, wp, bp, (float*)y.data_ptr(), width, (float)eps);
}
"""
module = load_inline("g_cp_async", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        y = torch.empty_like(x)
        module.run(x, residual, self.norm.weight, self.norm.bias, y, self.norm.eps)
        return y
