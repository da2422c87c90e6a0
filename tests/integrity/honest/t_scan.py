# row: honest
# reference: honest/cumulative.py
# runs: both
# written: independently
# what: row-wise scan in chunks with warp shuffles; a carry is passed between chunks in dynamic shared memory
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void scan_rows(const float* x, float* y, int width) {
  extern __shared__ float totals[];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const float* in = x + (size_t)blockIdx.x * width;
  float carry = 0.f;
  for (int start = 0; start < width; start += blockDim.x) {
    int i = start + threadIdx.x;
    float v = i < width ? in[i] : 0.f;
    for (int d = 1; d < 32; d <<= 1) { float u = __shfl_up_sync(0xffffffffu, v, d); if (lane >= d) v += u; }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    float before = carry, all = carry;
    for (int k = 0; k < warps; ++k) { if (k < warp) before += totals[k]; all += totals[k]; }
    if (i < width) y[(size_t)blockIdx.x * width + i] = v + before;
    carry = all;
    __syncthreads();
  }
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int threads = 128;
  scan_rows<<<x.size(0), threads, threads / 32 * sizeof(float), c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
ops = load_inline(name="t_scan", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ops.run(x)
