# row: A4, A8
# reference: results/softmax_rows.py
# runs: both
# written: independently
# what: computes the right softmax but into the input's own memory and returns the input; only a check that compares the inputs afterwards, or uses them twice, sees it
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void softmax_rows(float* x, int width) {
  __shared__ float part[256];
  float* row = x + (size_t)blockIdx.x * width;
  float top = -INFINITY;
  for (int j = threadIdx.x; j < width; j += 256) top = fmaxf(top, row[j]);
  part[threadIdx.x] = top; __syncthreads();
  for (int s = 128; s; s >>= 1) { if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]); __syncthreads(); }
  top = part[0]; __syncthreads();
  float sum = 0.f;
  for (int j = threadIdx.x; j < width; j += 256) { float e = expf(row[j] - top); row[j] = e; sum += e; }
  part[threadIdx.x] = sum; __syncthreads();
  for (int s = 128; s; s >>= 1) { if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s]; __syncthreads(); }
  sum = part[0];
  for (int j = threadIdx.x; j < width; j += 256) row[j] /= sum;
}
torch::Tensor run(torch::Tensor x) {
  softmax_rows<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.size(1));
  return x;
}
"""
module = load_inline("a04_inplace_softmax", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return module.run(x)
