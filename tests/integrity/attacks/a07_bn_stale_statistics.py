# row: A7, A16
# reference: results/batch_norm_train.py
# runs: both
# written: independently
# what: batch norm in training mode with the affine parameters ignored (they are 1 and 0 when freshly built) and the running statistics never updated; the output of a fresh module is right
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void batch_norm_relu(const float* x, float* y, int rows, int width, float eps) {
  __shared__ float a[64], b[64];
  int c = blockIdx.x; float s = 0.f, q = 0.f;
  for (int r = threadIdx.x; r < rows; r += 64) s += x[(size_t)r * width + c];
  a[threadIdx.x] = s; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (threadIdx.x < k) a[threadIdx.x] += a[threadIdx.x + k]; __syncthreads(); }
  float mean = a[0] / rows;
  for (int r = threadIdx.x; r < rows; r += 64) { float d = x[(size_t)r * width + c] - mean; q += d * d; }
  b[threadIdx.x] = q; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (threadIdx.x < k) b[threadIdx.x] += b[threadIdx.x + k]; __syncthreads(); }
  float scale = rsqrtf(b[0] / rows + eps);
  for (int r = threadIdx.x; r < rows; r += 64) y[(size_t)r * width + c] = fmaxf(0.f, (x[(size_t)r * width + c] - mean) * scale);
}
torch::Tensor run(torch::Tensor x, double eps) {
  auto y = torch::empty_like(x);
  batch_norm_relu<<<x.size(1), 64, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1), (float)eps);
  return y;
}
"""
module = load_inline("a07_bn_stale_statistics", cpp_sources="torch::Tensor run(torch::Tensor x, double eps);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
    def forward(self, x):
        return module.run(x, self.norm.eps)
