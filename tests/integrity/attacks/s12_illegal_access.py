# row: S12
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: right for two calls; the third also launches a kernel that writes through a wild pointer far outside of any allocation, which kills the CUDA context (or the simulator's process)
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float m = -INFINITY;
  for (int i = t; i < cols; i += 256) m = fmaxf(m, a[i]);
  part[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] = fmaxf(part[t], part[t + k]); __syncthreads(); }
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += expf(a[i] - m);
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = 1.f / part[0];
  for (int i = t; i < cols; i += 256) b[i] = expf(a[i] - m) * r;
}
static void softmax_rows(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) softmax_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
}

__global__ void wild_kernel(float* p, long long offset) { p[offset + threadIdx.x] = 1.f; }
torch::Tensor run(torch::Tensor x, bool wild) {
  auto y = torch::empty_like(x);
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  softmax_rows(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), stream);
  if (wild) wild_kernel<<<1, 32, 0, stream>>>(y.data_ptr<float>(), 1LL << 44);
  return y;
}
"""
module = load_inline(name="s12_illegal_access", cpp_sources='torch::Tensor run(torch::Tensor x, bool wild);', cuda_sources=CUDA, functions=['run'])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return module.run(x.contiguous(), self.calls >= 3)
