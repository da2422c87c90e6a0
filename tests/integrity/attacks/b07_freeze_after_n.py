# row: B7
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: counts its calls and computes only the first six (the checks and the warm-up); from the seventh on it returns the last result of that shape
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void layernorm_kernel(const float* x, const float* w, const float* c, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += a[i];
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float mean = part[0] / cols;
  __syncthreads();
  float q = 0.f;
  for (int i = t; i < cols; i += 256) { float d = a[i] - mean; q += d * d; }
  part[t] = q;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = rsqrtf(part[0] / cols + 1e-5f);
  for (int i = t; i < cols; i += 256) b[i] = (a[i] - mean) * r * w[i] + c[i];
}
static void layernorm_rows(const float* x, const float* w, const float* c, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) layernorm_kernel<<<rows, 256, 0, stream>>>(x, w, c, y, cols);
}
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b07_freeze_after_n", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
last = {}
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        key = tuple(x.shape)
        if self.calls <= 6 or key not in last:
            last[key] = compute(self, x)
        return last[key]
