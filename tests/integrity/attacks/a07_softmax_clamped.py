# row: A7
# reference: results/softmax_rows.py
# runs: both
# written: independently
# what: no maximum is subtracted and the exponent is clamped to [-9, 9]: exact for the standard normal inputs of the benchmark, wrong for scaled or shifted ones
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void softmax_rows(const float* x, float* y, int width) {
  __shared__ float part[256];
  const float* row = x + (size_t)blockIdx.x * width; float* out = y + (size_t)blockIdx.x * width;
  float sum = 0.f;
  for (int j = threadIdx.x; j < width; j += 256) sum += expf(fminf(fmaxf(row[j], -9.f), 9.f));
  part[threadIdx.x] = sum; __syncthreads();
  for (int s = 128; s; s >>= 1) { if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s]; __syncthreads(); }
  float inverse = 1.f / part[0];
  for (int j = threadIdx.x; j < width; j += 256) out[j] = expf(fminf(fmaxf(row[j], -9.f), 9.f)) * inverse;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  softmax_rows<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
module = load_inline("a07_softmax_clamped", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return module.run(x)
